"""A node, its Pods and its mounts, as a spec test speaks of them.

`Node.call` is what kubelet would send for a Pod's volume; a test changes one thing in it and sends
it. `Pod` goes the long way round: an object at the API server that the emulated kubelet runs.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from emulator.errors import ApiError
from spec_tests import oracle
from spec_tests.observe import Answer, CsiSocket, Metrics, PublishCall, listing, read_metrics
from spec_tests.oracle import Tree
from spec_tests.targets import RunningPlugin

Json = dict[str, Any]
VOLUME: Final = "model"


class World(Protocol):
    """What a node needs of the world it stands in."""

    @property
    def api(self) -> Any:
        """Return the emulator's client, as cluster admin."""

    def advance(self, seconds: float) -> None:
        """Move the clock and let everything come to rest."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A ModelArtifact as a Pod's author knows it, and the tree that its digest stands for."""

    name: str
    namespace: str
    uid: str
    digest: str
    tree: Tree
    token: str = field(default="", repr=False)

    @property
    def attributes(self) -> dict[str, str]:
        """Return the volume attributes that mount it."""
        return {"artifact": self.name, "artifactUID": self.uid, "manifestDigest": self.digest}

    def presenting(self, token: str) -> Artifact:
        """Return the artifact with another token for kubelet to present."""
        return replace(self, token=token)

    def claiming(self, digest: str) -> Artifact:
        """Return the artifact under another digest than its tree's."""
        return replace(self, digest=digest)


def having(call: PublishCall, changes: Mapping[str, str | None]) -> PublishCall:
    """Return a call with some of its volume context changed; None takes a key away."""
    context = {**call.context, **changes}
    kept = {key: value for key, value in context.items() if value is not None}
    return replace(call, context=kept)


class Node:
    """One node: kubelet's words to its plugin, and what can be seen of it from outside."""

    def __init__(self, world: World, seat: Any, start: Callable[[Any], RunningPlugin]) -> None:
        """Stand for an emulated node; `start` starts the plugin of such a node."""
        self._world = world
        self._seat = seat
        self._start = start
        self._plugin: RunningPlugin | None = None
        self.name: str = seat.name
        self.csi = CsiSocket(seat.csi_socket)

    # the plugin's life

    def start_plugin(self) -> None:
        """Start the plugin; the socket may take a moment to answer."""
        assert self._plugin is None, f"{self.name} runs a plugin already"
        self._plugin = self._start(self._seat)

    def stop_plugin(self) -> None:
        """Ask the plugin to end, and wait until it has."""
        if self._plugin is not None:
            plugin, self._plugin = self._plugin, None
            plugin.stop()

    def restart_kubelet(self) -> None:
        """Restart kubelet, which publishes the volumes of running Pods again."""
        self._seat.restart_kubelet()

    def restart_plugin(self) -> None:
        """Stop the plugin and start it again."""
        self.stop_plugin()
        self.start_plugin()

    def kill_plugin(self) -> None:
        """End the plugin as SIGKILL does: what lay on disk at that instant is what there is.

        Threads cannot be killed, so the cache is copied, the plugin is stopped, and the copy takes
        the place of whatever the ending threads still wrote. Kill while the node is at rest: the
        copy is no snapshot.
        """
        root: Path = self._seat.cache_root
        copy = root.with_name(root.name + ".killed")
        shutil.copytree(root, copy, symlinks=True)
        self.stop_plugin()
        _remove(root)
        copy.rename(root)

    # what kubelet says

    def call(
        self,
        artifact: Artifact,
        *,
        pod: str = "consumer",
        namespace: str = "",
        volume: str = VOLUME,
    ) -> PublishCall:
        """Return what kubelet sends for a Pod of that name with that artifact as an inline volume.

        The Pod's namespace is the artifact's unless another one is given.
        """
        space = namespace or artifact.namespace
        uid = str(UUID(hashlib.sha256(f"{space}/{pod}".encode()).hexdigest()[:32]))
        context = {
            **artifact.attributes,
            oracle.EPHEMERAL: "true",
            oracle.POD_NAMESPACE: space,
            oracle.POD_NAME: pod,
            oracle.POD_UID: uid,
        }
        return PublishCall(
            volume_id="csi-" + hashlib.sha256(f"{uid}{volume}".encode()).hexdigest(),
            target=self.pods_dir / uid / "volumes/kubernetes.io~csi" / volume / "mount",
            context=context,
            secrets={"token": artifact.token} if artifact.token else {},
        )

    def publish(self, call: PublishCall) -> Answer:
        """Publish as kubelet does, which makes the target's parent first and not the target."""
        inside = call.target.is_relative_to(self.pods_dir) and ".." not in call.target.parts
        if inside and not call.target.parent.exists():
            call.target.parent.mkdir(parents=True, mode=0o750)
        return self.csi.publish(call)

    def unpublish(self, call: PublishCall) -> Answer:
        """Unpublish a volume."""
        return self.csi.unpublish(call.volume_id, call.target)

    def mount(
        self, artifact: Artifact, *, pod: str = "consumer", namespace: str = ""
    ) -> PublishCall:
        """Publish until it is mounted, as kubelet would with its retries, and return the call."""
        call = self.call(artifact, pod=pod, namespace=namespace)
        for _ in range(60):
            answer = self.publish(call)
            if answer.ok:
                return call
            assert answer.code in {"ABORTED", "UNAVAILABLE"}, answer
            self._world.advance(1)
        raise AssertionError(f"not mounted after a minute of retries: {answer}")

    # what can be seen

    @property
    def pods_dir(self) -> Path:
        """Return kubelet's directory of Pods."""
        kubelet_dir: Path = self._seat.kubelet_dir
        return kubelet_dir / "pods"

    @property
    def kubelet_dir(self) -> Path:
        """Return kubelet's own directory."""
        kubelet_dir: Path = self._seat.kubelet_dir
        return kubelet_dir

    @property
    def cache_root(self) -> Path:
        """Return the root of the cache, whose content is nobody's business but in bytes."""
        cache_root: Path = self._seat.cache_root
        return cache_root

    @property
    def disk(self) -> Any:
        """Return the emulated disk: how full it is, what was synced, what fails."""
        return self._seat.disk

    @property
    def mounts(self) -> Any:
        """Return the node's mount table."""
        return self._seat.mounts

    def mounted(self, call: PublishCall) -> list[Any]:
        """Return the live mounts on a target, stacked ones one by one."""
        return [mount for mount in self.mounts.table() if mount.target == call.target]

    def tree(self, call: PublishCall) -> Path:
        """Return the directory that a mount shows."""
        (mount,) = self.mounted(call)
        return Path(mount.root)

    def read_all(self, call: PublishCall) -> dict[str, bytes]:
        """Return every file a container would see through the mount, with its content."""
        root = self.tree(call)
        return {
            path.relative_to(root).as_posix(): self._seat.read_file(
                call.target, path.relative_to(root).as_posix()
            )
            for path in root.rglob("*")
            if path.is_file()
        }

    def read_pod(self, pod: Pod, path: str) -> bytes:
        """Return a file as the container of a running Pod sees it."""
        content: bytes = self._seat.read_file(pod.target, path)
        return content

    def cache(self) -> dict[str, str]:
        """Return everything below the cache root, with kind, mode and size."""
        return listing(self.cache_root)

    def metrics(self) -> Metrics:
        """Read the plugin's metrics."""
        return read_metrics(self.url)

    @property
    def url(self) -> str:
        """Return the base URL of the plugin's port."""
        assert self._plugin is not None, f"{self.name} runs no plugin"
        return self._plugin.metrics_url

    # what the node's object says

    def store(self) -> Json:
        """Return the node's NodeModelStore, or an empty object."""
        try:
            found: Json = self._world.api.get(oracle.API, "NodeModelStore", self.name)
        except ApiError as error:
            if error.code != 404:
                raise
            return {}
        return found

    def entry(self, digest: str) -> Json:
        """Return the status entry of a digest, or an empty one."""
        models = self.store().get("status", {}).get("models", [])
        return next((model for model in models if model["digest"] == digest), {})

    def condition(self, kind: str) -> Json:
        """Return a condition of the NodeModelStore, or an empty one."""
        conditions = self.store().get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})


class Pod:
    """A Pod at the API server, run by the emulated kubelet of its node."""

    def __init__(self, world: World, node: Node, manifest: Json) -> None:
        """Create it."""
        self._world = world
        self._node = node
        self._created: Json = world.api.create(manifest)
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]

    @property
    def uid(self) -> str:
        """Return the Pod's UID."""
        uid: str = self._created["metadata"]["uid"]
        return uid

    @property
    def target(self) -> Path:
        """Return where its volume is mounted on the node."""
        return self._node.pods_dir / self.uid / "volumes/kubernetes.io~csi" / VOLUME / "mount"

    def phase(self) -> str:
        """Return the Pod's phase."""
        pod: Json = self._world.api.get("v1", "Pod", self.name, namespace=self.namespace)
        return str(pod.get("status", {}).get("phase", ""))

    def failed_mounts(self) -> list[str]:
        """Return the messages of the FailedMount events recorded on it."""
        events: list[Json] = self._world.api.list("v1", "Event", namespace=self.namespace)
        return [
            event["message"]
            for event in events
            if event["reason"] == "FailedMount" and event["involvedObject"].get("uid") == self.uid
        ]

    def wait_until_running(self, within_seconds: int = 300) -> None:
        """Let time pass until kubelet's retries have brought the Pod up."""
        for _ in range(within_seconds):
            if self.phase() == "Running":
                return
            self._world.advance(1)
        raise AssertionError(f"Pod {self.name} is {self.phase()}; events: {self.failed_mounts()}")

    def delete(self) -> None:
        """Ask for its end; kubelet unmounts before the object goes."""
        self._world.api.delete("v1", "Pod", self.name, namespace=self.namespace)


def pod_manifest(
    artifact: Artifact, node: str, *, name: str, namespace: str, attributes: Mapping[str, str]
) -> Json:
    """Return a hand-written Pod that mounts an artifact."""
    csi: Json = {
        "driver": oracle.DRIVER,
        "readOnly": True,
        "volumeAttributes": {**artifact.attributes, **attributes},
    }
    if artifact.token:
        csi["nodePublishSecretRef"] = {"name": f"{artifact.name}-token"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "main",
                    "image": "consumer",
                    "volumeMounts": [{"name": VOLUME, "mountPath": "/model", "readOnly": True}],
                }
            ],
            "volumes": [{"name": VOLUME, "csi": csi}],
        },
    }


def _remove(root: Path) -> None:
    # Published directories are read-only; without write permission nobody but root could remove
    # them.
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(root)
