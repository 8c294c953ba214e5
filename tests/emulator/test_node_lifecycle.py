"""A node is lost, deleted and comes back, held against the recording of a real control plane."""

from __future__ import annotations

from typing import Any

from emulator.node import Node
from tests.emulator.csi_plugin import Plugin, Script
from tests.emulator.kubelet_world import World, anonymous, recorded, world

Json = dict[str, Any]
FILE = "41-node-lost"
TOLERATES_20 = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 20,
}


def lose_node_b(there: World) -> tuple[Node, Plugin]:
    """Add node-b with a plugin and the recording's two Pods, and stop its kubelet."""
    there.add_driver()
    node = there.cluster.add_node("node-b")
    plugin = there.add_plugin(node, Script(node_id="node-b"))
    there.add_pod("lost", nodeName="node-b")
    there.add_pod("lost20", nodeName="node-b", tolerations=[TOLERATES_20])
    node.stop_kubelet()
    return node, plugin


def pod_facts(there: World, name: str) -> Any:
    """Return what the recording's timeline tells of a Pod."""
    pod = there.pod(name)
    if pod is None:
        return "gone"
    conditions = pod["status"]["conditions"]
    return {
        "phase": pod["status"]["phase"],
        "ready": [c["status"] for c in conditions if c["type"] == "Ready"],
        "disruptionTarget": [c["reason"] for c in conditions if c["type"] == "DisruptionTarget"],
        "terminating": "deletionTimestamp" in pod["metadata"],
    }


def facts(there: World) -> Json:
    """Return what the recording's timeline tells of the node and its Pods."""
    node = there.cluster.client.get("v1", "Node", "node-b")
    taints = node["spec"].get("taints") or []
    ready = next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")
    return {
        "nodeReady": ready,
        "taints": [f"{taint['key']}:{taint['effect']}" for taint in taints],
        **pods_facts(there),
    }


def pods_facts(there: World) -> Json:
    """Return what the recording's timeline tells of the Pods."""
    return {
        "podWithDefaultTolerations300s": pod_facts(there, "lost"),
        "podTolerating20s": pod_facts(there, "lost20"),
    }


def kept(entry: Json) -> Json:
    """Return what an entry of the recording's timeline tells of the Pods."""
    return {name: told for name, told in entry.items() if name.startswith("pod")}


def conditions(status: Json) -> list[list[Any]]:
    """Return the conditions of a Node or Pod without their times."""
    parts = ("type", "status", "reason", "message")
    return [[condition.get(part) for part in parts] for condition in status["conditions"]]


def expected(entry: Json) -> Json:
    """Return one entry of the recording's timeline without what is counted elsewhere."""
    return {
        k: v for k, v in entry.items() if k not in {"secondsAfterKubeletStop", "csinode", "lease"}
    }


def test_what_changes_when_a_kubelet_falls_silent() -> None:
    """After forty seconds the node is Unknown; a Pod goes when its toleration runs out."""
    timeline = recorded(FILE, "what changes, when (kubelet stopped at 0)")["timeline"]
    with world() as there:
        lose_node_b(there)
        node = there.cluster.client.get("v1", "Node", "node-b")
        healthy = recorded(FILE, "Node while healthy")
        assert conditions(node["status"]) == conditions(healthy)
        del healthy["annotations"][
            "node.alpha.kubernetes.io/ttl"
        ]  # a controller's that is not here
        assert node["metadata"]["annotations"] == healthy["annotations"]
        there.advance(1.6)
        assert facts(there) == expected(timeline[0])
        there.advance(46.8)
        assert facts(there) == expected(timeline[1])
        there.advance(19.9)
        assert facts(there) == expected(timeline[2])
        node = there.cluster.client.get("v1", "Node", "node-b")
        wanted = recorded(FILE, "Node object when unreachable")
        assert conditions(node["status"]) == conditions(wanted)
        pod = there.pod("lost20")
        assert pod is not None
        wanted = recorded(FILE, "evicted Pod: it stays Terminating since no kubelet confirms")
        assert conditions(pod["status"]) == conditions(wanted["object"]["status"])
        events = recorded(FILE, "events about the evicted Pod")["events"]
        found = [
            (e["reason"], e["message"], e["type"], e["source"]) for e in there.events("lost20")
        ]
        assert found == [(e["reason"], e["message"], e["type"], e["source"]) for e in events]


def test_what_changes_when_the_node_is_deleted_and_when_it_comes_back() -> None:
    """CSINode and Lease go at once, Pods after forty seconds, volumes with a new kubelet."""
    with world() as there:
        node, plugin = lose_node_b(there)
        there.advance(70)
        old = there.cluster.client.get("v1", "Node", "node-b")
        there.cluster.client.delete("v1", "Node", "node-b")
        assert there.cluster.settle()
        client = there.cluster.client
        assert [n["metadata"]["name"] for n in client.list("storage.k8s.io/v1", "CSINode")] == [
            "node-a"
        ]
        leases = client.list("coordination.k8s.io/v1", "Lease", namespace="kube-node-lease")
        assert [lease["metadata"]["name"] for lease in leases] == ["node-a"]
        timeline = recorded(FILE, "what changes after the Node object is deleted")["timeline"]
        assert pods_facts(there) == kept(timeline[0])
        there.advance(39)
        assert there.pod("lost") is not None
        there.advance(2)
        assert pods_facts(there) == kept(timeline[1])

        plugin.forget()
        node.start_kubelet()
        there.advance(2)
        made = [call.method for call in plugin.calls]
        name = (
            "kubelet back: calls to the CSI plugin "
            "(volumes of pods that no longer exist are unpublished)"
        )
        recording = recorded(FILE, name)
        assert made[:3] == [c["call"].rpartition("/")[2] for c in recording["calls"][:3]]
        assert made[3:] == ["NodeUnpublishVolume"] * 2
        again = client.get("v1", "Node", "node-b")
        assert again["metadata"]["uid"] != old["metadata"]["uid"]
        wanted = recorded(FILE, "Node re-registered")["object"]
        assert again["metadata"]["labels"] == wanted["metadata"]["labels"]
        csinode = client.get("storage.k8s.io/v1", "CSINode", "node-b")
        created = recorded(FILE, "CSINode re-created")["object"]
        assert csinode["spec"] == created["spec"]
        assert anonymous(csinode["metadata"]["ownerReferences"]) == anonymous(
            created["metadata"]["ownerReferences"]
        )
        assert node.mounts.table() == ()


def test_a_kubelet_that_comes_back_in_time_heals_everything() -> None:
    """The taints go, the node is ready again, and the Pod that was not evicted goes on."""
    with world() as there:
        node, _ = lose_node_b(there)
        there.advance(50)
        assert facts(there)["nodeReady"] == "Unknown"
        node.start_kubelet()
        there.advance(1)
        now = facts(there)
        assert (now["nodeReady"], now["taints"]) == ("True", [])
        assert now["podWithDefaultTolerations300s"] == {
            "phase": "Running", "ready": ["True"], "disruptionTarget": [], "terminating": False,
        }  # fmt: skip
        there.advance(400)
        assert facts(there)["podTolerating20s"]["terminating"] is False


def test_the_only_node_of_a_cluster_evicts_nobody() -> None:
    """When no node is ready any more there is no NoExecute taint, and every Pod stays."""
    with world() as there:
        there.add_driver()
        there.add_pod("alone", tolerations=[{**TOLERATES_20, "tolerationSeconds": 0}])
        there.node.stop_kubelet()
        there.advance(500)
        taints = there.node_object()["spec"]["taints"]
        assert [(taint["key"], taint["effect"]) for taint in taints] == [
            ("node.kubernetes.io/unreachable", "NoSchedule")
        ]
        pod = there.pod("alone")
        assert pod is not None
        assert "deletionTimestamp" not in pod["metadata"]


def test_other_peoples_taints_stay_and_evict() -> None:
    """A taint that an administrator sets is left alone, and its NoExecute evicts at once."""
    with world() as there:
        there.add_driver()
        there.add_pod("p")
        taint = {"key": "maintenance", "value": "yes", "effect": "NoExecute"}
        there.cluster.client.patch("v1", "Node", "node-a", {"spec": {"taints": [taint]}})
        assert there.cluster.settle()
        assert there.pod("p") is None
        there.advance(600)
        assert [t["key"] for t in there.node_object()["spec"]["taints"]] == ["maintenance"]
