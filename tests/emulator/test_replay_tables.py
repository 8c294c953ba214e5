"""Tables and partial metadata, as a real server rendered them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import DEFINITIONS, MERGE, WIDGETS, definition, session, widget

RECORDING = "08-table-and-partial"


def _rows(opened: Session) -> None:
    _plain(opened)
    _map(opened)
    for index, size in enumerate((1, 2)):
        spec = {"size": size, "tags": ["a", "b"]}
        opened.make("POST", WIDGETS.format("t1"), widget(f"t{index}", spec))
    condition = {
        "type": "Ready", "status": "True", "reason": "Ok", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {"phase": "Ready", "node": "node-a", "conditions": [condition]}
    opened.make("PATCH", WIDGETS.format("t1") + "/t0/status", {"status": status}, MERGE)


def _plain(opened: Session) -> None:
    opened.make("POST", DEFINITIONS, definition("plains", "Plain", status=False))
    path = "/apis/rig.example.io/v1/namespaces/t1/plains"
    body = {"apiVersion": "rig.example.io/v1", "kind": "Plain", "metadata": {"name": "p"}}
    opened.make("POST", path, {**body, "spec": {"a": 1}, "status": {"s": 1}})
    opened.make("PATCH", f"{path}/p", {"status": {"s": 2}}, MERGE)


def _map(opened: Session) -> None:
    path = "/api/v1/namespaces/t1/configmaps"
    opened.make("POST", path, {"metadata": {"name": "cm"}, "data": {"a": "1"}})
    opened.make("PATCH", f"{path}/cm", {"data": {"a": "2", "b": "2"}}, MERGE)


HOOKS = {
    "Table of a list (default includeObject=Metadata)": Hook(before=_rows),
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
