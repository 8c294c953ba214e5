"""Nodes that are objects alone: no machine, no kubelet, no thread; thousands of them cost little.

    cluster.paper_nodes.add("node-17", labels={"pool": "a"}, drivers=["model.csi.gpustack.ai"])

Each has the Node, the CSINode and the Lease that its kubelet would have written, and its configz
answers through the API server's node proxy. Nothing mounts on it. Its Lease is renewed when `renew`
is called; a node whose Lease is not, is lost after forty seconds like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from emulator.api import Api
from emulator.client import Client
from emulator.contracts import Caller, Clock, Json
from emulator.kubelet.configz import configuration
from emulator.kubelet.node_objects import NodeFacts, NodeObjects
from emulator.node import ALLOCATABLE


class PaperNode:
    """One of them."""

    def __init__(self, objects: NodeObjects, address: str) -> None:
        """Write nothing yet."""
        self.address = address
        self.objects = objects

    def configz(self) -> Json:
        """Return what the configz endpoint shows: kubelet's defaults."""
        return configuration({})


class PaperNodes:
    """The paper nodes of one cluster, by name."""

    def __init__(self, api: Api, clock: Clock, version: str) -> None:
        """Begin with none. `version` is kubelet's, such as v1.30.0."""
        self._api = api
        self._clock = clock
        self._version = version
        self._nodes: dict[str, PaperNode] = {}

    def get(self, name: str) -> PaperNode | None:
        """Return a node, or None."""
        return self._nodes.get(name)

    def add(
        self, name: str, *, labels: Mapping[str, str] | None = None, drivers: Iterable[str] = ()
    ) -> None:
        """Add a node whose CSINode lists some drivers.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._nodes:
            raise ValueError(f"there is a paper node {name!r} already: choose another name")
        number = len(self._nodes) + 1
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        facts = NodeFacts(name, address, self._version, ALLOCATABLE)
        groups = ("system:nodes", "system:authenticated")
        caller = Caller(f"system:node:{name}", groups, user_agent=f"kubelet/{self._version}")
        node = PaperNode(NodeObjects(Client(self._api, caller), facts, self._clock), address)
        node.objects.register()
        if labels:
            administrator = Client(self._api)
            administrator.patch("v1", "Node", name, {"metadata": {"labels": dict(labels)}})
        for driver in drivers:
            node.objects.add_driver(driver, name, {}, 0)
        self._nodes[name] = node

    def renew(self) -> None:
        """Renew every node's Lease, as each kubelet does every ten seconds."""
        for node in list(self._nodes.values()):
            node.objects.renew_lease()

    def heartbeat(self) -> None:
        """Report every node's status, as each kubelet does every five minutes."""
        for node in list(self._nodes.values()):
            node.objects.heartbeat()
