"""APIServices, and what a server behind one is sent, as recorded on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.access_rig import RBAC, allow_agent, core, pod
from tests.emulator.aggregation_rig import ROOT, SERVICES, AggregatedSession, aggregated
from tests.emulator.replay import Hook, Session, cases

RECORDING = "25-apiservice-aggregation"


def _aggregated(opened: Session) -> AggregatedSession:
    assert isinstance(opened, AggregatedSession)
    return opened


def _checked(opened: Session) -> None:
    _aggregated(opened).rest()


def _agent(opened: Session) -> None:
    """Make the recordings' account, its Pod, and a role that lets it list gizmos."""
    session = _aggregated(opened)
    core(opened, "serviceaccounts", {"metadata": {"name": "agent"}})
    core(opened, "nodes", {"metadata": {"name": "node-a"}}, namespace="")
    core(opened, "pods", pod("agent-a", "agent", "node-a"))
    allow_agent(opened)
    path = f"/apis/{RBAC}/v1/clusterroles/rig-agent"
    rules = [{"apiGroups": ["agg.example.io"], "resources": ["gizmos"], "verbs": ["list"]}]
    opened.make("PATCH", path, {"rules": rules}, "application/merge-patch+json")
    session.carry(session.security.account_token("t1", "agent", pod="agent-a"))


def _elsewhere(opened: Session) -> None:
    """Write something that the recording does not look at: the version moves on."""
    core(
        opened, "configmaps", {"metadata": {"generateName": "elsewhere-"}}, namespace="kube-public"
    )


def _distrusted(opened: Session) -> None:
    """Put an APIService in its place that trusts another authority."""
    session = _aggregated(opened)
    opened.make("DELETE", f"{SERVICES}/v1.agg.example.io")
    opened.make("POST", SERVICES, session.service(trusted=False))
    session.rest()


HOOKS = {
    "APIService conditions": Hook(before=_checked),
    "APIService conditions once the service exists": Hook(before=_checked),
    "proxied list with a pod-bound token (X-Remote-Extra headers)": Hook(before=_agent),
    "APIService with a wrong caBundle: conditions": Hook(before=_distrusted),
    "APIService Table": Hook(before=_elsewhere),
}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with aggregated() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_exchange_as_recorded(played: Session, name: str) -> None:
    """One request has the recorded answer, and the server behind got the recorded request."""
    played.check(name)


def test_the_aggregated_server_gets_no_credentials() -> None:
    """What a client sends to prove who it is, or to pose as somebody, ends at the front."""
    with aggregated() as opened:
        opened.make("POST", SERVICES, opened.service())
        external = {"type": "ExternalName", "externalName": "localhost"}
        opened.make(
            "POST",
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "agg"}, "spec": external},
        )
        opened.rest()
        opened.carry(opened.security.user_token("admin"))
        headers = {
            **opened.callers["bearer token"],
            "X-Remote-User": "forged",
            "X-Remote-Group": "system:masters",
            "X-Remote-Extra-Scopes": "all",
            "Impersonate-User": "alice",
            "Impersonate-Group": "system:masters",
        }
        response = opened.send("GET", f"{ROOT}/namespaces/t1/gizmos", headers=headers)
        assert response.status == 200
        (request,) = opened.backend.requests
        names = {name.lower() for name, _ in request.headers.items()}
        assert not names & {"authorization", "impersonate-user", "impersonate-group"}
        assert request.headers.get_all("X-Remote-User") == ["alice"]
        assert request.headers.get("X-Remote-Extra-Scopes") is None
        certificate = request.client_certificate
        assert certificate is not None
        assert certificate["subject"] == ((("commonName", "front-proxy-client"),),)
