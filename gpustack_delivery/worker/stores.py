"""ModelStores: how each pool stands. The overrides themselves are merged by `worker.node_stores`.

A pass looks at every node of its pool, and a pool may have thousands that change one by one: the
larger it is, the longer are their changes gathered, so that work keeps in step with what changed.

Rules: MP-RES-01, MP-RES-03.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpustack_delivery.decisions.pooling import PoolNode, describe, has_overrides
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.grants import ModelStore
from gpustack_delivery.vocabulary.node_store import NodeModelStore, Spec
from gpustack_delivery.vocabulary.resources import MODEL_STORES, Json
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies, NodeFacts
from gpustack_delivery.worker.pools import Pools, moved

FIELD_MANAGER: Final = "gpustack-delivery-stores"
# A pool's sums move with every report of its nodes; nobody needs each of their steps.
CAPACITY_SECONDS: Final = 30.0
# Changed overrides come to all of a pool's nodes within seconds.
SPEC_SECONDS: Final = 1.0
# What a pool of ten nodes or more waits for after a change of one of them, for each ten.
TEN_NODES_SECONDS: Final = 1.0
_THREADS: Final = 2


class Stores:
    """The controller of ModelStores; keys are their names."""

    def __init__(self, kube: Kube, clock: Clock, observer: Observer, copies: Copies) -> None:
        self._kube = kube
        self._clock = clock
        self._copies = copies
        self._pools = Pools(copies)
        self._controller = Controller("stores", self._reconcile, clock, observer, threads=_THREADS)
        copies.stores.subscribe(self._store_changed)
        copies.nodes.subscribe(self._node_changed)
        copies.csi_nodes.subscribe(lambda key, _old, _new: self._enqueue_of(key[1]))
        copies.node_stores.subscribe(self._report_changed)

    def start(self) -> None:
        """Begin to work; the copies are synced by then."""
        self._controller.start()
        self._enqueue_all()

    def stop(self) -> None:
        """Let the work under way end."""
        self._controller.stop()

    def _enqueue_all(self) -> None:
        for key in self._copies.stores.items():
            self._controller.enqueue(key)

    def _store_changed(self, _key: Key, old: ModelStore | None, new: ModelStore | None) -> None:
        """Look at every store: whom one overlaps with, only all of them together tell."""
        if old is None or new is None or old.spec != new.spec:
            self._enqueue_all()

    def _node_changed(self, key: Key, old: NodeFacts | None, new: NodeFacts | None) -> None:
        for node in (old, new):
            if node is not None and (old is None or new is None or moved(old, new)):
                self._enqueue_matching(node)

    def _report_changed(
        self, key: Key, old: NodeModelStore | None, new: NodeModelStore | None
    ) -> None:
        node = key[1]
        if old is None or new is None:
            self._enqueue_of(node)
            return
        if old.spec != new.spec:
            self._spec_changed(node, old.spec, new.spec)
        if old.status.capacity != new.status.capacity:
            self._enqueue_of(node, CAPACITY_SECONDS)

    def _spec_changed(self, node: str, old: Spec, new: Spec) -> None:
        """Look at the stores that a node came to follow or follows no more; pins are no matter."""
        for name in self._pools.stores_of(node):
            store = self._copies.stores.get(name)
            if store is not None and has_overrides(old, store) != has_overrides(new, store):
                self._enqueue(name, SPEC_SECONDS)

    def _enqueue_of(self, node: str, delay_seconds: float = 0.0) -> None:
        for name in self._pools.stores_of(node):
            self._enqueue(name, delay_seconds)

    def _enqueue_matching(self, node: NodeFacts) -> None:
        for (_, name), store in self._copies.stores.items().items():
            if store.spec.node_selector.matches(node.labels):
                self._enqueue(name)

    def _enqueue(self, name: str, delay_seconds: float = 0.0) -> None:
        """Look at a pool later, at least after so long, for what moved at one of its nodes."""
        gathering = min(self._pools.size_of(name) // 10 * TEN_NODES_SECONDS, CAPACITY_SECONDS)
        self._controller.enqueue(("", name), max(delay_seconds, gathering))

    def _reconcile(self, key: Key) -> None:
        _, name = key
        store = self._copies.stores.get(name)
        if store is None or store.metadata.terminating:
            return
        members = self._pools.nodes_of(name)
        status = describe(
            store, self._rivals(name, members), self._nodes(members), self._clock.now()
        )
        if status != store.status:
            body: Json = {
                "metadata": {"name": name, "uid": store.metadata.uid},
                "status": status.to_wire(),
            }
            self._kube.apply(MODEL_STORES, body, field_manager=FIELD_MANAGER, subresource="status")

    def _rivals(self, name: str, members: Iterable[str]) -> list[ModelStore]:
        """Return the other stores that select nodes of a pool."""
        names = frozenset[str]().union(*map(self._pools.stores_of, members)) - {name}
        found = (self._copies.stores.get(other) for other in names)
        return [other for other in found if other is not None]

    def _nodes(self, members: Iterable[str]) -> dict[str, PoolNode]:
        """Return what the copies hold of a pool's nodes."""
        copies = self._copies
        return {
            name: PoolNode(
                node.labels, bool(copies.csi_nodes.get(name)), copies.node_stores.get(name)
            )
            for name in members
            if (node := copies.nodes.get(name)) is not None
        }
