"""What a node identity may write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emulator.contracts import DeleteOptions, Json
from emulator.errors import ApiError
from tests.emulator.hooked_api import NODE_A, Rig, hooked_api


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    """An API with a webhook server."""
    with hooked_api() as made:
        yield made


def node(name: str, **metadata: Any) -> Json:
    """Return a Node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def test_a_node_writes_its_own_objects_alone(rig: Rig) -> None:
    """Another node's Node, Lease and CSINode are refused, as are restricted labels and taints."""
    kubelet = rig.client.as_caller(NODE_A)
    own = kubelet.create(node("node-a"))
    with pytest.raises(ApiError, match='node "node-a" is not allowed to modify node "node-b"'):
        kubelet.create(node("node-b"))
    own["metadata"]["labels"] = {"node-restriction.kubernetes.io/x": "b"}
    with pytest.raises(ApiError, match="is not allowed to modify labels: node-restriction"):
        kubelet.update(own)
    own["metadata"]["labels"] = {"kubernetes.io/hostname": "node-a"}
    own["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    with pytest.raises(ApiError, match='node "node-a" is not allowed to modify taints'):
        kubelet.update(own)
    with pytest.raises(ApiError, match="can only access CSINode with the same name"):
        kubelet.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": {"name": "node-b"},
                "spec": {"drivers": []},
            }
        )
    with pytest.raises(ApiError, match="can only access node lease with the same name"):
        kubelet.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "node-b", "namespace": "kube-node-lease"},
            }
        )


def test_a_node_deletes_its_own_pods_alone(rig: Rig) -> None:
    """A kubelet removes the Pods of its node and no others."""
    for name in ("node-a", "node-b"):
        rig.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"on-{name}", "namespace": "t1"},
                "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]},
            }
        )
    kubelet, now = rig.client.as_caller(NODE_A), DeleteOptions(grace_period_seconds=0)
    kubelet.delete("v1", "Pod", "on-node-a", namespace="t1", options=now)
    with pytest.raises(ApiError, match=r"can only delete pods with spec\.nodeName set to itself"):
        kubelet.delete("v1", "Pod", "on-node-b", namespace="t1", options=now)
