"""ModelStores: how each pool stands. The overrides themselves are merged by `worker.node_stores`.

Rules: MP-RES-01, MP-RES-03.
"""

from __future__ import annotations

from typing import Final

from gpustack_delivery.decisions.pooling import PoolNode, describe
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.grants import ModelStore
from gpustack_delivery.vocabulary.node_store import NodeModelStore
from gpustack_delivery.vocabulary.resources import MODEL_STORES, Json
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies, NodeFacts

FIELD_MANAGER: Final = "gpustack-delivery-stores"
# A pool's sums move with every report of its nodes; nobody needs each of their steps.
CAPACITY_SECONDS: Final = 30.0
_THREADS: Final = 2


class Stores:
    """The controller of ModelStores; keys are their names."""

    def __init__(self, kube: Kube, clock: Clock, observer: Observer, copies: Copies) -> None:
        self._kube = kube
        self._clock = clock
        self._copies = copies
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
            if node is not None and (old is None or new is None or _moved(old, new)):
                self._enqueue_matching(node)

    def _report_changed(
        self, key: Key, old: NodeModelStore | None, new: NodeModelStore | None
    ) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._enqueue_of(key[1])
        elif old.status.capacity != new.status.capacity:
            self._enqueue_of(key[1], CAPACITY_SECONDS)

    def _enqueue_of(self, node: str, delay_seconds: float = 0.0) -> None:
        found = self._copies.nodes.get(node)
        if found is not None:
            self._enqueue_matching(found, delay_seconds)

    def _enqueue_matching(self, node: NodeFacts, delay_seconds: float = 0.0) -> None:
        for key, store in self._copies.stores.items().items():
            if store.spec.node_selector.matches(node.labels):
                self._controller.enqueue(key, delay_seconds)

    def _reconcile(self, key: Key) -> None:
        _, name = key
        stores = self._copies.stores.items()
        store = stores.get(key)
        if store is None or store.metadata.terminating:
            return
        others = [other for place, other in stores.items() if place != key]
        status = describe(store, others, self._nodes(), self._clock.now())
        if status != store.status:
            body: Json = {
                "metadata": {"name": name, "uid": store.metadata.uid},
                "status": status.to_wire(),
            }
            self._kube.apply(MODEL_STORES, body, field_manager=FIELD_MANAGER, subresource="status")

    def _nodes(self) -> dict[str, PoolNode]:
        copies = self._copies
        drivers, reports = copies.csi_nodes.items(), copies.node_stores.items()
        return {
            key[1]: PoolNode(node.labels, bool(drivers.get(key)), reports.get(key))
            for key, node in copies.nodes.items().items()
            if not node.terminating
        }


def _moved(old: NodeFacts, new: NodeFacts) -> bool:
    return (old.labels, old.terminating) != (new.labels, new.terminating)
