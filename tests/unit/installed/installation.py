"""The chart's objects and our processes on an emulated cluster, for what no rule speaks of."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.contracts import Json
from emulator.errors import ApiError
from emulator.hubs import HuggingFaceHub
from gpustack_delivery.decisions.pods import volume
from gpustack_delivery.embedded import Embedded, host_fault
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from tests.unit.fakes import eventually

NAMESPACE = "gpustack-system"
API = "worker.gpustack.ai/v1alpha1"
PUBLIC = "worker.gpustack.ai/v1"
FILES = {"config.json": b"{}\n", "model.safetensors": bytes(range(256)) * 40}


@dataclass
class Installation:
    """One installation; the clock moves only when a test moves it."""

    cluster: Cluster
    clock: ManualClock
    hub: HuggingFaceHub
    embedded: Embedded

    def artifact(self, name: str, namespace: str, repository: str = "acme/tiny") -> Json:
        """Create an artifact of a repository; return it as the server does."""
        source = {"huggingFace": {"repository": repository, "revision": "main"}}
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": API, "kind": "ModelArtifact", "metadata": metadata}
        return self.cluster.client.create({**body, "spec": {"source": source}})

    def resolved(self, name: str, namespace: str) -> str:
        """Wait until an artifact is resolved; return its digest."""

        def digest() -> str:
            self.clock.advance(1)
            found = self.cluster.client.get(API, "ModelArtifact", name, namespace=namespace)
            resolved: Json = (found.get("status") or {}).get("resolved") or {}
            return str(resolved.get("manifestDigest", ""))

        eventually(lambda: bool(digest()))
        return digest()

    def refused(self, body: Json) -> ApiError:
        """Create what must be refused; return the refusal."""
        try:
            self.cluster.client.create(body)
        except ApiError as refusal:
            return refusal
        raise AssertionError(f"{body['kind']} was not refused")

    def mounted(self, name: str, artifact: str, namespace: str) -> dict[str, bytes]:
        """Create a Pod with the volume of an artifact; return the files once it runs."""
        client, node = self.cluster.client, self.cluster.nodes[0]
        found = client.get(API, "ModelArtifact", artifact, namespace=namespace)
        mount = {"name": "model", "mountPath": "/model"}
        spec = {
            "nodeName": node.name,
            "containers": [{"name": "main", "image": "x", "volumeMounts": [mount]}],
            "volumes": [volume(ModelArtifact.from_wire(found))],
        }
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return self.files(client.create(body))

    def files(self, pod: Json) -> dict[str, bytes]:
        """Wait until a Pod runs; return the files that it sees."""
        client, metadata = self.cluster.client, pod["metadata"]

        def running() -> bool:
            self.clock.advance(1)
            read = client.get("v1", "Pod", metadata["name"], namespace=metadata["namespace"])
            return bool((read.get("status") or {}).get("phase") == "Running")

        eventually(running, "the Pod runs")
        mount = self.cluster.nodes[0].pod_mount(pod)
        return {path: mount.read(path) for path in mount.files()}


@contextmanager
def installed(
    values: Json | None = None,
    *,
    kubernetes: str = "1.30",
    before_start: Callable[[Cluster], None] = lambda _cluster: None,
) -> Iterator[Installation]:
    """Install the chart with some values and start the worker; the hub has one repository.

    `before_start` changes the cluster between the chart and the worker.
    """
    clock = ManualClock()
    with Cluster(kubernetes=kubernetes, clock=clock, translate=host_fault) as cluster:
        hub = cluster.add_hub()
        hub.add_repository("acme/tiny", FILES)
        embedded = Embedded(cluster, values=values)
        try:
            embedded.install()
            for namespace in ("team-a", "team-b"):
                named = {"metadata": {"name": namespace}}
                cluster.client.create({"apiVersion": "v1", "kind": "Namespace", **named})
            cluster.client.create(_settings(hub.url))
            before_start(cluster)
            embedded.start_worker()
            cluster.settle()
            yield Installation(cluster, clock, hub, embedded)
        finally:
            embedded.close()


def _settings(hub: str) -> Json:
    data = {"model-artifact-huggingface-endpoint": base64.b64encode(hub.encode()).decode()}
    metadata = {"name": "gpustack-settings", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
