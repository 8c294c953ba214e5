"""Create, get, list, update and delete, as a real server answered them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.comparison import read_token
from tests.emulator.replay import Hook, Session, cases, exchanges
from tests.emulator.rig import MERGE, WIDGETS, elsewhere, made, session, widget

RECORDING = "02-crud"


def _pages(opened: Session) -> None:
    made("t2", *(widget(f"p{i}", labels={"i": str(i % 2)}) for i in range(5)))(opened)


def _decoded(_: Session) -> dict[str, Any]:
    page = next(one for one in exchanges(RECORDING) if one["name"] == "list limit=2")
    return {"decoded": read_token(page["response"]["body"]["metadata"]["continue"])}


def _release(opened: Session) -> None:
    for name in ("p1", "p2"):
        path = f"{WIDGETS.format('t2')}/{name}"
        opened.make("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)


HOOKS = {
    "bad propagationPolicy": Hook(before=_release),
    "list all namespaces": Hook(before=_pages),
    "decoded continue token": Hook(observe=_decoded),
    "list empty namespace": Hook(before=elsewhere),
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
