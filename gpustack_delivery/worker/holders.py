"""Which nodes have which digest: the nodes' reports turned around, and kept up to date entry by
entry.

A change of one node costs work for that node's changed entries alone, however many nodes there are.
A digest counts as changed when the node's state of it did, or its progress passed another step.

Rule: AR-RES-07.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from gpustack_delivery.decisions.census import count, progress_step
from gpustack_delivery.mirror import Key
from gpustack_delivery.vocabulary.artifact import ModelArtifact, NodeCounts
from gpustack_delivery.vocabulary.node_store import ModelEntry, NodeModelStore


class Holders:
    """The index; both `…_changed` methods hear of mirrors' changes, reads are safe anywhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, ModelEntry]] = {}
        self._wanted: dict[str, set[Key]] = {}

    def node_changed(
        self, name: str, old: NodeModelStore | None, new: NodeModelStore | None
    ) -> set[Key]:
        """Take over a node's report; return the artifacts whose counts may have changed."""
        before, after = _by_digest(old), _by_digest(new)
        concerned: set[Key] = set()
        with self._lock:
            for digest in before.keys() | after.keys():
                was, entry = before.get(digest), after.get(digest)
                if was == entry:
                    continue
                self._place(name, digest, entry)
                if was is None or entry is None or progress_step(was) != progress_step(entry):
                    concerned |= self._wanted.get(digest, set())
        return concerned

    def artifact_changed(
        self, key: Key, old: ModelArtifact | None, new: ModelArtifact | None
    ) -> None:
        """Note which digest an artifact stands for now."""
        was, wants = _digest(old), _digest(new)
        if was == wants:
            return
        with self._lock:
            if was:
                _remove(self._wanted, was, key)
            if wants:
                self._wanted.setdefault(wants, set()).add(key)

    def count(self, digest: str) -> NodeCounts:
        """Count the nodes that have a digest."""
        with self._lock:
            entries = tuple(self._entries.get(digest, {}).values())
        return count(entries)

    def _place(self, node: str, digest: str, entry: ModelEntry | None) -> None:
        if entry is not None:
            self._entries.setdefault(digest, {})[node] = entry
            return
        holders = self._entries[digest]
        del holders[node]
        if not holders:
            del self._entries[digest]


def _remove(wanted: dict[str, set[Key]], digest: str, key: Key) -> None:
    wanted[digest].discard(key)
    if not wanted[digest]:
        del wanted[digest]


def _by_digest(store: NodeModelStore | None) -> Mapping[str, ModelEntry]:
    return {entry.digest: entry for entry in store.status.models} if store else {}


def _digest(artifact: ModelArtifact | None) -> str:
    if artifact is None or artifact.status.resolved is None:
        return ""
    return artifact.status.resolved.manifest_digest
