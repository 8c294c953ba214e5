"""Which stores select which nodes: the index is what matching everything with everything gives."""

from __future__ import annotations

import random

import pytest

from gpustack_delivery.vocabulary.resources import MODEL_STORES, NODES, Json
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.pools import Pools
from tests.unit.fakes import eventually
from tests.unit.worker.world import ClusterKube, SteppedClock

NAMES = ("a", "b", "c")
SELECTORS: tuple[Json, ...] = ({}, {"matchLabels": {"pool": "x"}}, {"matchLabels": {"pool": "y"}})


def expected(kube: ClusterKube) -> set[tuple[str, str]]:
    """Return the pairs of store and node that belong together, worked out from scratch."""
    return {
        (store["metadata"]["name"], node["metadata"]["name"])
        for store in kube.all(MODEL_STORES)
        for node in kube.all(NODES)
        if "deletionTimestamp" not in node["metadata"]
        and store["spec"]["nodeSelector"].get("matchLabels", {}).items()
        <= node["metadata"]["labels"].items()
    }


def change(kube: ClusterKube, dice: random.Random) -> None:
    """Add, change or remove a node or a store."""
    resource, name = dice.choice([NODES, MODEL_STORES]), dice.choice(NAMES)
    if kube.find(resource, name) and dice.random() < 0.3:
        kube.remove(resource, name)
    elif resource is NODES:
        metadata: Json = {"name": name, "labels": {"pool": dice.choice("xyz")}}
        if dice.random() < 0.2:
            metadata["deletionTimestamp"] = "2026-09-25T06:00:00Z"
        kube.put(NODES, {"metadata": metadata})
    else:
        spec = {"nodeSelector": dice.choice(SELECTORS)}
        kube.put(MODEL_STORES, {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize("seed", range(4))
def test_the_index_follows_every_change(seed: int) -> None:
    """Both ways round, from what the lists hold and through every change that follows."""
    dice, kube = random.Random(seed), ClusterKube()  # noqa: S311 - dice, not secrets
    for _ in range(6):
        change(kube, dice)
    copies = Copies(kube, SteppedClock())
    pools = Pools(copies)

    def as_expected() -> bool:
        stores = {(store, node) for store in NAMES for node in pools.nodes_of(store)}
        nodes = {(store, node) for node in NAMES for store in pools.stores_of(node)}
        return stores == nodes == expected(kube)

    copies.nodes.start()
    copies.stores.start()
    try:
        for _ in range(60):
            eventually(as_expected, "the index")
            change(kube, dice)
    finally:
        copies.nodes.stop()
        copies.stores.stop()
