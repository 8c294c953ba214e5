"""A whole cluster in one object: API server, controllers, scheduler, nodes and hubs.

    with Cluster(kubernetes="1.30") as cluster:
        node = cluster.add_node("node-a")
        cluster.apply(Path("objects.yaml"))
        cluster.settle()

Everything lives in this process and in one private folder, and goes with `stop`. Several clusters
live side by side. Real clients reach it with the file that `kubeconfig` writes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from emulator import picture
from emulator.aggregation.front_proxy import FrontProxy
from emulator.client import Client
from emulator.clock import ManualClock, SystemClock
from emulator.contracts import Caller, Json
from emulator.control_plane import ControlPlane
from emulator.disk import Disk, unchanged
from emulator.faults.cluster_faults import ClusterFaults, Levers
from emulator.faults.relay import Relay
from emulator.hubs.hub import Hub
from emulator.hubs.huggingface import HuggingFaceHub
from emulator.hubs.modelscope import ModelScopeHub
from emulator.hubs.modelscope_api import Habits
from emulator.kubelet.node_objects import NodeFacts
from emulator.mounts import KernelMounts, MountTable
from emulator.node import ALLOCATABLE, Node, NodeOptions, full_version
from emulator.stillness import wait_for_rest

_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount")
# Longer than the kernel keeps a packet on its way over loopback; nobody sees it until it is there.
_CALM_SECONDS = 0.02
_DEFAULT_NODE = NodeOptions()


class Cluster:
    """An emulated Kubernetes cluster, from `start` (or `with`) to `stop`."""

    def __init__(
        self,
        *,
        kubernetes: str = "1.30",
        clock: SystemClock | ManualClock | None = None,
        kernel_mounts: bool = False,
        translate: Callable[[OSError], Exception] = unchanged,
        seed: int | None = None,
    ) -> None:
        """Prepare a cluster.

        Args:
            kubernetes: the version it plays, such as 1.29.
            clock: its time, the system's unless given.
            kernel_mounts: nodes mount for real, in a private mount namespace; needs root.
            translate: what nodes' disks and mounts raise in place of an OSError.
            seed: of uids and generated names: with a manual clock, the same steps then write the
                same objects in the same order every time.
        """
        self.clock = clock or SystemClock()
        self.kubernetes = kubernetes
        self._kernel_mounts = kernel_mounts
        self._translate = translate
        self._nodes: dict[str, Node] = {}
        self._node_count = 0
        self._hubs: list[Hub] = []
        self._relays: dict[str, Relay] = {}
        self._kubeconfigs = 0
        self._folder: Path | None = None
        self._plane = ControlPlane(kubernetes, self.clock, self._nodes, seed)
        self.api = self._plane.api
        self.paper_nodes = self._plane.paper_nodes
        self.webhooks = self._plane.webhooks
        self.client = Client(self.api)
        self._users: dict[Path, tuple[str, tuple[str, str] | None]] = {}  # of kubeconfigs
        levers = Levers(
            api=self.api,
            routes=self.webhooks.routes,
            requests=self._plane.request_faults,
            stop_server=self._plane.stop_server,
            start_server=self._plane.start_server,
            revoke=self._plane.security.credentials.revoke,
            renew=self._renew,
        )
        self.faults = ClusterFaults(levers)

    def start(self) -> Self:
        """Bring the control plane up."""
        self._folder = Path(tempfile.mkdtemp(prefix="emulator-"))
        self._plane.start()
        return self

    def stop(self) -> None:
        """Take everything down, and the private folder with it; twice is no error."""
        if self._folder is None:
            return
        for hub in self._hubs:
            hub.stop()
        for node in self._nodes.values():
            node.stop_kubelet()
        for relay in self._relays.values():
            relay.stop()
        self.faults.close()
        self._plane.stop()
        for node in self._nodes.values():
            node.unmount_all()
        shutil.rmtree(self._folder)
        self._folder = None

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def folder(self) -> Path:
        """Return the cluster's private folder.

        Raises:
            RuntimeError: the cluster is not started.
        """
        if self._folder is None:
            raise RuntimeError(
                "the cluster is not started: call start(), or use it in a with block"
            )
        return self._folder

    @property
    def url(self) -> str:
        """Return where clients find the API server."""
        return self._plane.url

    @property
    def ca_pem(self) -> str:
        """Return what a client has to trust."""
        return self._plane.authority.certificate_pem

    @property
    def front_proxy(self) -> FrontProxy:
        """Who the API server is to servers behind it, for calls past the API server."""
        return self._plane.front_proxy

    @property
    def hubs(self) -> tuple[Hub, ...]:
        """Return the hubs, in the order in which they were added."""
        return tuple(self._hubs)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the machines, in the order in which they were added."""
        return tuple(self._nodes.values())

    def add_node(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        options: NodeOptions = _DEFAULT_NODE,
    ) -> Node:
        """Add a machine with a running kubelet; its Node is registered when this returns.

        Args:
            labels: put on the Node by the cluster's administrator, on top of kubelet's own.

        Raises:
            ValueError: the name is taken, or makes socket paths that are too long. A node that was
                removed has given its name free: what comes is another machine.
        """
        if (before := self._nodes.get(name)) is not None:
            if not before.removed:
                raise ValueError(f"there is a node {name!r} already: choose another name")
            before.unmount_all()
        self._node_count += 1
        facts = NodeFacts(
            name=name,
            address=f"127.20.{self._node_count}.1",  # 127/8 can be bound to, so each has its own
            version=full_version(self.kubernetes),
            allocatable={**ALLOCATABLE, **options.allocatable},
        )
        folder = self.folder / (name if before is None else f"{name}.{self._node_count}")
        cache = folder / "cache"
        disk = Disk(folder, cache, total_bytes=options.disk_bytes, translate=self._translate)
        mounts: MountTable | KernelMounts
        if self._kernel_mounts:
            mounts = KernelMounts(folder, translate=self._translate)
        else:
            mounts = MountTable(disk, translate=self._translate)
        caller = Caller(
            f"system:node:{name}",
            ("system:nodes", "system:authenticated"),
            user_agent=f"kubelet/{facts.version}",
        )
        node = Node(Client(self.api, caller), facts, folder, disk, mounts)
        self._nodes[name] = node
        node.configuration.update(options.configuration)
        node.start_kubelet()
        if isinstance(self.clock, ManualClock):
            self.clock.rest()  # so that what comes next is always the same
        if labels:
            self.client.patch("v1", "Node", name, {"metadata": {"labels": labels}})
        return node

    def add_hub(self, *, tls: bool = False) -> HuggingFaceHub:
        """Add a Hugging Face hub on this cluster's clock, plain or with the cluster's CA."""
        hub = HuggingFaceHub(clock=self.clock, authority=self._plane.authority if tls else None)
        self._hubs.append(hub.start())
        return hub

    def add_model_scope(self, *, tls: bool = False, habits: Habits | None = None) -> ModelScopeHub:
        """Add a ModelScope hub likewise; `habits` says where it cuts listings and the like."""
        authority = self._plane.authority if tls else None
        hub = ModelScopeHub(clock=self.clock, authority=authority, habits=habits)
        self._hubs.append(hub.start())
        return hub

    def add_relay(self, name: str, target: tuple[str, int]) -> Relay:
        """Add a network link to a program, which can be cut; give clients its `address` instead.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._relays:
            raise ValueError(f"there is a relay {name!r} already: choose another name")
        self._relays[name] = Relay(target).start()
        return self._relays[name]

    def relay(self, name: str) -> Relay:
        """Return a relay. Raises LookupError."""
        if name not in self._relays:
            known = ", ".join(self._relays) or "none"
            raise LookupError(f"there is no relay {name!r}; there are {known}")
        return self._relays[name]

    def apply(self, source: Path | Json | Iterable[Json]) -> list[Json]:
        """Apply objects, or the YAML of a file or folder, as administrator; return the results.

        Namespaces, definitions and accounts go first.
        """
        if isinstance(source, Path):
            objects = list(_documents(source))
        else:
            objects = [source] if isinstance(source, dict) else list(source)
        rank = {kind: number for number, kind in enumerate(_FIRST)}
        objects.sort(key=lambda obj: rank.get(obj["kind"], len(rank)))
        return [self.client.apply(obj) for obj in objects]

    def kubeconfig(self, user: str = "admin", pod: tuple[str, str] | None = None) -> Path:
        """Write a file that clients find the cluster with, and return its path.

        Args:
            user: `admin`, a service account as `system:serviceaccount:NAMESPACE:NAME`, or any name.
            pod: namespace and name of a Pod that the account's token is bound to.

        Raises:
            LookupError: the account or the Pod does not exist.
        """
        content = json.dumps(self._plane.kubeconfig(user, pod))
        self._kubeconfigs += 1
        path = self.folder / f"kubeconfig-{self._kubeconfigs}"
        path.touch(mode=0o600)
        path.write_text(content, encoding="utf-8")
        self._users[path] = (user, pod)
        return path

    def _renew(self, kubeconfig: Path) -> None:
        """Replace a kubeconfig as a whole by one with a new token. Raises LookupError."""
        if kubeconfig not in self._users:
            raise LookupError(f"{kubeconfig} is not a kubeconfig of this cluster")
        fresh = self.kubeconfig(*self._users[kubeconfig])
        del self._users[fresh]
        fresh.replace(kubeconfig)

    def account_token(
        self,
        account: tuple[str, str],
        *,
        pod: str = "",
        audiences: tuple[str, ...] = (),
        seconds: int = 3600,
    ) -> str:
        """Return a token of a service account, as kubelet has one made for a projected volume.

        Args:
            account: namespace and name.
            pod: the name of a Pod of that namespace that the token is bound to.
            audiences: whom it is for, the API server unless given.

        Raises:
            LookupError: the account or the Pod does not exist.
        """
        namespace, name = account
        return self._plane.security.account_token(
            namespace, name, pod=pod, audiences=audiences, seconds=seconds
        )

    def dump(self) -> str:
        """Return what the cluster looks like now, for whoever has a failed test; no secrets."""
        found = picture.lines(self.client, self.nodes, self._hubs, self.faults.rules())
        return "\n".join(found) + "\n"

    def settle(self, patience_seconds: float = 30.0) -> bool:
        """Return when nothing is in flight and nothing changes any more.

        What waits for its time, such as a retry in half a second, does not count.

        Returns:
            Whether it came to rest within the caller's patience, in real seconds.
        """
        seen = self.api.store.version

        def busy() -> bool:
            nonlocal seen
            before, seen = seen, self.api.store.version
            return before != seen or not self.api.idle()

        if isinstance(self.clock, ManualClock):
            self.clock.rest()
        return wait_for_rest(busy, patience_seconds=patience_seconds, calm_seconds=_CALM_SECONDS)


def _documents(path: Path) -> Iterator[Json]:
    files = sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]
    for file in files:
        for document in yaml.safe_load_all(file.read_text("utf-8")):
            if document is not None:
                yield document
