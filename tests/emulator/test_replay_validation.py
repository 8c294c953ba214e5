"""Schema errors, pruning, defaulting and CRD errors, as a real server worded them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import session

RECORDING = "05-validation-pruning-defaulting"
HOOKS: dict[str, Hook] = {}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
