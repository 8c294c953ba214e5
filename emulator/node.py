"""One emulated machine: its folders, its disk, its mounts, its kubelet, and a look into its Pods.

Everything a node has lies in one private folder. Unix sockets, whose paths the kernel limits to 107
bytes, lie in it too: a name that makes them longer is refused at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.client import Client
from emulator.contracts import Json
from emulator.disk import DEFAULT_SIZE_BYTES, Disk
from emulator.errors import ApiError
from emulator.kubelet.agent import Kubelet, Machine
from emulator.kubelet.calls import Deadlines
from emulator.kubelet.node_objects import NodeFacts
from emulator.kubelet.pods import Runtime
from emulator.kubelet.publishing import Place
from emulator.mounts import KernelMounts, MountTable

DRIVER = "model.csi.gpustack.ai"
"""The driver whose socket `Node.csi_socket` names; any other registers just as well."""

LONGEST_SOCKET_PATH_BYTES = 107
ALLOCATABLE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "900Gi", "pods": "110"}


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What a new node is to be like."""

    allocatable: Mapping[str, str] = field(default_factory=dict)  # on top of cpu, memory and Pods
    disk_bytes: int = DEFAULT_SIZE_BYTES
    configuration: Mapping[str, Any] = field(default_factory=dict)  # what differs in configz


class PodMount:
    """What a container sees where one of its CSI volumes is mounted."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        """Look at a folder of the real disk, as through a mount of it."""
        self._folder = folder
        self._read_only = read_only

    @property
    def folder(self) -> Path:
        """Return where this process finds the volume's files, for readers that need a real path."""
        return self._folder

    def read(self, path: str) -> bytes:
        """Return a file's content. Raises OSError as a container would see it."""
        return self._inside(path).read_bytes()

    def files(self) -> list[str]:
        """Return the paths of all files, sorted."""
        found = (path for path in self._folder.rglob("*") if not path.is_dir())
        return sorted(path.relative_to(self._folder).as_posix() for path in found)

    def write(self, path: str, content: bytes) -> None:
        """Write a file, or fail as on a read-only filesystem."""
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        self._inside(path).write_bytes(content)

    def _inside(self, path: str) -> Path:
        found = self._folder / path
        if not found.resolve().is_relative_to(self._folder.resolve()):
            raise OSError(errno.ENOENT, "leads out of the volume", path)
        return found


class Node:
    """A node of a cluster; `cluster.Cluster.add_node` makes one."""

    def __init__(
        self,
        client: Client,
        facts: NodeFacts,
        folder: Path,
        disk: Disk,
        mounts: MountTable | KernelMounts,
    ) -> None:
        """Make the node's folders; `start_kubelet` brings it to life.

        Raises:
            ValueError: the folder's path is so long that sockets in it cannot be.
        """
        self.name = facts.name
        self.address = facts.address
        self.kubelet_dir = folder / "kubelet"
        self.cache_root = folder / "cache"
        self.disk = disk
        self.mounts = mounts
        self.configuration: dict[str, Any] = {}
        self._client = client
        self._facts = facts
        self._runtime = Runtime()
        self._deadlines = Deadlines()
        self._kubelet: Kubelet | None = None
        self.removed = False
        _check_length(self.kubelet_dir / "plugins_registry" / f"{DRIVER}-reg.sock")
        _check_length(self.csi_socket)
        self.cache_root.mkdir(parents=True)
        self.csi_socket.parent.mkdir(parents=True, mode=0o750)

    @property
    def csi_socket(self) -> Path:
        """Return where the chart's driver listens."""
        return self.kubelet_dir / "plugins" / DRIVER / "csi.sock"

    @property
    def plugins_registry(self) -> Path:
        """Return the folder in which kubelet looks for registration sockets."""
        return self.kubelet_dir / "plugins_registry"

    @property
    def drivers(self) -> frozenset[str]:
        """Return the names of the CSI drivers that kubelet has registered now."""
        return self._kubelet.drivers if self._kubelet is not None else frozenset()

    def configz(self) -> Json | None:
        """Return what the configz endpoint shows; None while no kubelet runs."""
        return self._kubelet.configz() if self._kubelet is not None else None

    def start_kubelet(self) -> None:
        """Start kubelet, unless it runs; a machine that was taken away is back with it."""
        self.removed = False
        if self._kubelet is None:
            machine = Machine(
                kubelet_dir=self.kubelet_dir,
                mounts=self.mounts,
                runtime=self._runtime,
                pod_network=self.address.rpartition(".")[0],
                minor=int(self._facts.version.split(".")[1]),
                configuration=self.configuration,
                deadlines=self._deadlines,
            )
            self._kubelet = Kubelet(self._client, self._client.api.clock, self._facts, machine)
            self._kubelet.start()

    def stop_kubelet(self) -> None:
        """End kubelet as a crash would: Pods keep running, mounts stay, nobody renews the Lease."""
        if self._kubelet is not None:
            self._kubelet.stop()
            self._kubelet = None

    def restart_kubelet(self) -> None:
        """End kubelet and start it again."""
        self.stop_kubelet()
        self.start_kubelet()

    def flicker_drivers(self) -> None:
        """Let every CSI driver leave CSINode for a moment: it is registered again at once."""
        if self._kubelet is not None:
            self._kubelet.flicker()

    def shorten_deadline(self, method: str, seconds: float, *, times: int = 1) -> None:
        """Let kubelet give up the next calls of a CSI method after so many seconds.

        The plugin goes on with what it was asked. kubelet holds the mount for uncertain: it asks
        again, and unpublishes when the Pod goes.

        Args:
            method: as CSI names it, such as NodePublishVolume.
            seconds: of the cluster's clock; kubelet's own are 120.
        """
        self._deadlines.shorten(method, seconds, times)

    def remove(self) -> None:
        """Take the machine away: kubelet ends and the Node object is deleted."""
        self.stop_kubelet()
        self.removed = True
        administrator = Client(self._client.api)
        try:
            administrator.delete("v1", "Node", self.name)
        except ApiError as error:
            if error.code != 404:
                raise

    def unmount_all(self) -> None:
        """Take every mount away, stacked ones too."""
        for mount in reversed(self.mounts.table()):
            self.mounts.unmount(mount.target)

    def target(self, pod: Json, volume: str = "") -> Path:
        """Return where a Pod's CSI volume is mounted; its only one unless named.

        Raises:
            LookupError: the Pod has no such volume, or several when none is named.
        """
        names = [v["name"] for v in pod["spec"].get("volumes") or () if "csi" in v]
        wanted = [name for name in names if volume in {"", name}]
        if len(wanted) != 1:
            raise LookupError(f"name one CSI volume of Pod {pod['metadata']['name']}: {names}")
        return Place(self.kubelet_dir, pod["metadata"]["uid"], wanted[0]).target

    def pod_mount(self, pod: Json, volume: str = "") -> PodMount:
        """Return what a Pod's containers see at a CSI volume.

        Raises:
            LookupError: nothing is mounted there.
        """
        return self._look(self.target(pod, volume))

    def read_file(self, target: Path, path: str) -> bytes:
        """Return a file's content as seen through the mount at a target.

        Raises:
            LookupError: nothing is mounted there.
        """
        return self._look(target).read(path)

    def _look(self, target: Path) -> PodMount:
        mount = self.mounts.seen_at(target)
        if mount is None:
            raise LookupError(f"nothing is mounted at {target}")
        kernel = isinstance(self.mounts, KernelMounts)
        return PodMount(target if kernel else Path(mount.root), read_only=mount.read_only)


def _check_length(socket: Path) -> None:
    length = len(os.fsencode(socket))
    if length > LONGEST_SOCKET_PATH_BYTES:
        raise ValueError(
            f"the socket path {socket} has {length} bytes, and {LONGEST_SOCKET_PATH_BYTES} are "
            "possible: give the node a shorter name, or set TMPDIR to a shorter folder"
        )


def full_version(kubernetes: str) -> str:
    """Return what a kubelet of a version says of itself: 1.30 is v1.30.0."""
    version = kubernetes.removeprefix("v")
    return f"v{version}" if version.count(".") > 1 else f"v{version}.0"
