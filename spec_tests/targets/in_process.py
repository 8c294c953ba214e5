"""The in-process target: worker and plugins as threads on the emulator, on a clock that tests move.

Between them runs what runs in production: HTTP and TLS to the API server and its webhooks, gRPC on
unix sockets, HTTP to the hub. What is missing is a process of their own, so a kill is played (see
`nodes.Node.kill_plugin`).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.hubs.huggingface import HuggingFaceHub
from spec_tests import oracle
from spec_tests.observe import LogTail
from spec_tests.scenario import World
from spec_tests.targets import Implementation, Installation, RunningPlugin
from spec_tests.worlds import Shape

_SETTINGS: Final = "gpustack-settings"
_ENDPOINT: Final = "model-artifact-huggingface-endpoint"


class _Seat:
    """One cluster with one installation of the implementation."""

    def __init__(self, cluster: Cluster, installation: Installation, log: LogTail) -> None:
        self.cluster: Any = cluster
        self.clock: Any = cluster.clock
        self.log = log
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
            values = {"worker": {"enabled": shape.worker}}
            installation = implementation.on(cluster, values)
            stack.callback(installation.close)
            installation.install()
            seat = _Seat(cluster, installation, log)
            prefix = f"system:serviceaccount:{oracle.OPERATOR_NAMESPACE}"
            seat.plugin_user = f"{prefix}:{implementation.plugin_account}"
            seat.worker_user = f"{prefix}:{implementation.worker_account}"
            if shape.worker:
                _set(cluster, {_ENDPOINT: seat.hub.url})
                installation.start_worker()
            yield World(seat, shape)


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


def _set(cluster: Cluster, settings: dict[str, str]) -> None:
    """Write Settings before the worker starts, so that it never asks a hub out in the world."""
    cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SETTINGS, "namespace": oracle.OPERATOR_NAMESPACE},
            "data": {
                name: base64.b64encode(value.encode()).decode() for name, value in settings.items()
            },
        }
    )
