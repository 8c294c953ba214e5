"""ValidatingAdmissionPolicies, as recorded on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.access_rig import SecuredSession, allow_agent, core, pod, secured
from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import WIDGETS, widget

RECORDING = "24-validating-admission-policy"


def _agent(opened: Session) -> None:
    """Make the widget that is written to, and the account that writes from a Pod on node-a."""
    assert isinstance(opened, SecuredSession)
    core(opened, "serviceaccounts", {"metadata": {"name": "agent"}})
    core(opened, "nodes", {"metadata": {"name": "node-a"}}, namespace="")
    core(opened, "pods", pod("agent-a", "agent", "node-a"))
    allow_agent(opened)
    opened.make("POST", WIDGETS.format("t1"), widget("a"))
    opened.carry(opened.security.account_token("t1", "agent", pod="agent-a"))


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with secured() as opened:
        yield opened.play(RECORDING, {"allowed: same node": Hook(before=_agent)})


@pytest.mark.parametrize("name", cases(RECORDING))
def test_exchange_as_recorded(played: Session, name: str) -> None:
    """One request has the recorded answer."""
    played.check(name)
