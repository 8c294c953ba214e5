"""The stage as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.node.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Yield a configured node whose plugin is not started yet."""
    made = Stage()
    made.configure()
    yield made
    made.close()
