"""Nodes that are objects alone: what others see of them is what a kubelet would have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator import Cluster
from emulator.clock import ManualClock
from gpustack_delivery.adapters.kube import connect

DRIVER = "model.csi.gpustack.ai"


def ready(cluster: Cluster, name: str) -> str:
    """Return whether a node is ready."""
    conditions = cluster.client.get("v1", "Node", name)["status"]["conditions"]
    return str(next(each["status"] for each in conditions if each["type"] == "Ready"))


def without_time(node: dict[str, Any]) -> Any:
    """Return a Node's spec, labels and conditions, without moments and its own name."""
    name = node["metadata"]["name"]
    conditions = [
        {key: value for key, value in each.items() if not key.endswith("Time")}
        for each in node["status"]["conditions"]
    ]
    labels = {key: value.replace(name, "?") for key, value in node["metadata"]["labels"].items()}
    return labels, conditions, node["status"]["allocatable"]


def test_it_looks_like_a_node() -> None:
    """Node, CSINode and configz are those of a machine with the same driver."""
    with Cluster() as cluster:
        cluster.add_node("machine")
        cluster.paper_nodes.add("paper", labels={"pool": "a"}, drivers=[DRIVER])
        client = cluster.client
        paper = client.get("v1", "Node", "paper")
        assert paper["metadata"]["labels"].pop("pool") == "a"
        assert without_time(paper) == without_time(client.get("v1", "Node", "machine"))
        (driver,) = client.get("storage.k8s.io/v1", "CSINode", "paper")["spec"]["drivers"]
        assert driver == {"name": DRIVER, "nodeID": "paper"}
        kube = connect(str(cluster.kubeconfig()))
        shown = [
            json.loads(kube.get_raw(f"/api/v1/nodes/{name}/proxy/configz", timeout_seconds=20))
            for name in ("paper", "machine")
        ]
        kube.close()
        assert shown[0] == shown[1]
        with pytest.raises(ValueError, match="another name"):
            cluster.paper_nodes.add("paper")


def test_it_lives_as_long_as_its_lease_is_renewed() -> None:
    """Renewed or reporting it stays ready; neither, it is lost like any other, and comes back."""
    clock = ManualClock()
    with Cluster(clock=clock) as cluster:
        cluster.paper_nodes.add("paper")
        for keep in (cluster.paper_nodes.renew, cluster.paper_nodes.heartbeat):
            for _ in range(4):
                clock.advance(20)
                keep()
            cluster.settle()
            assert ready(cluster, "paper") == "True"
        clock.advance(60)
        cluster.settle()
        assert ready(cluster, "paper") == "Unknown"
        cluster.paper_nodes.heartbeat()
        cluster.settle()
        assert ready(cluster, "paper") == "True"
