"""Status and scale subresources, as a real server answered them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import DEFINITIONS, definition, session

RECORDING = "04-status-scale-subresource"


def _plains(opened: Session) -> None:
    opened.make("POST", DEFINITIONS, definition("plains", "Plain", status=False))


HOOKS = {"CRD without status subresource: create keeps status": Hook(before=_plains)}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
