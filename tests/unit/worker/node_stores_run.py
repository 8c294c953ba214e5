"""The node stores' controller on a small cluster, held by the tests of its sides."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpustack_delivery.vocabulary import settings
from gpustack_delivery.vocabulary.resources import (
    NODE_MODEL_STORES,
    SECRETS,
    Json,
)
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.events import Events
from gpustack_delivery.worker.node_stores import NodeStores
from gpustack_delivery.worker.settings import Settings
from tests.unit.fakes import eventually
from tests.unit.worker.world import (
    NAMESPACE,
    ClusterKube,
    SilentObserver,
    SteppedClock,
    add_driver,
    add_node,
    idle,
)

THREADS = 8  # four of the controller, four that read kubelets
PATH = "/api/v1/nodes/node-a/proxy/configz"


def set_setting(kube: ClusterKube, setting: settings.Setting, value: str) -> None:
    """Store one Setting's value."""
    data = {setting.name: base64.b64encode(value.encode()).decode()}
    metadata = {"name": settings.SECRET_NAME, "namespace": NAMESPACE}
    kube.put(SECRETS, {"metadata": metadata, "data": data})


class Run:
    """The running controller, seen from outside."""

    def __init__(self, kube: ClusterKube, clock: SteppedClock) -> None:
        self.clock = clock
        self._kube = kube

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition, and then until everything rests."""
        eventually(condition)
        self.rest()

    def rest(self) -> None:
        """Wait until everything rests."""
        idle(self._kube, self.clock, THREADS)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything come to rest."""
        self.clock.advance(seconds)
        self.rest()


@contextmanager
def running(kube: ClusterKube) -> Iterator[Run]:
    """Run the controller on a cluster."""
    clock = SteppedClock()
    copies = Copies(kube, clock)
    following = Settings(kube, clock, NAMESPACE, {}, Events(kube, clock))
    controller = NodeStores(kube, clock, SilentObserver(), copies, following)
    following.start()
    copies.start()
    assert following.wait_synced(20)
    assert copies.wait_synced(20)
    controller.start()
    try:
        run = Run(kube, clock)
        run.rest()
        yield run
    finally:
        following.stop()
        copies.stop()
        controller.stop()


def cluster() -> ClusterKube:
    """Return a cluster with the driver and one node that runs the plugin."""
    kube = ClusterKube()
    add_driver(kube)
    add_node(kube, "node-a", pool="gpu")
    return kube


def spec(kube: ClusterKube, name: str = "node-a") -> Json:
    """Return a node's spec, empty while there is none."""
    found = kube.find(NODE_MODEL_STORES, name)
    return found["spec"] if found else {}
