"""Which ModelStores select which nodes, found out once and kept until labels or selectors move.

A pass over one pool then looks at its own nodes alone, however many others there are, and a node
that changes is matched with the stores, never a store with all nodes.
"""

from __future__ import annotations

import threading

from gpustack_delivery.mirror import Key
from gpustack_delivery.vocabulary.grants import ModelStore
from gpustack_delivery.worker.copies import Copies, NodeFacts


class Pools:
    """The index; make it before the copies start, read it from any thread."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._lock = threading.Lock()
        self._nodes: dict[str, set[str]] = {}
        self._stores: dict[str, frozenset[str]] = {}
        copies.nodes.subscribe(self._node_changed)
        copies.stores.subscribe(self._store_changed)

    def nodes_of(self, store: str) -> frozenset[str]:
        """Return the names of the nodes that a store selects, those that leave left out."""
        with self._lock:
            return frozenset(self._nodes.get(store, ()))

    def size_of(self, store: str) -> int:
        """Return how many nodes a store selects."""
        with self._lock:
            return len(self._nodes.get(store, ()))

    def stores_of(self, node: str) -> frozenset[str]:
        """Return the names of the stores that select a node."""
        with self._lock:
            return self._stores.get(node, frozenset())

    def _node_changed(self, key: Key, old: NodeFacts | None, new: NodeFacts | None) -> None:
        if old is not None and new is not None and not moved(old, new):
            return
        # The copies are read under the lock: whichever of two changes comes second sees the first.
        with self._lock:
            self._place(key[1])

    def _store_changed(self, key: Key, old: ModelStore | None, new: ModelStore | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        name = key[1]
        with self._lock:
            store = self._copies.stores.get(name)
            nodes = self._copies.nodes.items().items() if store is not None else ()
            found = {node for (_, node), facts in nodes if _selects(store, facts)}
            before = self._nodes.pop(name, set())
            for node in before - found:
                self._stores[node] -= {name}
            for node in found - before:
                self._stores[node] = self._stores.get(node, frozenset()) | {name}
            if found:
                self._nodes[name] = found

    def _place(self, node: str) -> None:
        """Match a node with every store."""
        facts = self._copies.nodes.get(node)
        stores = self._copies.stores.items().items() if facts is not None else ()
        found = frozenset(name for (_, name), store in stores if _selects(store, facts))
        for name in self._stores.pop(node, frozenset()) - found:
            self._nodes[name].discard(node)
        for name in found:
            self._nodes.setdefault(name, set()).add(node)
        if found:
            self._stores[node] = found


def _selects(store: ModelStore | None, node: NodeFacts | None) -> bool:
    if store is None or node is None or node.terminating:
        return False
    return store.spec.node_selector.matches(node.labels)


def moved(old: NodeFacts, new: NodeFacts) -> bool:
    """Say whether a change of a node may move it between pools."""
    return (old.labels, old.terminating) != (new.labels, new.terminating)
