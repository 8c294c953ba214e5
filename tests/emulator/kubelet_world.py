"""The world that kubelet's recordings come from, on a clock that stands still."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.node import Node
from tests.emulator.csi_plugin import NAME, Plugin, Script

Json = dict[str, Any]
_GOLDEN = Path(__file__).parent / "golden"


def recorded(file: str, name: str) -> Json:
    """Return one exchange of a recording."""
    exchanges = json.loads((_GOLDEN / f"{file}.json").read_text("utf-8"))["exchanges"]
    return next(exchange for exchange in exchanges if exchange["name"] == name)


@dataclass
class World:
    """A cluster with one node, one plugin, and the recordings' namespace, account and secret."""

    cluster: Cluster
    clock: ManualClock
    node: Node
    plugin: Plugin
    others: list[Plugin] = field(default_factory=list)

    def add_plugin(self, node: Node, script: Script) -> Plugin:
        """Start the plugin of another node; it ends with the world."""
        plugin = Plugin(node, self.clock, script)
        self.others.append(plugin)
        plugin.start()
        assert self.cluster.settle()
        return plugin

    def add_driver(self, **spec: Any) -> None:
        """Create the CSIDriver object."""
        preset = {
            "attachRequired": False,
            "podInfoOnMount": True,
            "volumeLifecycleModes": ["Ephemeral"],
            "fsGroupPolicy": "None",
        }
        self.cluster.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": NAME},
                "spec": {**preset, **spec},
            }
        )

    def add_pod(self, name: str, *, csi: Json | None = None, **spec: Any) -> Json:
        """Create a Pod with one volume, as the recordings did, and let it come as far as it can."""
        container: Json = {"name": "c", "image": "rig.local/pause:1"}
        container["volumeMounts"] = [{"name": "vol", "mountPath": "/vol"}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "n1"},
            "spec": {
                "nodeName": "node-a",
                "hostNetwork": True,
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": False,
                "serviceAccountName": "workload",
                "containers": [container],
                "volumes": [{"name": "vol", "csi": {"driver": NAME, **(csi or {})}}],
                **spec,
            },
        }
        created = self.cluster.client.create(pod)
        assert self.cluster.settle()
        return created

    def pod(self, name: str) -> Json | None:
        """Return a Pod as it is now, None when it is gone."""
        found = self.cluster.client.list(
            "v1", "Pod", namespace="n1", fields=f"metadata.name={name}"
        )
        return found[0] if found else None

    def delete_pod(self, name: str) -> None:
        """Delete a Pod and let it go as far as it goes at once."""
        self.cluster.client.delete("v1", "Pod", name, namespace="n1")
        assert self.cluster.settle()

    def events(self, name: str, *reasons: str) -> list[Json]:
        """Return the events about a Pod, in the order in which they were first written."""
        found = [
            event
            for event in self.cluster.client.list("v1", "Event", namespace="n1")
            if event["involvedObject"]["name"] == name
            and (not reasons or event["reason"] in reasons)
        ]
        return sorted(found, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def advance(self, seconds: float) -> None:
        """Move time."""
        self.clock.advance(seconds)
        assert self.cluster.settle()

    def csinode(self) -> Json:
        """Return the node's CSINode."""
        return self.cluster.client.get("storage.k8s.io/v1", "CSINode", "node-a")

    def node_object(self) -> Json:
        """Return the Node."""
        return self.cluster.client.get("v1", "Node", "node-a")


@contextmanager
def world(
    script: Script | None = None, *, started: bool = True, kubernetes: str = "1.36"
) -> Iterator[World]:
    """Build the world, with its plugin registered unless told otherwise, and take it down."""
    clock = ManualClock()
    with Cluster(kubernetes=kubernetes, clock=clock) as cluster:
        node = cluster.add_node("node-a")
        cluster.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n1"}},
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "workload", "namespace": "n1"},
                },
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "pubsec", "namespace": "n1"},
                    "data": {"user": "dTE=", "key": "azE="},
                },
            ]
        )
        plugin = Plugin(node, clock, script)
        if started:
            plugin.start()
        assert cluster.settle()
        built = World(cluster, clock, node, plugin)
        try:
            yield built
        finally:
            clock.advance(200)  # whatever a script still waits for is over then
            for one in (plugin, *built.others):
                one.stop()


def anonymous(value: Any) -> Any:
    """Return what was sent or stored with uids, paths and hashes made comparable."""
    if isinstance(value, dict):
        return {key: anonymous(one) for key, one in value.items()}
    if isinstance(value, list):
        return [anonymous(one) for one in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"^.*?/kubelet/", "/kubelet/", value)
    value = re.sub(r"<uid-\d+>|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>", value)
    return re.sub(r"[0-9a-f]{64}", "<hash>", value)
