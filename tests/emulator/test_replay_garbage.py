"""Owner references, terminating namespaces and CRDs, as the real controllers dealt with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import DEFINITIONS, MERGE, WIDGETS, definition, session, widget

RECORDING = "40-garbage-collection"
MAPS = "/api/v1/namespaces/{}/configmaps"
GONES = "/apis/rig.example.io/v1/namespaces/t1/gones"


def _owner(opened: Session, name: str, **metadata: Any) -> dict[str, Any]:
    """Make a widget, and return a reference to it."""
    made = opened.make("POST", WIDGETS.format("t1"), widget(name, **metadata))
    return {
        "apiVersion": "rig.example.io/v1", "kind": "Widget", "name": name,
        "uid": made["metadata"]["uid"],
    }  # fmt: skip


def _dependent(
    opened: Session, name: str, *owners: Any, namespace: str = "t1", **rest: Any
) -> None:
    metadata = {"name": name, "ownerReferences": list(owners), **rest}
    opened.make("POST", MAPS.format(namespace), {"metadata": metadata})


def _release(opened: Session, path: str) -> None:
    opened.make("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)


def _settled(opened: Session) -> None:
    opened.api.settle()


def _gone(opened: Session, path: str) -> bool:
    opened.api.settle()
    return opened.send("GET", path).status == 404


def _soon(key: str, path: str, act: Callable[[Session], None] | None = None) -> Hook:
    """Return a hook that acts, and says that a path was gone in no time."""

    def observe(opened: Session) -> dict[str, Any]:
        if act:
            act(opened)
        assert _gone(opened, path)
        return {key: 0.0}

    return Hook(observe=observe)


def _background(opened: Session) -> None:
    _dependent(opened, "c1", _owner(opened, "o1"))


def _foreground(opened: Session) -> None:
    owner = _owner(opened, "o2")
    hold = ["rig.example.io/hold"]
    _dependent(opened, "c2", {**owner, "blockOwnerDeletion": True}, finalizers=hold)
    _dependent(opened, "c3", owner)


def _orphaned(opened: Session) -> None:
    _dependent(opened, "c4", _owner(opened, "o3"))


def _nobody(opened: Session) -> None:
    owner = _owner(opened, "o5")
    _dependent(opened, "c5", {**owner, "name": "nobody", "uid": "0" * 8 + owner["uid"][8:]})


def _namesake(opened: Session) -> None:
    owner = _owner(opened, "o6")
    _dependent(opened, "c6", {**owner, "uid": "0" * 8 + owner["uid"][8:]})


def _abroad(opened: Session) -> dict[str, Any]:
    owner = _owner(opened, "o7")
    opened.api.settle()
    _dependent(opened, "c7", owner, namespace="t2")
    assert _gone(opened, MAPS.format("t2") + "/c7")
    events = opened.make("GET", "/api/v1/namespaces/t2/events")["items"]
    shown = [{k: v for k, v in event.items() if k != "metadata"} for event in events]
    # The recorder noted the two uids before we could bind them.
    opened.bindings.uid("<uid-15>", shown[0]["involvedObject"]["uid"])
    opened.bindings.uid("<uid-16>", owner["uid"])
    return {"secondsUntilDeleted": 0.0, "events": shown}


def _two_owners(opened: Session) -> None:
    first, second = _owner(opened, "o8a"), _owner(opened, "o8b")
    opened.bindings.uid("<uid-19>", second["uid"])  # recorded as a key before it is a value
    _dependent(opened, "c8", first, second)
    opened.make("DELETE", WIDGETS.format("t1") + "/o8a")
    opened.api.settle()


def _second_owner(opened: Session) -> None:
    opened.make("DELETE", WIDGETS.format("t1") + "/o8b")


def _terminating_owner(opened: Session) -> dict[str, Any]:
    _dependent(opened, "c9", _owner(opened, "o9", finalizers=["rig.example.io/guard"]))
    opened.make("DELETE", WIDGETS.format("t1") + "/o9")
    return {"dependentStillThere": not _gone(opened, MAPS.format("t1") + "/c9")}


def _node_gone(opened: Session) -> None:
    node = opened.make("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    reference = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node["metadata"]["uid"]}
    opened.make("POST", WIDGETS.format("t1"), widget("on-n", ownerReferences=[reference]))
    opened.make("DELETE", "/api/v1/nodes/n")


def _namespace(opened: Session) -> None:
    opened.make("POST", "/api/v1/namespaces", {"metadata": {"name": "nsdel"}})


def _held(opened: Session) -> None:
    held = widget("held", finalizers=["rig.example.io/guard"])
    opened.make("POST", WIDGETS.format("nsdel"), held)


def _defined(opened: Session) -> None:
    opened.make("POST", DEFINITIONS, definition("gones", "Gone"))
    metadata = {"name": "g", "finalizers": ["rig.example.io/guard"]}
    body = {"apiVersion": "rig.example.io/v1", "kind": "Gone", "metadata": metadata}
    opened.make("POST", GONES, body)


HOOKS = {
    "delete owner, default policy (background)": Hook(before=_background),
    "dependent removed": _soon("secondsAfterOwnerDelete", MAPS.format("t1") + "/c1"),
    "delete owner, Foreground": Hook(before=_foreground),
    "owner waits (foregroundDeletion) while a blocking dependent has a finalizer": Hook(
        before=_settled
    ),
    "non-blocking dependent": Hook(
        observe=lambda opened: {"gone": _gone(opened, MAPS.format("t1") + "/c3")}
    ),
    "owner removed after the dependent is gone": _soon(
        "seconds",
        WIDGETS.format("t1") + "/o2",
        lambda opened: _release(opened, MAPS.format("t1") + "/c2"),
    ),
    "delete owner, Orphan": Hook(before=_orphaned),
    "orphaned dependent (ownerReferences removed)": Hook(before=_settled),
    "dependent of an owner that does not exist": _soon(
        "secondsUntilDeleted", MAPS.format("t1") + "/c5", _nobody
    ),
    "dependent whose owner name exists with another uid": _soon(
        "secondsUntilDeleted", MAPS.format("t1") + "/c6", _namesake
    ),
    "namespaced owner in another namespace": Hook(observe=_abroad),
    "two owners, one deleted: dependent stays, the dangling reference is removed": Hook(
        before=_two_owners
    ),
    "both deleted": _soon("secondsUntilDeleted", MAPS.format("t1") + "/c8", _second_owner),
    "owner terminating behind its own finalizer (background): dependent 4 s later": Hook(
        observe=_terminating_owner
    ),
    "after the owner is gone": _soon(
        "secondsUntilDeleted",
        MAPS.format("t1") + "/c9",
        lambda opened: _release(opened, WIDGETS.format("t1") + "/o9"),
    ),
    "custom resource owned by a Node that is deleted": _soon(
        "secondsUntilDeleted", WIDGETS.format("t1") + "/on-n", _node_gone
    ),
    "new namespace: objects made by controllers (ConfigMap kube-root-ca.crt)": Hook(
        before=_namespace
    ),
    "delete namespace": Hook(before=_held),
    "namespace stuck on a finalizer: conditions": Hook(before=_settled),
    "namespace removed after the last finalizer": _soon(
        "seconds",
        "/api/v1/namespaces/nsdel",
        lambda opened: _release(opened, WIDGETS.format("nsdel") + "/held"),
    ),
    "delete a CRD that has an instance with a finalizer": Hook(before=_defined),
    "CRD terminating": Hook(before=_settled),
    "CRD removed after the last instance": _soon(
        "seconds",
        f"{DEFINITIONS}/gones.rig.example.io",
        lambda opened: _release(opened, f"{GONES}/g"),
    ),
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
