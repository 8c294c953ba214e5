"""Label and field selectors, as a real server took them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import WIDGETS, session, widget

RECORDING = "09-selectors"


def _objects(opened: Session) -> None:
    path = WIDGETS.format("t1")
    opened.make("POST", path, widget("s0", labels={"app": "x", "tier": "a"}))
    opened.make("POST", path, widget("s1", {"size": 1, "mode": "Exclusive"}, labels={"app": "y"}))
    opened.make("POST", path, widget("s2"))
    for name, node in (("pa", "node-a"), ("pb", "node-b"), ("pc", "")):
        spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
        opened.make(
            "POST", "/api/v1/namespaces/t2/pods", {"metadata": {"name": name}, "spec": spec}
        )


HOOKS = {"labelSelector app=x": Hook(before=_objects)}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
