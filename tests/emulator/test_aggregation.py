"""The aggregator beyond its recording: conditions over time, discovery, streams, ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from emulator.clock import ManualClock
from gpustack_delivery.httpd import Request, Response
from tests.emulator.access_rig import certificate
from tests.emulator.aggregation_rig import (
    RESOURCES,
    ROOT,
    SERVICES,
    AggregatedSession,
    aggregated,
    answered,
)
from tests.emulator.replay import Json
from tests.emulator.rig import DEFINITIONS, definition

NAME = "v1.agg.example.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GIZMOS = f"{ROOT}/namespaces/t1/gizmos"


@pytest.fixture
def opened() -> Iterator[AggregatedSession]:
    """Return a session with a backend that no APIService names yet."""
    with aggregated() as session:
        yield session


def _core(opened: AggregatedSession, plural: str, document: Json) -> None:
    opened.make("POST", f"/api/v1/namespaces/default/{plural}", document)


def _condition(opened: AggregatedSession) -> tuple[str, str, str]:
    opened.rest()
    found = _get(opened, f"{SERVICES}/{NAME}")
    (condition,) = found["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


def _get(opened: AggregatedSession, path: str, accept: str = "application/json") -> Json:
    response = opened.send(
        "GET", path, headers=certificate("admin", "system:masters") | {"Accept": accept}
    )
    assert response.status == 200, response.body
    assert isinstance(response.body, bytes)
    found: Json = json.loads(response.body)
    return found


def _status_of(opened: AggregatedSession, method: str, path: str) -> int:
    return opened.send(method, path, headers=certificate("admin", "system:masters")).status


def _advance(opened: AggregatedSession, seconds: float) -> None:
    assert isinstance(opened.clock, ManualClock)
    opened.clock.advance(seconds)


def test_each_thing_that_is_missing_has_its_reason(opened: AggregatedSession) -> None:
    """From no Service to a server that answers, the condition names what is wrong."""
    opened.make("POST", SERVICES, opened.service())
    assert _condition(opened)[1] == "ServiceNotFound"
    body = {"metadata": {"name": "agg"}, "spec": {"ports": [{"port": 1, "protocol": "TCP"}]}}
    _core(opened, "services", body)
    assert _condition(opened)[1] == "ServicePortError"
    port = opened.backend.server.port
    ports = [{"port": port, "protocol": "TCP", "name": "https"}]
    path = "/api/v1/namespaces/default/services/agg"
    opened.make("PATCH", path, {"spec": {"ports": ports}}, "application/merge-patch+json")
    text = 'cannot find endpoints for service/agg in "default"'
    assert _condition(opened) == ("False", "EndpointsNotFound", text)
    address = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port, "name": "other"}]}
    _core(opened, "endpoints", {"metadata": {"name": "agg"}, "subsets": [address]})
    assert _condition(opened)[1] == "MissingEndpoints"
    address["ports"] = ports
    path = "/api/v1/namespaces/default/endpoints/agg"
    opened.make("PATCH", path, {"subsets": [address]}, "application/merge-patch+json")
    assert _condition(opened) == ("True", "Passed", "all checks passed")


def test_a_route_is_noticed_at_once(opened: AggregatedSession) -> None:
    """A route stands in for endpoints, without time passing; when it goes, so does the server."""
    opened.serve()
    assert _condition(opened)[0] == "True"
    del opened.webhooks.routes["default", "agg"]
    assert _condition(opened)[:2] == ("False", "EndpointsNotFound")
    assert _status_of(opened, "GET", GIZMOS) == 503


def test_a_server_that_fails_is_found_out_and_taken_back(opened: AggregatedSession) -> None:
    """Half a minute after it began to fail it is unavailable; it is tried again by itself."""
    opened.serve()
    opened.backend.answer = lambda _: answered(500, {})
    assert _condition(opened)[0] == "True"
    _advance(opened, 30)
    status, reason, message = _condition(opened)
    assert (status, reason) == ("False", "FailedDiscoveryCheck")
    url = f"https://127.0.0.1:{opened.backend.server.port}{ROOT}"
    assert message == f"failing or missing response from {url}: bad status from {url}: 500"
    opened.backend.answer = lambda _: None
    _advance(opened, 1)
    assert _condition(opened)[0] == "True"


def test_discovery_is_one(opened: AggregatedSession) -> None:
    """Group list, group and aggregated discovery tell of both servers, in their order."""
    custom = definition("gadgets", "Gadget")
    custom["metadata"]["name"] = "gadgets.agg.example.io"
    custom["spec"]["group"] = "agg.example.io"
    custom["spec"]["versions"][0]["name"] = "v2alpha1"
    opened.make("POST", DEFINITIONS, custom)
    opened.backend.resources = [
        *RESOURCES,
        {"name": "gizmos/progress", "singularName": "", "namespaced": True, "kind": "Progress",
         "verbs": ["get"]},
    ]  # fmt: skip
    opened.serve()
    group = _get(opened, "/apis/agg.example.io")
    assert [one["version"] for one in group["versions"]] == ["v2alpha1", "v1"]  # 100 before 15
    names = [one["name"] for one in _get(opened, "/apis")["groups"]]
    assert names[-2:] == ["agg.example.io", "rig.example.io"]
    item = _discovered(opened)
    (v1,) = [one for one in item["versions"] if one["version"] == "v1"]
    assert v1 == {
        "version": "v1",
        "freshness": "Current",
        "resources": [
            {
                "resource": "gizmos",
                "responseKind": {"group": "agg.example.io", "version": "v1", "kind": "Gizmo"},
                "scope": "Namespaced",
                "singularResource": "gizmo",
                "verbs": ["get", "list"],
                "subresources": [
                    {
                        "subresource": "progress",
                        "responseKind": {
                            "group": "agg.example.io", "version": "v1", "kind": "Progress",
                        },
                        "verbs": ["get"],
                    }
                ],
            }
        ],
    }  # fmt: skip
    del opened.webhooks.routes["default", "agg"]
    opened.rest()
    (v1,) = [one for one in _discovered(opened)["versions"] if one["version"] == "v1"]
    assert v1 == {"version": "v1", "freshness": "Stale", "resources": []}


def _discovered(opened: AggregatedSession) -> Json:
    items = _get(opened, "/apis", AGGREGATED)["items"]
    found: Json = next(one for one in items if one["metadata"]["name"] == "agg.example.io")
    return found


class _Endless:
    """A stream that sends one line and then waits until it is closed."""

    def __init__(self, session: AggregatedSession) -> None:
        self._lines = [b'{"type": "ADDED"}\n']
        self._session = session
        self.closed = False

    def __iter__(self) -> _Endless:
        return self

    def __next__(self) -> bytes:
        if self._lines:
            return self._lines.pop()
        with self._session.gate:
            while not self.closed:
                self._session.gate.wait()
        raise StopIteration

    def close(self) -> None:
        with self._session.gate:
            self.closed = True
            self._session.gate.notify_all()


def test_a_watch_streams_and_ends_with_its_client(opened: AggregatedSession) -> None:
    """An event comes through while the watch is open; closing it here ends it there."""
    opened.serve()
    stream = _Endless(opened)

    def answer(request: Request) -> Response | None:
        if "watch=true" not in request.query:
            return None
        return Response(200, [("Content-Type", "application/json")], stream, live=True)

    opened.backend.answer = answer
    response = opened.send(
        "GET", f"{GIZMOS}?watch=true", headers=certificate("admin", "system:masters")
    )
    body: Any = response.body
    assert response.live
    assert next(body) == b'{"type": "ADDED"}\n'
    body.close()
    with pytest.raises(StopIteration):
        next(body)
    with opened.gate:
        assert opened.gate.wait_for(lambda: stream.closed, timeout=30)


def test_definitions_bring_and_take_their_apiservices(opened: AggregatedSession) -> None:
    """A CRD's version is listed as Local while it is served."""
    opened.make("POST", DEFINITIONS, definition("gadgets", "Gadget"))
    opened.rest()
    found = _get(opened, f"{SERVICES}/v1.rig.example.io")
    assert found["status"]["conditions"][0]["reason"] == "Local"
    for name in ("gadgets", "widgets"):
        opened.make("DELETE", f"{DEFINITIONS}/{name}.rig.example.io")
    opened.rest()
    assert _status_of(opened, "GET", f"{SERVICES}/v1.rig.example.io") == 404
    assert _get(opened, f"{SERVICES}/v1.")["metadata"]["labels"] == {
        "kube-aggregator.kubernetes.io/automanaged": "onstart"
    }


def test_a_server_that_cannot_be_asked_keeps_namespaces_from_ending(
    opened: AggregatedSession,
) -> None:
    """The namespace says which group is stale, and goes when that APIService has gone."""
    opened.make("POST", SERVICES, opened.service())
    opened.rest()
    opened.make("DELETE", "/api/v1/namespaces/t2")
    opened.api.settle()
    conditions = _get(opened, "/api/v1/namespaces/t2")["status"]["conditions"]
    (failing,) = [one for one in conditions if one["status"] == "True"]
    assert (failing["type"], failing["reason"], failing["message"]) == (
        "NamespaceDeletionDiscoveryFailure",
        "DiscoveryFailed",
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of "
        "server APIs: agg.example.io/v1: stale GroupVersion discovery: agg.example.io/v1",
    )
    opened.make("DELETE", f"{SERVICES}/{NAME}")
    _advance(opened, 5)
    assert _status_of(opened, "GET", "/api/v1/namespaces/t2") == 404


def test_what_another_server_keeps_in_a_namespace_is_deleted_first(
    opened: AggregatedSession,
) -> None:
    """Its objects are deleted one by one; the namespace ends when the list is empty."""
    kept = {"one": True, "two": True}  # name to whether its deletion is refused
    opened.backend.resources = [{**RESOURCES[0], "verbs": ["get", "list", "delete"]}]

    def answer(request: Request) -> Response | None:
        name = request.path.removeprefix(f"{ROOT}/namespaces/t2/gizmos").removeprefix("/")
        if request.method == "DELETE":
            if kept[name]:
                return answered(403, {})
            del kept[name]
            return answered(200, {})
        items = [{"metadata": {"name": one}} for one in kept]
        return answered(200, {"items": items}) if request.path.endswith("gizmos") else None

    opened.backend.answer = answer
    opened.serve()
    opened.make("DELETE", "/api/v1/namespaces/t2")
    opened.api.settle()
    conditions = _get(opened, "/api/v1/namespaces/t2")["status"]["conditions"]
    (remaining,) = [one["message"] for one in conditions if one["status"] == "True"]
    expected = "Some resources are remaining: gizmos.agg.example.io has 2 resource instances"
    assert remaining == expected
    kept.update(one=False, two=False)
    _advance(opened, 5)
    assert kept == {}
    assert _status_of(opened, "GET", "/api/v1/namespaces/t2") == 404


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"version": "v2"}, 'metadata.name: Invalid value: "v1.agg.example.io": must be `spec.'),
        ({"groupPriorityMinimum": 0}, "spec.groupPriorityMinimum: Invalid value: 0"),
        ({"versionPriority": 1001}, "spec.versionPriority: Invalid value: 1001"),
        ({"insecureSkipTLSVerify": True}, "spec.insecureSkipTLSVerify: Invalid value: true"),
        ({"service": {"namespace": "default"}}, "spec.service.name: Required value"),
        ({"service": None}, "spec.caBundle: Invalid value"),
    ],
)
def test_an_apiservice_that_cannot_be(opened: AggregatedSession, change: Json, cause: str) -> None:
    """A wrong APIService is refused with its field."""
    document = opened.service()
    document["spec"] |= change
    response = opened.send("POST", SERVICES, document, certificate("admin", "system:masters"))
    assert response.status == 422
    assert isinstance(response.body, bytes)
    assert cause in json.loads(response.body)["message"]


def test_the_front_proxy_is_published(opened: AggregatedSession) -> None:
    """A server behind finds out whom to trust from a ConfigMap that a Role lets it read."""
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = _get(opened, path)["data"]
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]
    assert data["requestheader-client-ca-file"].startswith("-----BEGIN CERTIFICATE-----")
    root = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system"
    role = "extension-apiserver-authentication-reader"
    assert _status_of(opened, "GET", f"{root}/roles/{role}") == 200
