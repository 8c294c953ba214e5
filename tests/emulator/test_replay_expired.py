"""410 Gone after a compaction, as a real server answered it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.comparison import read_token
from tests.emulator.replay import Hook, Session, cases, exchanges
from tests.emulator.rig import MERGE, WIDGETS, made, session, widget

RECORDING = "07-expired-410"


def _compacted(opened: Session) -> None:
    for index in range(6):
        path = f"{WIDGETS.format('t1')}/e{index}"
        opened.make("PATCH", path, {"spec": {"size": 50 + index}}, MERGE)
    opened.api.compact()


def _decoded(_: Session) -> dict[str, Any]:
    name = "list continue after compaction and an API server restart"
    refused = next(one for one in exchanges(RECORDING) if one["name"] == name)
    return {"decoded": read_token(refused["response"]["body"]["metadata"]["continue"])}


HOOKS = {
    "decoded inconsistent continue token": Hook(observe=_decoded),
    "list limit=2 before compaction": Hook(
        before=made("t1", *(widget(f"e{index}") for index in range(6)))
    ),
    "list continue after compaction and an API server restart": Hook(before=_compacted),
}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
