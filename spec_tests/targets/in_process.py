"""The in-process target: worker and plugins as threads on the emulator, on a clock that tests move.

Between them runs what runs in production: HTTP and TLS to the API server and its webhooks, gRPC on
unix sockets, HTTP to the hub. What is missing is a process of their own, so a kill is played (see
`_Seat.kill_plugin`).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.hubs.huggingface import HuggingFaceHub
from spec_tests import oracle
from spec_tests.observe import LogTail
from spec_tests.scenario import World
from spec_tests.targets import Ended, Implementation, Installation, RunningPlugin
from spec_tests.targets.rights import Rights
from spec_tests.targets.settings import point_at_hub, withdraw
from spec_tests.worlds import Log, Shape


class _Seat:
    """One cluster with one installation of the implementation."""

    def __init__(self, cluster: Cluster, installation: Installation, log: LogTail) -> None:
        self.cluster: Any = cluster
        self.clock: Any = cluster.clock
        self.log: Log = log
        self.hub: Any = cluster.add_hub()
        self.plugin_user = ""
        self.worker_user = ""
        self._installation = installation

    def advance(self, seconds: float) -> None:
        """Move the clock and let everything come to rest."""
        self.clock.advance(seconds)
        self.cluster.settle()

    def start_plugin(self, node: Any) -> RunningPlugin:
        """Start the plugin of an emulated node."""
        return self._installation.start_plugin(node)

    def add_node(self, name: str) -> Any:
        """Add a node."""
        return self.cluster.add_node(name)

    def kill_plugin(self, node: Any, plugin: RunningPlugin) -> None:
        """End a plugin as SIGKILL does: what lay on disk at that instant is what there is.

        Threads cannot be killed, so the cache is copied, the plugin is stopped, and the copy takes
        the place of whatever the ending threads still wrote. Kill while the node is at rest: the
        copy is no snapshot.
        """
        root: Path = node.cache_root
        copy = root.with_name(root.name + ".killed")
        shutil.copytree(root, copy, symlinks=True)
        plugin.stop()
        _remove(root)
        copy.rename(root)

    def second_hub(self) -> HuggingFaceHub:
        """Add another hub on other ports, for what must not reach it."""
        hub: HuggingFaceHub = self.cluster.add_hub()
        return hub


class InProcess:
    """Builds worlds for one implementation."""

    kind = "in-process"

    def __init__(self, implementation: Implementation) -> None:
        """Judge this implementation."""
        self.implementation = implementation
        self.features = implementation.features
        self.rights = Rights()

    @contextmanager
    def world(self, shape: Shape) -> Iterator[World]:
        """Give a world of a shape, and take it down."""
        implementation = self.implementation
        clock = ManualClock()
        with (
            _listening() as log,
            Cluster(
                kubernetes=shape.kubernetes,
                clock=clock,
                kernel_mounts=shape.kernel_mounts,
                translate=implementation.translate,
            ) as cluster,
            ExitStack() as stack,
        ):
            peers = {"maxServingStreams": shape.peer_streams, "streamsPerSource": 4}
            values = {
                "worker": {"enabled": shape.worker, "env": _environment(shape.seeds)},
                "modelManager": {"port": shape.peer_port, "peerSync": peers},
            }
            installation = implementation.on(cluster, values)
            stack.callback(installation.close)
            installation.install()
            seat = _Seat(cluster, installation, log)
            prefix = f"system:serviceaccount:{oracle.OPERATOR_NAMESPACE}"
            seat.plugin_user = f"{prefix}:{implementation.plugin_account}"
            seat.worker_user = f"{prefix}:{implementation.worker_account}"
            self.rights.watch(cluster, (seat.plugin_user, seat.worker_user))
            if shape.worker:
                point_at_hub(cluster, seat.hub.url)
                withdraw(cluster, shape.unserved)
                try:
                    installation.start_worker()
                except Exception as error:
                    raise Ended(f"the worker does not start: {error}\n{log.text}") from error
            yield World(seat, shape)


def _environment(seeds: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the worker's environment as a Deployment states it."""
    named = {"GPUSTACK_MODEL_ARTIFACT_DELIVERY_MODE": "Node", **seeds}
    return [{"name": name, "value": value} for name, value in named.items()]


@contextmanager
def _listening() -> Iterator[LogTail]:
    """Keep what everybody logs at the level that a process would write."""
    root, tail = logging.getLogger(), LogTail()
    level = root.level
    root.addHandler(tail)
    root.setLevel(logging.INFO)
    try:
        yield tail
    finally:
        root.setLevel(level)
        root.removeHandler(tail)


def _remove(root: Path) -> None:
    # Published directories are read-only; without write permission nobody but root could remove
    # them.
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(root)
