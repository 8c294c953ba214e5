"""The node plugin, put together: what it needs, what it owns, in which order it starts.

The order is the safety: the cache is taken first, then the references are rebuilt from the live
mounts, then what a kill left behind is cleared, and only then does anything answer. Where the
cache's filesystem does not answer, that waits, and so does every mount. `stop` saves
nothing, because nothing needs saving: a plugin that was killed at any instruction starts from the
same files as one that was stopped.

Rules: NS-AUT-14, NS-REF-05..07, NS-RES-15, NS-MNT-05.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpustack_delivery.decisions.addresses import listening_fault, object_name_fault
from gpustack_delivery.decisions.authorization import KubeletDirectory
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.mirror import Mirror
from gpustack_delivery.node.attempts import Attempts
from gpustack_delivery.node.cache import CacheRoot
from gpustack_delivery.node.collector import Collector, Store
from gpustack_delivery.node.configuration import Configuration, Connect
from gpustack_delivery.node.csi import DriverSocket
from gpustack_delivery.node.delivery import Surroundings
from gpustack_delivery.node.downloading import Limits
from gpustack_delivery.node.endpoints import Endpoints
from gpustack_delivery.node.health import Health
from gpustack_delivery.node.ledger import Ledger
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.node.mounting import Mounting, Reception
from gpustack_delivery.node.partials import Partials
from gpustack_delivery.node.peers.options import OFF, PeerOptions
from gpustack_delivery.node.peers.syncing import PeerSync
from gpustack_delivery.node.references import References
from gpustack_delivery.node.reporter import Reporter, Sources, World
from gpustack_delivery.node.routes import Router
from gpustack_delivery.node.trees import Trees
from gpustack_delivery.ports import Clock, Disk, Selection
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS

__all__ = ["Plugin", "PluginOptions", "World"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """How a plugin is started; checks itself.

    Args:
        node_name: the Node it runs on, and the name of its NodeModelStore.
        kubelet_dir: kubelet's root directory; targets outside it are refused.
        cache_root: where models are kept; empty, or laid out by an earlier start.
        csi_socket: where kubelet calls.
        secure_port: the HTTPS port of metrics and health; 0 takes a free one.
        namespace: the operator's namespace, where CA ConfigMaps live.
        host: the address the HTTPS port listens on.
        peer_sync: node-to-node sync; off unless it has a port.

    Raises:
        ConfigurationFault: a value cannot be used; the message names it.
    """

    node_name: str
    kubelet_dir: Path
    cache_root: Path
    csi_socket: Path
    secure_port: int
    namespace: str
    host: str = "127.0.0.1"
    peer_sync: PeerOptions = OFF

    def __post_init__(self) -> None:
        if not self.node_name:
            raise ConfigurationFault("--node-name is required: the name of the Node this runs on")
        for flag, text, fault in (
            ("--node-name", self.node_name, object_name_fault(self.node_name)),
            ("--namespace", self.namespace, object_name_fault(self.namespace)),
            ("--host", self.host, listening_fault(self.host)),
        ):
            if fault:
                raise ConfigurationFault(f"{flag} {fault}: {text!r}")
        for flag, path in (
            ("--kubelet-dir", self.kubelet_dir),
            ("--cache-root", self.cache_root),
            ("--csi-socket", self.csi_socket),
        ):
            if not path.is_absolute() or "\0" in str(path):
                raise ConfigurationFault(f"{flag} must be an absolute path: {str(path)!r}")
        if not 0 <= self.secure_port <= 65535:
            raise ConfigurationFault(f"--secure-port must be 0 to 65535: {self.secure_port}")
        if self.cache_root == Path(self.cache_root.anchor):
            raise ConfigurationFault("--cache-root must not be the root of the filesystem")


class Plugin:
    """One node's plugin, from `start` to `stop`.

    Args:
        options: how it is started.
        world: the node and the API.
        routes: makes what connects the node to the hubs.

    Raises:
        ConfigurationFault: the socket path is too long.
    """

    def __init__(
        self,
        options: PluginOptions,
        world: World,
        routes: Callable[[Limits, Clock, Disk], Connect] = Router,
    ) -> None:
        self._options = options
        self._world = world
        kubelet = KubeletDirectory(
            PurePosixPath(os.path.normpath(options.kubelet_dir)),
            PurePosixPath(os.path.realpath(options.kubelet_dir)),
        )
        clock, disk, mounts = world.clock, world.disk, world.mounts
        root = CacheRoot(options.cache_root, disk)
        self._store = Store(
            root=root,
            trees=Trees(root, disk, clock),
            partials=Partials(root),
            ledger=Ledger(root, disk),
            references=References(root, disk, (Path(kubelet.path), Path(kubelet.resolved))),
        )
        self._health = Health(self._store, mounts, clock)
        self._metrics = Metrics()
        self._reporter = Reporter(options.node_name, options.namespace, world)
        self._artifacts = Mirror(
            world.kube, clock, Selection(MODEL_ARTIFACTS), ModelArtifact.from_wire
        )
        limits = Limits(clock)
        self._configuration = Configuration(
            routes(limits, clock, disk), limits, self._beside_kubelet
        )
        self._collector = Collector(
            self._store, self._configuration, (clock, disk, mounts), self._metrics
        )
        self._peers: PeerSync | None = None
        if options.peer_sync.port:
            place = (options.node_name, options.namespace)
            self._peers = PeerSync(
                options.peer_sync, place, self._store.trees, limits, (world.kube, clock, disk)
            )
        around = Surroundings(
            self._store, self._collector, self._configuration, self._metrics, clock, self._peers
        )
        self._attempts = Attempts(around, self._reporter.changed)
        reception = Reception(
            self._store, self._health, self._artifacts, self._attempts, mounts, self._metrics, clock
        )
        mounting = Mounting(reception, kubelet, self._reporter.changed)
        self._socket = DriverSocket(options.csi_socket, options.node_name, mounting)
        self._endpoints = Endpoints(
            (options.host, options.secure_port),
            self._metrics,
            self._unready,
            self._attempts.running,
        )

    @property
    def secure_port(self) -> int:
        """Return the port that metrics and health are served on."""
        return self._endpoints.port

    def start(self) -> None:
        """Take the cache, make it whole, and serve.

        Raises:
            ConfigurationFault: kubelet's directory, the cache, the socket or the port cannot be
            used; nothing is left running.
        """
        if not os.path.isdir(kubelet := self._options.kubelet_dir):  # noqa: PTH112 - never raises
            # Made by us it would look like kubelet's, and every mount would be refused.
            raise ConfigurationFault(
                f"--kubelet-dir {kubelet} is no folder here: name kubelet's root directory, and "
                "mount it where it has the same path"
            )
        try:
            self._health.start()
            self._socket.start()
            self._listen()
            if self._peers is not None:
                self._peers.start()
            self._artifacts.start()
            self._attempts.start()
            sources = Sources(
                self._store,
                self._health,
                self._collector,
                self._configuration,
                self._attempts,
                self._metrics,
            )
            self._reporter.start(sources)
        except BaseException:
            self.stop()
            raise
        _log.info(
            "plugin serving: node=%s cache=%s", self._options.node_name, self._store.root.path
        )

    def stop(self) -> None:
        """Stop serving and let go of everything; mounts stay. Safe twice."""
        self._socket.stop()
        self._endpoints.stop()
        self._artifacts.stop()
        self._attempts.stop()
        if self._peers is not None:
            self._peers.stop()
        self._reporter.stop()
        self._configuration.close()
        self._store.root.close()

    def _listen(self) -> None:
        try:
            self._endpoints.start()
        except OSError as error:
            where = f"{self._options.host}:{self._options.secure_port}"
            raise ConfigurationFault(f"cannot listen on {where}: {error.strerror}") from error

    def _beside_kubelet(self) -> bool:
        disk = self._world.disk
        return disk.device(self._store.root.path) == disk.device(self._options.kubelet_dir)

    def _unready(self) -> str:
        if not self._artifacts.synced:
            return "the ModelArtifacts have not been read yet"
        return "" if self._store.references.rebuilt else self._health.trouble
