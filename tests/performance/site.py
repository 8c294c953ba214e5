"""Where the plugin is measured: a cluster with a hub, and plugins as processes on its nodes.

The cluster and its hubs live in the bench's process, every plugin in one of its own: started by the
conformance manifest, with the chart's rights, kernel mounts and a cache on a tmpfs. The bench plays
kubelet over the CSI socket and reads from the kernel what a plugin has used.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from emulator.hubs import HuggingFaceHub, LfsRule
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.vocabulary import manifest as vocabulary
from spec_tests import oracle
from spec_tests.nodes import Node
from spec_tests.observe import CsiChannel, PublishCall, fetch
from spec_tests.oracle import Tree
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.targets.manifest import CLOCK, MODEL_MANAGER, Manifest, load
from spec_tests.targets.processes import Processes
from spec_tests.waiting import eventually, pause
from spec_tests.worlds import Shape
from tests.performance.contenders import Offer, Run

MIB: Final = 1 << 20
_MANIFEST: Final = Path(__file__).parents[2] / "conformance" / "gpustack-delivery.toml"
_CACHE_BYTES: Final = 8 << 30
_ASK_AGAIN_SECONDS: Final = 0.02
_STARTING: Final = "UNAVAILABLE"
_CPU_CLOCK_OF_A_PROCESS: Final = 2


@dataclass(frozen=True, slots=True)
class Model:
    """A repository as peers see it, and the artifact by which our side asks for it."""

    artifact: Artifact
    offer: Offer


class Plugin:
    """The plugin of one node: a process over a cache that outlives it."""

    def __init__(self, world: World, node: Node, emulated: Any) -> None:
        self._seat = world.seat
        self._emulated = emulated
        self._running: Any = None
        self._channel: CsiChannel | None = None
        self.node = node
        node.disk.resize(_CACHE_BYTES)

    @property
    def pid(self) -> int:
        """Return the process's id."""
        pid: int = self._running.pid
        return pid

    def start(self) -> None:
        """Start it, and return when it answers mounts."""
        self._running = self._seat.start_plugin(self._emulated)
        ready = f"{self._running.metrics_url}/readyz"
        eventually(lambda: fetch(ready)[0] == 200, "the plugin is ready")
        self._channel = CsiChannel(self._emulated.csi_socket)

    def stop(self) -> None:
        """End it."""
        self._leave()
        self._running.stop()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._leave()
        self._running.kill()

    def clear(self) -> None:
        """Empty the cache of a plugin that does not run."""
        for path in self.node.cache_root.iterdir():
            path.chmod(0o700)
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def call(self, model: Model, pod: str = "pod") -> PublishCall:
        """Return kubelet's call for a Pod; the folder above its target is there."""
        call = self.node.call(model.artifact, pod=pod)
        call.target.parent.mkdir(parents=True, exist_ok=True)
        return call

    def begin(self, call: PublishCall) -> float:
        """Call until the node has read its configuration; return the moment of the last call."""
        while True:
            moment = time.monotonic()
            if self._answer(call) != _STARTING:
                return moment
            pause(_ASK_AGAIN_SECONDS)

    def ask(self, call: PublishCall) -> bool:
        """Call once; say whether it is mounted."""
        return self._answer(call) == "OK"

    def mount(self, call: PublishCall) -> None:
        """Ask until it is mounted."""
        while not self.ask(call):
            pause(_ASK_AGAIN_SECONDS)

    def unmount(self, call: PublishCall) -> None:
        """Take it off again."""
        assert self._channel is not None
        assert self._channel.unpublish(call.volume_id, call.target).ok

    def deliver(self, model: Model, then: Callable[[Path], None] = lambda _: None) -> Run:
        """Mount by a fresh plugin over an empty cache; time runs from call to mount.

        Args:
            then: is given the target while it is mounted.
        """
        self.start()
        call = self.call(model)
        spent, began = self.cpu_seconds(), self.begin(call)
        self.mount(call)
        run = Run(time.monotonic() - began, self.cpu_seconds() - spent, self.peak_mib())
        then(call.target)
        self.unmount(call)
        self.stop()
        self.clear()
        return run

    @property
    def socket(self) -> Path:
        """Return where it is called."""
        socket: Path = self._emulated.csi_socket
        return socket

    def started(self) -> float:
        """Return when the process began, on the clock that counts since the machine's boot."""
        words = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return int(words[19]) / os.sysconf("SC_CLK_TCK")

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process, ended threads included."""
        return time.clock_gettime(~self.pid << 3 | _CPU_CLOCK_OF_A_PROCESS)

    def peak_mib(self) -> float:
        """Return the most memory that the process has held."""
        lines = Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def _answer(self, call: PublishCall) -> str:
        """Return the code that a call is answered with.

        Raises:
            RuntimeError: the answer is none of those that a download has.
        """
        assert self._channel is not None
        answer = self._channel.publish(call)
        expected = answer.code in {"OK", "ABORTED"}
        if not expected and not (answer.code == _STARTING and "starting" in answer.message):
            raise RuntimeError(f"not delivered: {answer.code} {answer.message}")
        return answer.code

    def _leave(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class Site:
    """One cluster with plugins that are not started yet."""

    def __init__(self, world: World) -> None:
        self.world = world
        emulated = {node.name: node for node in world.seat.cluster.nodes}
        self.plugins = [Plugin(world, node, emulated[name]) for name, node in world.nodes.items()]
        self._tls: HuggingFaceHub | None = None

    @property
    def plugin(self) -> Plugin:
        """Return the first node's plugin."""
        return self.plugins[0]

    def secure_hub(self) -> HuggingFaceHub:
        """Point the first node at a hub on https, whose CA it gets by ConfigMap."""
        cluster = self.world.seat.cluster
        hub: HuggingFaceHub = cluster.add_hub(tls=True)
        metadata = {"name": "hub-ca", "namespace": oracle.OPERATOR_NAMESPACE}
        trust = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.world.api.create({**trust, "data": {"ca.crt": hub.ca_pem}})
        spec = {"huggingFaceEndpoint": hub.url, "caBundleConfigMap": "hub-ca"}
        name = self.plugin.node.name
        self.world.stand_in.reconfigure(name, lambda found: found["hub"].update(spec))
        return hub

    def limit(self, bytes_per_second: int) -> None:
        """Give the first node a bandwidth for its downloads; 0 is no limit."""
        found = {"bytesPerSecond": bytes_per_second}
        self.world.stand_in.reconfigure(
            self.plugin.node.name, lambda spec: spec["download"].update(found)
        )

    def model(
        self, name: str, folder: Path, files: Mapping[str, tuple[int, str]], *, tls: bool = False
    ) -> Model:
        """Serve a folder and resolve an artifact of it, as the worker would."""
        hub = self.secure_hub() if tls else self.world.hub
        rule = LfsRule(patterns=("*.safetensors",), size_bytes=10 * MIB)
        head = hub.add_repository(f"bench/{name}", folder, lfs=rule).resolve("main")
        assert head is not None
        ca_file = None
        if tls:
            ca_file = folder.with_name(f"{name}-ca.pem")
            ca_file.write_text(hub.ca_pem, "ascii")
        digest = _digest(f"bench/{name}", hub, head.id)
        artifact = self._artifact(name, digest)
        self.world.stand_in.resolve(artifact, head.id)
        return Model(artifact, Offer(f"bench/{name}", hub.url, head.id, ca_file, dict(files)))

    def _artifact(self, name: str, digest: str) -> Artifact:
        namespace = self.world.namespace("bench")
        source = {"huggingFace": {"repository": f"bench/{name}", "revision": "main"}}
        body = {"apiVersion": oracle.API, "kind": "ModelArtifact", "spec": {"source": source}}
        metadata = {"name": name, "namespace": namespace}
        uid = self.world.api.create({**body, "metadata": metadata})["metadata"]["uid"]
        return Artifact(name, namespace, uid, digest, Tree(()))


def _digest(repository: str, hub: HuggingFaceHub, commit: str) -> str:
    http = Http(ca_pem=hub.ca_pem or "", environment={})
    try:
        entries = HuggingFace(hub.url, http).list_tree(repository, commit, None)
        return vocabulary.Manifest.of(entries).digest
    finally:
        http.close()


@contextmanager
def site(*, nodes: int = 1, peer_port: int = 0) -> Iterator[Site]:
    """Give a cluster with that many nodes, and take it down; needs the right to mount."""
    names = tuple(f"node-{number}" for number in range(nodes))
    shape = Shape(nodes=names, plugins=False, peer_port=peer_port)
    with Processes(_in_real_time(load(_MANIFEST)), 0.0).world(shape) as world:
        yield Site(world)


def _in_real_time(manifest: Manifest) -> Manifest:
    """Return a manifest whose plugin follows the machine's clock, as on a real node."""
    words = manifest.commands[MODEL_MANAGER]
    plugin = ("gpustack-delivery", *words[words.index(MODEL_MANAGER) :])
    features = tuple(feature for feature in manifest.features if feature != CLOCK)
    return replace(manifest, commands={MODEL_MANAGER: plugin}, features=features)
