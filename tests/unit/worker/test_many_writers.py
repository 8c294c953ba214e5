"""No update is lost among conflicting writers, restarts and leader changes; `make walk` goes on."""

from __future__ import annotations

from tests.writers.walk import Walk

STEPS = 25
SEED = 1


def test_no_update_is_lost() -> None:
    """After every act the cluster comes to what its objects ask for, with nobody's help."""
    with Walk(SEED) as walk:
        for _ in range(STEPS):
            walk.step()
