"""The bound on live readings, with plugins that answer on the wire."""

from __future__ import annotations

import json
import threading
from functools import partial

import pytest

from emulator.contracts import Json
from gpustack_delivery import embedded
from gpustack_delivery.adapters.plugin_port import PATH
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import self_signed, server_context
from gpustack_delivery.worker.public_api import progress
from spec_tests.observe import ApiAs
from tests.unit.fakes import eventually
from tests.unit.installed.installation import API, NAMESPACE, PUBLIC, Installation, installed

NODES = [f"far-{number:02d}" for number in range(70)]
BOUND = 64


class Plugins:
    """One port that stands for every node's plugin; counts what it is asked."""

    def __init__(self, digest: str) -> None:
        entry = {"digest": digest, "downloadedBytes": 20, "sizeBytes": 100}
        self._answer = json.dumps({"downloads": [entry]}).encode()
        self._lock = threading.Lock()
        self.asked = 0
        tls = server_context(self_signed(["127.0.0.1"]))
        self.server = Server(self._handle, name="plugins", tls=tls)

    def _handle(self, request: Request) -> Response:
        assert request.path == PATH
        with self._lock:
            self.asked += 1
        return Response(200, [("Content-Type", "application/json")], self._answer)


def add_node(world: Installation, name: str, port: int) -> None:
    """Add a node whose plugin runs at a port, as far as the cluster's objects tell."""
    client = world.cluster.client
    meta: Json = {"metadata": {"name": name}}
    client.create({"apiVersion": "v1", "kind": "Node", **meta})
    drivers = {"drivers": [{"name": "model.csi.gpustack.ai", "nodeID": name}]}
    client.create({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "spec": drivers, **meta})
    labels = {"app.kubernetes.io/component": "model-manager"}
    container = {"name": "main", "image": "x", "ports": [{"name": "https", "containerPort": port}]}
    pod = client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"plugin-{name}", "namespace": NAMESPACE, "labels": labels},
            "spec": {"nodeName": name, "containers": [container]},
        }
    )
    ready = {"type": "Ready", "status": "True"}
    client.update_status({**pod, "status": {"podIP": "127.0.0.1", "conditions": [ready]}})


def report(world: Installation, name: str, digest: str) -> bool:
    """Write that a node downloads, once the worker has made its object."""
    found = next(
        (
            one
            for one in world.cluster.client.list(API, "NodeModelStore")
            if one["metadata"]["name"] == name
        ),
        None,
    )
    if found is None:
        return False
    entry = {"digest": digest, "state": "Downloading", "sizeBytes": 100, "downloadedBytes": 10}
    world.cluster.client.update_status({**found, "status": {"models": [entry]}})
    return True


def test_at_most_64_plugins_are_asked_for_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 70 nodes that download, 64 are heard and the rest count as they have reported."""

    def read(
        self: embedded._EmbeddedPorts, address: str, port: int, *, timeout_seconds: float
    ) -> bytes:
        return self._port.read(address, port, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(embedded._EmbeddedPorts, "read", read)
    monkeypatch.setattr(progress, "LIVE_SECONDS", 60.0)  # a slow machine is no silent plugin
    with installed() as world:
        world.artifact("tiny", "team-a")
        digest = world.resolved("tiny", "team-a")
        plugins = Plugins(digest)
        plugins.server.start()
        try:
            # Who may write these statuses is not what is tried here.
            guard = "ValidatingWebhookConfiguration"
            world.cluster.client.delete(
                "admissionregistration.k8s.io/v1", guard, "gpustack-delivery"
            )
            for name in NODES:
                add_node(world, name, plugins.server.port)
            for name in NODES:
                eventually(partial(report, world, name, digest), f"{name} has an object")
            path = f"/apis/{PUBLIC}/namespaces/team-a/modelartifacts/tiny/progress"
            admin = ApiAs(world.cluster.kubeconfig(), "", {})

            def heard() -> tuple[int, int]:
                answer = admin.ask("GET", path)[1]
                return answer.get("downloading", 0), answer.get("live", 0)

            eventually(lambda: heard() == (len(NODES), BOUND), "every report and Pod is known")
            before = plugins.asked
            answer = admin.read(path)
            assert plugins.asked - before == BOUND
            assert answer["downloadingBytes"] == 20 * BOUND + 10 * (len(NODES) - BOUND)
        finally:
            plugins.server.stop()
