"""Tables and partial metadata, as a real server rendered them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import DEFINITIONS, MERGE, WIDGETS, definition, made, session, widget

RECORDING = "08-table-and-partial"


def _rows(opened: Session) -> None:
    for index, size in enumerate((1, 2)):
        spec = {"size": size, "tags": ["a", "b"]}
        opened.make("POST", WIDGETS.format("t1"), widget(f"t{index}", spec))
    condition = {
        "type": "Ready", "status": "True", "reason": "Ok", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {"phase": "Ready", "node": "node-a", "conditions": [condition]}
    opened.make("PATCH", WIDGETS.format("t1") + "/t0/status", {"status": status}, MERGE)


HOOKS = {"Table of a list (default includeObject=Metadata)": Hook(before=_rows)}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
