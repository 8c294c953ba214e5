"""Where a Pod would rather run: on nodes that hold its model already.

It is a preference and never a requirement: a Pod runs elsewhere when those nodes are full, and its
node then downloads. The preference is taken when the Pod is made and stays as it is.

Rules: SC-PRF-01, SC-PRF-02, NS-REQ-04.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gpustack_delivery.vocabulary.conditions import holds
from gpustack_delivery.vocabulary.node_store import (
    READY,
    ModelEntry,
    ModelState,
    NodeModelStore,
)
from gpustack_delivery.vocabulary.resources import Json

HOSTNAME: Final = "kubernetes.io/hostname"
MAX_NODES: Final = 16
WEIGHT: Final = 50


def holders(
    digest: str, stores: Mapping[str, NodeModelStore], driven: Collection[str]
) -> tuple[str, ...]:
    """Return the nodes worth preferring: those mounting the digest, then the last to use it.

    Args:
        digest: what the Pod mounts.
        stores: every node's object, by the node's name.
        driven: the nodes whose CSINode lists the driver now.
    """
    ranked = [
        (not entry.referenced, -(entry.last_used_time or 0.0), node)
        for node, store in stores.items()
        if node in driven and holds(store.status.conditions, READY)
        for entry in store.status.models
        if _whole(entry, digest)
    ]
    return tuple(node for *_, node in sorted(ranked)[:MAX_NODES])


def term(hostnames: Sequence[str]) -> Json:
    """Return the preferred node-affinity term of one digest."""
    expression = {"key": HOSTNAME, "operator": "In", "values": list(hostnames)}
    return {"weight": WEIGHT, "preference": {"matchExpressions": [expression]}}


def _whole(entry: ModelEntry, digest: str) -> bool:
    return entry.digest == digest and entry.state is ModelState.READY
