"""The real kubectl against an API that another server behind the emulator serves."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Cluster
from gpustack_delivery.httpd import Request, Response
from gpustack_delivery.httpd.certificates import Authority
from tests.emulator.aggregation_rig import Backend, answered
from tests.emulator.kubectl_runner import Kubectl

pytestmark = pytest.mark.needs("kubectl")
GIZMO = {
    "apiVersion": "agg.example.io/v1",
    "kind": "Gizmo",
    "metadata": {"name": "g1", "namespace": "default"},
}


@pytest.fixture
def backend() -> Iterator[Backend]:
    """A server that has one gizmo."""
    built = Backend(Authority("agg-ca"), ["agg.default.svc"], None)
    built.answer = _answer
    built.server.start()
    yield built
    built.server.stop()


def _answer(request: Request) -> Response | None:
    if request.path.endswith("/gizmos/g1"):
        return answered(200, GIZMO)
    if request.path.endswith("/gizmos"):
        listed = {"apiVersion": "agg.example.io/v1", "kind": "GizmoList", "metadata": {}}
        return answered(200, {**listed, "items": [GIZMO]})
    return None


def _document(backend: Backend) -> dict[str, object]:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.agg.example.io"},
        "spec": {
            "group": "agg.example.io",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": {"namespace": "default", "name": "agg"},
            "caBundle": base64.b64encode(backend.authority.certificate_pem.encode()).decode(),
        },
    }


def test_kubectl_finds_and_reads_what_is_served_elsewhere(backend: Backend, tmp_path: Path) -> None:
    """Names resolve by discovery, objects come through, and an outage is said as one."""
    with Cluster(kubernetes="1.32") as cluster:
        kubectl = Kubectl(cluster.kubeconfig(), tmp_path)
        port = {"port": 443, "protocol": "TCP"}
        service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [port]}}
        cluster.client.create({**service, "metadata": {"name": "agg", "namespace": "default"}})
        cluster.webhooks.routes["default", "agg"] = ("127.0.0.1", backend.server.port)
        cluster.client.create(_document(backend))
        kubectl.run("wait apiservice/v1.agg.example.io --for=condition=Available --timeout=30s")
        assert "gizmos" in kubectl.run("api-resources --api-group=agg.example.io")
        assert kubectl.run("get gizmos -o name") == "gizmo.agg.example.io/g1\n"
        assert kubectl.object("get gizmo g1") == GIZMO
        rows = kubectl.run("get apiservices").splitlines()
        assert any(row.split()[:3] == ["v1.agg.example.io", "default/agg", "True"] for row in rows)
        cluster.faults.cut_service("default", "agg")
        kubectl.run(
            "wait apiservice/v1.agg.example.io --for=condition=Available=False --timeout=30s"
        )
        assert "unable to handle the request" in kubectl.refused("get gizmos.v1.agg.example.io")
