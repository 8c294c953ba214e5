"""A whole plugin on a small stage: real files and sockets; API, mounts, disk and hub in memory."""

from __future__ import annotations

import http.client
import shutil
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.downloading import Limits
from gpustack_delivery.node.plugin import Plugin, PluginOptions, World
from gpustack_delivery.ports import Clock, Disk
from gpustack_delivery.vocabulary.node_store import HubAccess
from gpustack_delivery.vocabulary.resources import (
    CONFIG_MAPS,
    MODEL_ARTIFACTS,
    NODE_MODEL_STORES,
    Json,
)
from tests.unit.fakes import FakeDisk, FakeKube, FakeMounts, ManualClock, eventually
from tests.unit.node.fake_hub import FakeHub, FakeRoute, manifest_of

NAMESPACE = "gpustack-system"
NODE = "node-a"
COMMIT = "c" * 40
FILES = {"config.json": b'{"a": 1}\n', "weights/model.bin": bytes(range(256)) * 16, "empty": b""}


class Stage:
    """One node with a plugin on it; `start` may be called again after `stop`, as a restart."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="n2-", dir="/tmp"))
        self.kubelet = self.root / "kubelet"
        self.cache = self.root / "cache"
        self.pods = self.kubelet / "pods"
        self.pods.mkdir(parents=True)
        self.socket = self.kubelet / "plugins" / "model" / "csi.sock"
        self.clock = ManualClock()
        self.kube = FakeKube()
        self.mounts = FakeMounts()
        self.disk = FakeDisk(total_bytes=1_000_000_000)
        self.hub = FakeHub()
        self.connect_fault: ConfigurationFault | None = None
        self.bundles: list[str] = []
        self.plugin: Plugin | None = None
        self.limits: Limits | None = None

    def options(self, **changes: object) -> PluginOptions:
        """Return the plugin's options."""
        fields: dict[str, object] = {
            "node_name": NODE,
            "kubelet_dir": self.kubelet,
            "cache_root": self.cache,
            "csi_socket": self.socket,
            "secure_port": 0,
            "namespace": NAMESPACE,
        }
        return PluginOptions(**fields | changes)  # type: ignore[arg-type]

    def _routes(
        self, limits: Limits, clock: Clock, disk: Disk
    ) -> Callable[[HubAccess, str], FakeRoute]:
        self.limits = limits

        def connect(access: HubAccess, bundle: str) -> FakeRoute:
            if self.connect_fault is not None:
                raise self.connect_fault
            self.bundles.append(bundle)
            return FakeRoute(self.hub)

        return connect

    def start(self, *, synced: bool = True) -> None:
        """Start a plugin; wait until it answers mounts."""
        world = World(self.clock, self.kube, self.mounts, self.disk)
        self.plugin = Plugin(self.options(), world, self._routes)
        self.plugin.start()
        if synced:
            eventually(lambda: self.https("/readyz")[0] == 200, "readiness")

    def stop(self) -> None:
        """Stop the plugin."""
        if self.plugin is not None:
            self.plugin.stop()
            self.plugin = None

    def close(self) -> None:
        """Stop, and remove every file."""
        self.hub.gate.set()
        self.stop()
        for directory in self.root.rglob("*"):
            if directory.is_dir() and not directory.is_symlink():
                directory.chmod(0o700)
        shutil.rmtree(self.root)

    def configure(self, *, generation: int = 1, **spec: object) -> None:
        """Put the node's NodeModelStore."""
        fields: Json = {
            "watermarks": {"highPercent": 75, "lowPercent": 70},
            "download": {"concurrency": 4},
            "hub": {"huggingFaceEndpoint": "https://hub.example"},
            "kubelet": {},
        }
        body = {"metadata": {"name": NODE, "generation": generation}, "spec": fields | spec}
        self.kube.put(NODE_MODEL_STORES, body)

    def config_map(self, name: str, data: dict[str, str]) -> None:
        """Put a ConfigMap in the operator's namespace."""
        self.kube.put(
            CONFIG_MAPS, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": data}
        )

    def artifact(
        self,
        name: str = "qwen",
        namespace: str = "team-a",
        *,
        repository: str = "org/name",
        files: dict[str, bytes] = FILES,
        resolved: bool = True,
        revision: str = COMMIT,
    ) -> str:
        """Put a resolved ModelArtifact and its repository; return the digest."""
        self.hub.repositories[repository] = dict(files)
        digest = manifest_of(files).digest
        facts: Json = {"manifestDigest": digest, "resolvedTime": "2026-01-01T00:00:00Z"}
        facts |= {"revision": revision} if revision else {"digestSource": "Expected"}
        self.kube.put(
            MODEL_ARTIFACTS,
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{namespace}-{name}",
                },
                "spec": {"source": {"huggingFace": {"repository": repository}}},
                "status": {
                    "resolved": facts,
                    "conditions": [{"type": "Resolved", "status": "True" if resolved else "False"}],
                },
            },
        )
        return digest

    def target(self, pod: str = "u1") -> Path:
        """Return a Pod's target, its parent made as kubelet does."""
        target = self.pods / pod / "volumes" / "kubernetes.io~csi" / "model" / "mount"
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def publish(
        self,
        digest: str,
        pod: str = "u1",
        *,
        namespace: str = "team-a",
        name: str = "qwen",
        token: str = "",
        **changes: object,
    ) -> tuple[str, str]:
        """Call NodePublishVolume; return the code's name and the message."""
        fields: dict[str, object] = {
            "volume_id": f"csi-{pod}",
            "target_path": str(self.target(pod)),
            "volume_capability": csi_pb2.VolumeCapability(
                mount=csi_pb2.VolumeCapability.MountVolume()
            ),
            "readonly": True,
            "secrets": {"token": token} if token else {},
            "volume_context": {
                "artifact": name,
                "artifactUID": f"uid-{namespace}-{name}",
                "manifestDigest": digest,
                "csi.storage.k8s.io/pod.namespace": namespace,
                "csi.storage.k8s.io/pod.name": pod,
                "csi.storage.k8s.io/pod.uid": pod,
                "csi.storage.k8s.io/ephemeral": "true",
            },
        }
        return self.call("NodePublishVolume", csi_pb2.NodePublishVolumeRequest(**fields | changes))

    def unpublish(self, pod: str = "u1", **changes: str) -> tuple[str, str]:
        """Call NodeUnpublishVolume."""
        fields = {"volume_id": f"csi-{pod}", "target_path": str(self.target(pod))} | changes
        return self.call("NodeUnpublishVolume", csi_pb2.NodeUnpublishVolumeRequest(**fields))

    def ask(self, stub: Callable[[grpc.Channel], Any], method: str, request: object) -> Any:
        """Call any method of the driver; return its answer."""
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            return getattr(stub(channel), method)(request, timeout=20, wait_for_ready=True)

    def call(self, method: str, request: object) -> tuple[str, str]:
        """Call the driver over its socket; return the code's name and the message."""
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            stub = csi_pb2_grpc.NodeStub(channel)
            try:
                getattr(stub, method)(request, timeout=20, wait_for_ready=True)
            except grpc.RpcError as error:
                return error.code().name, error.details()
        return "OK", ""

    def in_time(self, condition: Callable[[], object], what: str = "the condition") -> None:
        """Let time pass in small steps until a condition holds."""

        def stepped() -> object:
            self.clock.advance(5)
            return condition()

        eventually(stepped, what)

    def mounted(self, digest: str, pod: str = "u1", **fields: object) -> None:
        """Publish until it is mounted."""
        answers: list[tuple[str, str]] = []

        def done() -> bool:
            answers.append(self.publish(digest, pod, **fields))  # type: ignore[arg-type]
            return answers[-1][0] == "OK"

        eventually(done, lambda: f"a mount after {answers[-1]}")

    def https(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Ask the secure port."""
        assert self.plugin is not None
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.plugin.secure_port, context=context, timeout=20
        )
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metric(self, line: str) -> float:
        """Return a metric's value by its name and labels."""
        for found in self.https("/metrics")[1].decode().splitlines():
            if found.rpartition(" ")[0] == line:
                return float(found.rpartition(" ")[2])
        raise AssertionError(f"no metric {line}")

    def status(self) -> Json:
        """Return the status of our NodeModelStore as the API has it."""
        body = self.kube.objects["nodemodelstores", "", NODE]
        found: Json = body.get("status") or {}
        return found

    def model(self, digest: str) -> Json:
        """Return the status entry of a digest, empty if there is none."""
        return next((m for m in self.status().get("models", []) if m["digest"] == digest), {})

    def condition(self, kind: str) -> Json:
        """Return a condition of the status, empty if there is none."""
        return next((c for c in self.status().get("conditions", []) if c["type"] == kind), {})

    def tree(self, digest: str) -> Path:
        """Return where a digest's published tree stands."""
        return self.cache / "published" / digest.removeprefix("sha256:") / "tree"
