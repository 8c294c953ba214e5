"""Watches, as a real server served them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import (
    DEFINITIONS,
    MERGE,
    WIDGETS,
    definition,
    elsewhere,
    made,
    session,
    widget,
)

RECORDING = "06-watch"
PRE = WIDGETS.format("t1") + "/pre"


def _lifecycle(opened: Session) -> None:
    path = WIDGETS.format("t1")
    opened.make("POST", path, widget("w1"))
    opened.make("PATCH", f"{path}/w1", {"spec": {"size": 3}}, MERGE)
    opened.make("PATCH", f"{path}/w1/status", {"status": {"phase": "Ready"}}, MERGE)
    opened.make("DELETE", f"{path}/w1")


def _guarded(opened: Session) -> None:
    path = WIDGETS.format("t1")
    opened.make("POST", path, widget("w2", finalizers=["rig.example.io/guard"]))
    opened.make("DELETE", f"{path}/w2")
    opened.make("PATCH", f"{path}/w2", {"metadata": {"finalizers": None}}, MERGE)


def _version_312(opened: Session) -> None:
    elsewhere(opened)
    opened.bindings.version("312", str(opened.api.store.version))


def _relabelled(opened: Session) -> None:
    for label in ("y", "x"):
        opened.make("PATCH", PRE, {"metadata": {"labels": {"app": label}}}, MERGE)


def _resized(opened: Session) -> None:
    for path in (PRE, WIDGETS.format("t1") + "/other"):
        opened.make("PATCH", path, {"spec": {"size": 9}}, MERGE)


def _defined(opened: Session) -> None:
    opened.make("POST", DEFINITIONS, definition("gones", "Gone"))
    body = {"apiVersion": "rig.example.io/v1", "kind": "Gone", "metadata": {"name": "g"}}
    opened.make("POST", "/apis/rig.example.io/v1/namespaces/t1/gones", body)


def _undefined(opened: Session) -> None:
    opened.make("DELETE", f"{DEFINITIONS}/gones.rig.example.io")
    opened.api.settle()


HOOKS = {
    "list to start from": Hook(before=made("t1", widget("pre", labels={"app": "x"}))),
    "ADDED, MODIFIED (spec), MODIFIED (status), DELETED from a list resourceVersion": Hook(
        during=_lifecycle
    ),
    "finalizer deletion: MODIFIED with deletionTimestamp, then DELETED": Hook(during=_guarded),
    "label selector: leaving the selector gives DELETED, entering gives ADDED": Hook(
        before=_version_312, during=_relabelled
    ),
    "field selector metadata.name": Hook(before=made("t1", widget("other")), during=_resized),
    "allowWatchBookmarks with timeoutSeconds=4: a BOOKMARK shortly before the timeout": Hook(
        during=made("t1", widget("bm"))
    ),
    "watch while its CRD is deleted": Hook(before=_defined, during=_undefined),
}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session(controllers=True) as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
