"""ModelStoreBindings: what the namespace's prefetches have made nodes hold, against the grant.

Rules: MP-BUD-01, MP-BUD-02, MP-BUD-03, MP-BUD-04.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpustack_delivery.decisions.budget import account, measure
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.grants import ModelStore, ModelStoreBinding
from gpustack_delivery.vocabulary.node_store import ModelEntry
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch
from gpustack_delivery.vocabulary.resources import MODEL_STORE_BINDINGS, Json
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.residents import Residents

FIELD_MANAGER: Final = "gpustack-delivery-bindings"
REPORT_SECONDS: Final = 1.0
_THREADS: Final = 2


class Bindings:
    """The controller of ModelStoreBindings; keys are namespace and name."""

    def __init__(
        self, kube: Kube, clock: Clock, observer: Observer, copies: Copies, residents: Residents
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._copies = copies
        self._residents = residents
        self._controller = Controller(
            "bindings", self._reconcile, clock, observer, threads=_THREADS
        )
        copies.bindings.subscribe(self._binding_changed)
        copies.prefetches.subscribe(self._prefetch_changed)
        copies.artifacts.subscribe(self._artifact_changed)
        copies.stores.subscribe(self._store_changed)
        residents.subscribe(self._entry_changed)

    def start(self) -> None:
        """Begin to work; the copies are synced by then."""
        self._controller.start()
        for key in self._copies.bindings.items():
            self._controller.enqueue(key)

    def stop(self) -> None:
        """Let the work under way end."""
        self._controller.stop()

    def _enqueue_in(self, namespaces: Iterable[str], delay_seconds: float = 0.0) -> None:
        spaces = frozenset(namespaces)
        for key in self._copies.bindings.items():
            if key[0] in spaces:
                self._controller.enqueue(key, delay_seconds)

    def _binding_changed(
        self, key: Key, old: ModelStoreBinding | None, new: ModelStoreBinding | None
    ) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._controller.enqueue(key)

    def _prefetch_changed(
        self, key: Key, old: ModelPrefetch | None, new: ModelPrefetch | None
    ) -> None:
        if old is None or new is None or _named(old) != _named(new):
            self._enqueue_in([key[0]])

    def _artifact_changed(
        self, key: Key, old: ModelArtifact | None, new: ModelArtifact | None
    ) -> None:
        if old is None or new is None or old.status.resolved != new.status.resolved:
            self._enqueue_in([key[0]])

    def _store_changed(self, key: Key, old: ModelStore | None, new: ModelStore | None) -> None:
        if old is not None and new is not None:
            return
        for place, binding in self._copies.bindings.items().items():
            if key[1] in binding.spec.store_names:
                self._controller.enqueue(place)

    def _entry_changed(self, digest: str, old: ModelEntry | None, new: ModelEntry | None) -> None:
        """Look again where a digest counts that a node came to list, or lists no longer."""
        if old is not None and new is not None and old.size_bytes == new.size_bytes:
            return
        concerned = {
            namespace
            for (namespace, _), prefetch in self._copies.prefetches.items().items()
            if _digest(self._copies.artifacts.get(prefetch.spec.artifact_name, namespace)) == digest
        }
        self._enqueue_in(concerned, REPORT_SECONDS)

    def _reconcile(self, key: Key) -> None:
        namespace, name = key
        copies = self._copies
        binding = copies.bindings.get(name, namespace)
        if binding is None or binding.metadata.terminating:
            return
        artifacts = {
            prefetch.spec.artifact_name: copies.artifacts.get(
                prefetch.spec.artifact_name, namespace
            )
            for (space, _), prefetch in copies.prefetches.items().items()
            if space == namespace and not prefetch.metadata.terminating
        }
        footprint = measure(
            artifacts, lambda digest: tuple(self._residents.entries(digest).values())
        )
        missing = [store for store in binding.spec.store_names if copies.stores.get(store) is None]
        status = account(binding, missing, footprint, self._clock.now())
        if status != binding.status:
            body: Json = {
                "metadata": {"name": name, "namespace": namespace, "uid": binding.metadata.uid},
                "status": status.to_wire(),
            }
            self._kube.apply(
                MODEL_STORE_BINDINGS, body, field_manager=FIELD_MANAGER, subresource="status"
            )


def _named(prefetch: ModelPrefetch) -> tuple[str, bool]:
    return prefetch.spec.artifact_name, prefetch.metadata.terminating


def _digest(artifact: ModelArtifact | None) -> str:
    resolved = artifact.status.resolved if artifact else None
    return resolved.manifest_digest if resolved else ""
