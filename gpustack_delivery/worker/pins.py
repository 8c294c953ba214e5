"""What every node keeps against collection: the union of what the prefetches of all namespaces ask.

`spec.pinned` of a NodeModelStore is written here and nowhere else, under a field manager of its
own, so that no change of the configuration drops a pin and no pin reverts a configuration. Nothing
is written before every prefetch has been asked once: an empty union would let go what is needed.

Rule: MP-PIN-02.
"""

from __future__ import annotations

import threading
from typing import Final

from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.node_store import NodeModelStore
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES, Json
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies

FIELD_MANAGER: Final = "gpustack-delivery-prefetch"
_THREADS: Final = 2


class Pins:
    """The controller of pins; keys are node names."""

    def __init__(self, kube: Kube, clock: Clock, observer: Observer, copies: Copies) -> None:
        self._kube = kube
        self._copies = copies
        self._lock = threading.Lock()
        self._wishes: dict[Key, tuple[str, frozenset[str]]] = {}
        self._by_node: dict[str, dict[Key, str]] = {}
        self._controller = Controller("pins", self._reconcile, clock, observer, threads=_THREADS)
        copies.node_stores.subscribe(self._store_changed)

    def start(self) -> None:
        """Begin to write; every prefetch's wish is known by then."""
        self._controller.start()
        for key in self._copies.node_stores.items():
            self._controller.enqueue(key)

    def stop(self) -> None:
        """Let the work under way end."""
        self._controller.stop()

    def wish(self, prefetch: Key, digest: str, nodes: frozenset[str]) -> None:
        """Take over what a prefetch wants pinned, in place of what it wanted before."""
        wanted = (digest, nodes) if nodes else ("", frozenset())
        with self._lock:
            before = self._wishes.get(prefetch, ("", frozenset()))
            if before == wanted:
                return
            for node in before[1]:
                self._take_back(node, prefetch)
            for node in nodes:
                self._by_node.setdefault(node, {})[prefetch] = digest
            if nodes:
                self._wishes[prefetch] = wanted
            else:
                del self._wishes[prefetch]
        moved = before[1] | nodes if before[0] != digest else before[1] ^ nodes
        for node in moved:
            self._controller.enqueue(("", node))

    def withdraw(self, prefetch: Key) -> None:
        """Forget a prefetch."""
        self.wish(prefetch, "", frozenset())

    def _take_back(self, node: str, prefetch: Key) -> None:
        wishes = self._by_node[node]
        del wishes[prefetch]
        if not wishes:
            del self._by_node[node]

    def _store_changed(
        self, key: Key, old: NodeModelStore | None, new: NodeModelStore | None
    ) -> None:
        if new is not None and (old is None or old.spec.pinned != new.spec.pinned):
            self._controller.enqueue(key)

    def _reconcile(self, key: Key) -> None:
        _, node = key
        stored = self._copies.node_stores.get(node)
        if stored is None or stored.metadata.terminating:
            return  # it is looked at again when there is one
        with self._lock:
            wanted = tuple(sorted(set(self._by_node.get(node, {}).values())))
        if stored.spec.pinned == wanted:
            return
        body: Json = {
            # With the UID an object that was made anew meanwhile is not mistaken for this one.
            "metadata": {"name": node, "uid": stored.metadata.uid},
            "spec": {"pinned": list(wanted)},
        }
        self._kube.apply(NODE_MODEL_STORES, body, field_manager=FIELD_MANAGER)
