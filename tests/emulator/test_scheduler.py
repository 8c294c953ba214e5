"""Which node a Pod lands on, and what is said when it lands on none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.node import NodeOptions

Json = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Return a cluster with two nodes in two zones, one of them with a GPU."""
    with Cluster(clock=ManualClock()) as built:
        built.add_node("node-a", labels={"zone": "a"})
        gpu = NodeOptions(allocatable={"nvidia.com/gpu": "1"})
        built.add_node("node-b", labels={"zone": "b"}, options=gpu)
        assert built.settle()
        yield built


def place(cluster: Cluster, name: str, **spec: Any) -> Json:
    """Create a Pod without a node and return it when all has settled."""
    containers = [{"name": "c", "image": "i"}]
    cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": containers, **spec},
        }
    )
    assert cluster.settle()
    return cluster.client.get("v1", "Pod", name, namespace="default")


def by_name(node: str) -> Json:
    """Return affinity that only one node satisfies, by its name."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_affinity_on_the_nodes_name_decides(cluster: Cluster) -> None:
    """A Pod that wants one node by name lands there and runs, whatever else is free."""
    pods = [place(cluster, f"p{number}", affinity=by_name("node-b")) for number in range(3)]
    assert [pod["spec"]["nodeName"] for pod in pods] == ["node-b"] * 3
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
    events = cluster.client.list("v1", "Event", namespace="default")
    scheduled = [e["message"] for e in events if e["reason"] == "Scheduled"]
    assert scheduled == [f"Successfully assigned default/p{n} to node-b" for n in range(3)]


def test_the_emptier_node_is_taken(cluster: Cluster) -> None:
    """Pods that fit everywhere spread over the nodes, beginning with the first by name."""
    names = [place(cluster, f"p{number}")["spec"]["nodeName"] for number in range(4)]
    assert names == ["node-a", "node-b", "node-a", "node-b"]


def condition(pod: Json) -> Json:
    """Return a Pod's PodScheduled condition."""
    return next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")


def test_a_pod_that_fits_nowhere_waits_and_says_why(cluster: Cluster) -> None:
    """The condition and one event carry the scheduler's sentence; a fitting node ends the wait."""
    pod = place(cluster, "far", nodeSelector={"zone": "c"})
    said = condition(pod)
    sentence = (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert (said["status"], said["reason"], said["message"]) == ("False", "Unschedulable", sentence)
    events = cluster.client.list("v1", "Event", namespace="default")
    assert [(e["reason"], e["message"], e["count"]) for e in events] == [
        ("FailedScheduling", sentence, 1)
    ]

    cluster.client.patch("v1", "Node", "node-a", {"metadata": {"labels": {"zone": "c"}}})
    assert cluster.settle()
    pod = cluster.client.get("v1", "Pod", "far", namespace="default")
    assert pod["spec"]["nodeName"] == "node-a"
    assert condition(pod)["status"] == "True"


def test_what_a_pod_takes_is_gone_until_it_ends(cluster: Cluster) -> None:
    """The second Pod for one GPU waits until the first has gone."""
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    first = place(cluster, "first", containers=containers)
    second = place(cluster, "second", containers=containers)
    assert first["spec"]["nodeName"] == "node-b"
    assert "nodeName" not in second["spec"]
    assert "2 Insufficient nvidia.com/gpu" in condition(second)["message"]
    cluster.client.delete("v1", "Pod", "first", namespace="default")
    assert cluster.settle()
    assert (
        cluster.client.get("v1", "Pod", "second", namespace="default")["spec"]["nodeName"]
        == "node-b"
    )


def test_a_cordoned_node_gets_nothing(cluster: Cluster) -> None:
    """Unschedulable keeps Pods away, but not one that names the node itself."""
    cluster.client.patch("v1", "Node", "node-a", {"spec": {"unschedulable": True}})
    assert cluster.settle()
    assert place(cluster, "other")["spec"]["nodeName"] == "node-b"
    waiting = place(cluster, "here", affinity=by_name("node-a"))
    assert "1 node(s) were unschedulable" in condition(waiting)["message"]
    assert place(cluster, "named", nodeName="node-a")["status"]["phase"] == "Running"


def test_a_demand_that_is_not_judged_is_refused(cluster: Cluster) -> None:
    """Required Pod affinity is not ignored: the Pod waits, and the reason names the field."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    wanted = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod = place(cluster, "close", affinity=wanted)
    assert "does not judge spec.affinity.podAffinity" in condition(pod)["message"]


def test_other_schedulers_pods_and_gated_ones_are_left_alone(cluster: Cluster) -> None:
    """A Pod of another scheduler, or with a gate, is not touched."""
    for name, spec in (
        ("other", {"schedulerName": "kueue"}),
        ("gated", {"schedulingGates": [{"name": "g"}]}),
    ):
        pod = place(cluster, name, **spec)
        assert "nodeName" not in pod["spec"]
        assert pod["status"].get("conditions", []) == []
