"""One NodeModelStore for each node that runs the plugin, its spec always the merge of the layers.

The object is created when the node's CSINode lists the driver, and kept when the driver flickers
out of it, as it does at every restart of the plugin. It goes with its Node, by owner reference, and
all of them go while there is no CSIDriver. What is written is applied under our own field manager:
`pinned` has another writer and is never touched.

Rules: NS-RES-01, NS-RES-02, NS-RES-03, NS-OWN-01..07, NS-OWN-10, NS-OWN-11, OP-UNI-01.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

from gpustack_delivery.decisions.configuration import Merged, merge
from gpustack_delivery.errors import NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.grants import ModelStore
from gpustack_delivery.vocabulary.metadata import OwnerReference
from gpustack_delivery.vocabulary.node_store import NodeModelStore, Spec
from gpustack_delivery.vocabulary.resources import DRIVER_NAME, NODE_MODEL_STORES, NODES, Json
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies, NodeFacts
from gpustack_delivery.worker.kubelets import Kubelets
from gpustack_delivery.worker.settings import Settings

FIELD_MANAGER: Final = "gpustack-delivery-configuration"
RETRY_SECONDS: Final = 60.0
_THREADS: Final = 4

_log = logging.getLogger(__name__)


class NodeStores:
    """The controller of NodeModelStores; keys are node names."""

    def __init__(
        self, kube: Kube, clock: Clock, observer: Observer, copies: Copies, settings: Settings
    ) -> None:
        self._kube = kube
        self._copies = copies
        self._settings = settings
        self._faults: dict[str, tuple[str, ...]] = {}
        self._controller = Controller(
            "node-stores", self._reconcile, clock, observer, threads=_THREADS
        )
        self._kubelets = Kubelets(
            kube, clock, observer, changed=self._enqueue, wanted=self._has_store
        )
        self._subscribe()

    def start(self) -> None:
        """Begin to work; the copies are synced by then."""
        self._kubelets.start()
        self._controller.start()
        self._enqueue_all()

    def stop(self) -> None:
        """Let the work under way end."""
        self._controller.stop()
        self._kubelets.stop()

    def _subscribe(self) -> None:
        copies = self._copies
        copies.node_stores.subscribe(self._store_changed)
        copies.csi_nodes.subscribe(lambda key, _old, _new: self._controller.enqueue(key))
        copies.nodes.subscribe(lambda key, _old, _new: self._controller.enqueue(key))
        copies.csi_drivers.subscribe(lambda _key, _old, _new: self._enqueue_all())
        copies.stores.subscribe(self._pool_changed)
        self._settings.subscribe(self._enqueue_all)

    def _store_changed(
        self, key: Key, old: NodeModelStore | None, new: NodeModelStore | None
    ) -> None:
        """Look at a node again when its spec or its owner moved; its status is the plugin's."""
        if (
            old is None
            or new is None
            or _ours(old.spec) != _ours(new.spec)
            or old.metadata.owners != new.metadata.owners
        ):
            self._controller.enqueue(key)

    def _pool_changed(self, _key: Key, old: ModelStore | None, new: ModelStore | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._enqueue_all()

    def _enqueue(self, node: str) -> None:
        self._controller.enqueue(("", node))

    def _enqueue_all(self) -> None:
        copies = self._copies
        for key in copies.nodes.items().keys() | copies.node_stores.items().keys():
            self._controller.enqueue(key)

    def _has_store(self, node: str) -> bool:
        copies = self._copies
        return copies.nodes.get(node) is not None and (
            copies.node_stores.get(node) is not None or bool(copies.csi_nodes.get(node))
        )

    def _reconcile(self, key: Key) -> float | None:
        _, name = key
        copies = self._copies
        stored = copies.node_stores.get(name)
        if stored is not None and stored.metadata.terminating:
            return None  # its end is announced, and then it is made anew
        node = copies.nodes.get(name)
        if copies.csi_drivers.get(DRIVER_NAME) is None:
            self._remove(stored, "there is no CSIDriver")
            return None
        if node is None and stored is not None and not stored.metadata.owners:
            self._remove(stored, "there is no such Node, and nothing else would remove it")
        if node is None or node.terminating:
            self._faults.pop(name, None)
            return None
        if stored is None and not copies.csi_nodes.get(name):
            return None
        return self._settle(name, node, stored)

    def _settle(self, name: str, node: NodeFacts, stored: NodeModelStore | None) -> float | None:
        """Write a node's object if it is not what the layers make of it."""
        reading = self._kubelets.reading(name)
        if reading is None:
            self._kubelets.read(name)
            if stored is None:
                return None  # the attempt calls back, also when it fails
        thresholds = reading.thresholds if reading else None
        if thresholds is None and stored is not None:
            thresholds = stored.spec.kubelet
        merged = merge(
            self._settings.values(),
            tuple(self._copies.stores.items().values()),
            node.labels,
            thresholds,
            stored.spec if stored else None,
        )
        self._report(name, merged)
        if merged.spec is not None:
            self._write(name, node, stored, merged.spec)
        return RETRY_SECONDS if merged.faults else None

    def _remove(self, stored: NodeModelStore | None, why: str) -> None:
        """Remove an object; the cache on the node stays."""
        if stored is None:
            return
        with suppress(NotFound):
            self._kube.delete(NODE_MODEL_STORES, stored.metadata.name, uid=stored.metadata.uid)
            _log.info("removed the NodeModelStore of %s: %s", stored.metadata.name, why)

    def _write(self, name: str, node: NodeFacts, stored: NodeModelStore | None, spec: Spec) -> None:
        owner = OwnerReference(NODES.api_version, NODES.kind, name, node.uid, controller=True)
        if stored is not None and owner in stored.metadata.owners and _ours(stored.spec) == spec:
            return
        body: Json = {
            "metadata": {"name": name, "ownerReferences": [owner.to_wire()]},
            "spec": spec.to_wire(),
        }
        self._kube.apply(NODE_MODEL_STORES, body, field_manager=FIELD_MANAGER)
        if stored is not None:
            self._kubelets.read(name)  # what is written rests on a fresh reading, then or at once

    def _report(self, name: str, merged: Merged) -> None:
        """Log what was set aside, once for each change of it."""
        if self._faults.get(name, ()) != merged.faults:
            self._faults[name] = merged.faults
            for fault in merged.faults:
                _log.warning("node %s: %s", name, fault)


def _ours(spec: Spec) -> Spec:
    """Return what this controller writes of a spec: everything but the pins."""
    return replace(spec, pinned=())
