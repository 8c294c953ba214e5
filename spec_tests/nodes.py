"""A node and its mounts, as a spec test speaks of them.

`Node.call` is what kubelet would send for a Pod's volume; a test changes one thing in it and sends
it. `pods.Pod` goes the long way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from emulator.errors import ApiError
from spec_tests import oracle
from spec_tests.observe import Answer, CsiSocket, Metrics, PublishCall, listing, read_metrics
from spec_tests.pods import VOLUME, Artifact, Pod, World
from spec_tests.targets import RunningPlugin, Unsupported

Json = dict[str, Any]


def having(call: PublishCall, changes: Mapping[str, str | None]) -> PublishCall:
    """Return a call with some of its volume context changed; None takes a key away."""
    context = {**call.context, **changes}
    kept = {key: value for key, value in context.items() if value is not None}
    return replace(call, context=kept)


def lose(files: Iterable[Path]) -> None:
    """Remove files, from write-protected directories too."""
    for path in files:
        path.parent.chmod(0o755)
        path.unlink()


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
        """End the plugin as SIGKILL does: what lay on disk at that instant is what there is."""
        assert self._plugin is not None, f"{self.name} runs no plugin"
        plugin, self._plugin = self._plugin, None
        self._world.seat.kill_plugin(self._seat, plugin)

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

    def share_with_kubelet(self) -> None:
        """Have the cache lie on kubelet's own filesystem.

        Raises:
            Unsupported: this target gives it one of its own.
        """
        if self.disk.device(self.cache_root) != self.disk.device(self.kubelet_dir):
            raise Unsupported("the cache lies on a filesystem of its own, not on kubelet's")

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
        # The kernel names a root within its filesystem, which need not be a path.
        root = Path(mount.root)
        return root if root.is_dir() else call.target

    def markers(self, call: PublishCall, artifact: Artifact) -> list[Path]:
        """Return the files that name the digest, in the mounted tree's directory or above it."""
        digest = artifact.digest.partition(":")[2].encode()
        found: list[Path] = []
        for folder in self.tree(call).parents:
            if not folder.is_relative_to(self.cache_root):
                break
            files = [path for path in folder.iterdir() if path.is_file()]
            found += [path for path in files if digest in path.read_bytes()]
        return found

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

    def observed(self) -> bool:
        """Say whether the status is of the spec that is stored now."""
        store = self.store()
        seen = store.get("status", {}).get("observedGeneration")
        return bool(seen == store["metadata"]["generation"])

    def entry(self, digest: str) -> Json:
        """Return the status entry of a digest, or an empty one."""
        models = self.store().get("status", {}).get("models", [])
        return next((model for model in models if model["digest"] == digest), {})

    def condition(self, kind: str) -> Json:
        """Return a condition of the NodeModelStore, or an empty one."""
        conditions = self.store().get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})
