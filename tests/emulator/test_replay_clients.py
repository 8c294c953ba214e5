"""What kubectl, Helm and kubelet were seen to ask is answered with the recorded status, in order.

The recording holds methods, paths and statuses. What the clients wrote is filled in here, as they
write it: a session in which a read does not find what the write before it left would differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpustack_delivery.httpd import Response
from tests.emulator.access_rig import ADMIN, SecuredSession, secured
from tests.emulator.replay import Json, cases, exchanges
from tests.emulator.rig import WIDGETS, widget
from tests.emulator.test_k8s_wire import TOKEN_REQUEST, WHO_AM_I, can_i
from tests.emulator.test_replay_discovery import unless_changed

RECORDING = "45-client-request-patterns"
WIDGET = f"{WIDGETS.format('t1')}/k1"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBELET = "kubelet: requests in its first 30 s"
_FROM_COMMAND = re.compile(r" -p (\{.*\})$")
# A path of OpenAPI carries a hash of its content, and our content is not theirs.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
_HASH = re.compile(r"hash=[0-9A-F]+")

Body = Callable[[SecuredSession], Any]


_OWN = widget("k1", {"size": 5}, namespace="t1")


def _last_applied(session: SecuredSession) -> Json:
    """Return kubectl's apply of what the server keeps of the last one."""
    kept = session.make("GET", WIDGET)["metadata"]["annotations"][_APPLIED]
    return widget("k1", namespace="t1", annotations={_APPLIED: kept}) | {"spec": {}}


def _adopted(session: SecuredSession) -> list[Json]:
    """Return kubectl's patch that makes its client-side fields server-side ones."""
    metadata = session.make("GET", WIDGET)["metadata"]
    version = metadata["resourceVersion"]
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": metadata["managedFields"]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]


def _release(version: str, status: str) -> Json:
    labels = {"name": "r1", "owner": "helm", "status": status, "version": version[1:]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"sh.helm.release.v1.r1.{version}", "labels": labels},
        "type": "helm.sh/release.v1",
        "data": {"release": "SDRzSQ=="},
    }


_MAP: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "r1-cm"},
    "data": {"n": "9"},
}
_ANNOTATED = {"metadata": {"annotations": {_APPLIED: "{}\n"}}}
_BACKGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
_SERVER_SIDE = "kubectl apply --server-side --force-conflicts -f FILE.yaml"
WRITES: dict[str, list[Any]] = {
    "kubectl create -f FILE.yaml": [widget("k1", namespace="t1")],
    "kubectl apply -f FILE.yaml": [_ANNOTATED],
    "kubectl apply -f FILE.yaml (2)": [{"spec": {"size": 3}}],
    "kubectl diff -f FILE.yaml": [{"spec": {"size": 4}}],
    _SERVER_SIDE: [_OWN, _last_applied, _adopted, _OWN],
    "kubectl label widget k1 -n t1 a=b": [{"metadata": {"labels": {"a": "b"}}}],
    "kubectl annotate widget k1 -n t1 a=b": [{"metadata": {"annotations": {"a": "b"}}}],
    "kubectl scale widget k1 -n t1 --replicas=2": [{"spec": {"replicas": 2}}],
    "kubectl auth can-i update widgets/status -n t1": [can_i("update", "widgets", "status")],
    "kubectl auth whoami": [WHO_AM_I],
    "kubectl create token default -n t1": [TOKEN_REQUEST],
    "kubectl delete widget k1 -n t1 --wait=true": [_BACKGROUND],
}
_HELM: dict[str, list[Any]] = {
    "install r1 CHART": [_release("v1", "pending-install"), _MAP, _release("v1", "deployed")],
    "upgrade r1 CHART --set n=9": [
        _release("v2", "pending-upgrade"),
        _MAP,
        _release("v1", "superseded"),
        _release("v2", "deployed"),
    ],
    "uninstall r1": [_release("v2", "uninstalling"), _BACKGROUND, None, None],
}
for _command, _bodies in _HELM.items():
    WRITES[f"helm {_command}"] = WRITES[f"helm (v3.17.2) {_command}"] = _bodies


def _furnish(session: SecuredSession) -> None:
    """Make what kubelet found: its node, its Pods, and the events that it counts up."""
    session.make("POST", "/api/v1/nodes", {"metadata": {"name": "node-a"}})
    session.make(
        "POST",
        "/apis/storage.k8s.io/v1/csinodes",
        {"metadata": {"name": "node-a"}, "spec": {"drivers": []}},
    )
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    session.make("POST", leases, {"metadata": {"name": "node-a"}})
    for name, namespace in (("pc", "t2"), ("pa", "t2"), ("npv", "t1"), ("agent-a", "t1")):
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        session.make("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    session.make("POST", "/api/v1/namespaces/t1/serviceaccounts", {"metadata": {"name": "agent"}})
    for request in _BY_NAME[_kubelets()]["requests"]:
        found = re.fullmatch(r"(/api/v1/namespaces/(\w+)/events)/(\S+)", request["path"])
        if found:
            session.make("POST", found[1], _event(found[2], name=found[3]))


def _event(namespace: str, **metadata: str) -> Json:
    about = {"kind": "Pod", "namespace": namespace, "name": "pc"}
    named = metadata or {"generateName": "pc."}
    return {"metadata": named, "involvedObject": about, "reason": "Pulled", "type": "Normal"}


_BY_NAME = {exchange["name"]: exchange for exchange in exchanges(RECORDING)}


def _kubelets() -> str:
    return next(str(name) for name in _BY_NAME if name.startswith(_KUBELET))


def _written_by_kubelet(session: SecuredSession, request: Json) -> Any:
    path = request["path"].partition("?")[0]
    if path == "/api/v1/nodes":
        return {"metadata": {"name": "node-a"}}
    if path.endswith("/token"):
        return {"spec": {"audiences": []}}
    if "/leases/" in path:
        return session.make("GET", path)
    if request["method"] == "POST":
        return _event(path.split("/")[4])
    if "/events/" in path:
        return {"count": 2}
    return {"metadata": {"uid": session.make("GET", path)["metadata"]["uid"]}, "status": {}}


class _Replay:
    """The recorded sessions on one server: what was answered, by exchange."""

    def __init__(self, session: SecuredSession) -> None:
        self._session = session
        self.found = {name: self._exchange(name) for name in _BY_NAME}

    def _exchange(self, name: str) -> list[str]:
        if name == _kubelets():
            _furnish(self._session)
        writes = iter(self._writes(name))
        differing = []
        for request in _BY_NAME[name]["requests"]:
            for _ in range(request.get("count", 1)):
                body = None
                if request["method"] != "GET":
                    body = self._body(name, request, writes)
                status, text = self._status(request, body)
                if status != request["code"]:
                    differing.append(f"{request}: {status} {text[:200]!r}")
        if next(writes, None) is not None:
            differing.append("the recording has fewer writes than the test")
        return differing

    def _writes(self, name: str) -> list[Any]:
        given = _FROM_COMMAND.search(name)
        if given is not None:
            return [json.loads(given[1].replace("<timestamp>", "2026-01-01T00:00:00Z"))]
        return WRITES.get(name, [])

    def _body(self, name: str, request: Json, writes: Iterator[Any]) -> Any:
        if name == _kubelets():
            return (
                None
                if request["method"] == "DELETE"
                else _written_by_kubelet(self._session, request)
            )
        body = next(writes, None)
        return body(self._session) if callable(body) else body

    def _status(self, request: Json, body: Any) -> tuple[int, bytes]:
        headers = dict(ADMIN)
        for header, key in (("Accept", "accept"), ("Content-Type", "contentType")):
            if key in request:
                headers[header] = request[key]
        if request["method"] == "PATCH" and "contentType" not in request:
            headers["Content-Type"] = _patch_type(request["path"])
        path = _HASH.sub("", request["path"])
        if request["code"] == 304:  # a client that has it already, as its cache says
            if not path.startswith("/openapi"):
                headers["Accept"] = AGGREGATED
            known = self._session.send(request["method"], path, body, headers)
            headers |= unless_changed(known)
        response = self._session.send(request["method"], path, body, headers)
        return response.status, _read(response)


def _patch_type(path: str) -> str:
    """Return what a recording from the audit log lacks: Helm 4 applies, the others merge."""
    if "fieldManager=helm&" in path:
        return "application/apply-patch+yaml"
    return "application/strategic-merge-patch+json"


def _read(response: Response) -> bytes:
    if isinstance(response.body, bytes):
        return response.body
    body: Any = response.body
    body.close()
    return b""


@pytest.fixture(scope="module")
def replay() -> Iterator[_Replay]:
    """Play every session, one after another."""
    with secured() as session:
        yield _Replay(session)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_requests_of_real_clients_are_answered_as_recorded(replay: _Replay, name: str) -> None:
    """Each read and write of a session has the status that the real server gave it."""
    assert not replay.found[name], "\n".join(replay.found[name])


def test_every_write_belongs_to_a_session() -> None:
    """The bodies above are those of recorded commands."""
    assert WRITES.keys() <= _BY_NAME.keys()
