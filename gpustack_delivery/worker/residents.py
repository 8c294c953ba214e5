"""Which nodes list which digest: the nodes' reports turned around, digest first.

Made up from the copies' changes, so that one node's report costs what changed in it and no more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from gpustack_delivery.mirror import Key
from gpustack_delivery.vocabulary.node_store import ModelEntry, NodeModelStore
from gpustack_delivery.worker.copies import Copies

Listener: TypeAlias = Callable[[str, ModelEntry | None, ModelEntry | None], None]
"""Hears of a digest whose entry changed on some node: digest, old entry, new entry."""


class Residents:
    """The index; make it before the copies start, read it from any thread."""

    def __init__(self, copies: Copies) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, ModelEntry]] = {}
        self._listeners: list[Listener] = []
        copies.node_stores.subscribe(self._changed)

    def entries(self, digest: str) -> dict[str, ModelEntry]:
        """Return what nodes list of a digest, by node."""
        with self._lock:
            return dict(self._entries.get(digest, {}))

    def subscribe(self, listener: Listener) -> None:
        """Tell a listener of every changed entry, on the mirror's thread."""
        self._listeners.append(listener)

    def _changed(self, key: Key, old: NodeModelStore | None, new: NodeModelStore | None) -> None:
        _, node = key
        before, after = _by_digest(old), _by_digest(new)
        moved = [
            (digest, before.get(digest), after.get(digest))
            for digest in before.keys() | after.keys()
            if before.get(digest) != after.get(digest)
        ]
        with self._lock:
            for digest, _, entry in moved:
                self._place(digest, node, entry)
        for digest, was, entry in moved:
            for listener in self._listeners:
                listener(digest, was, entry)

    def _place(self, digest: str, node: str, entry: ModelEntry | None) -> None:
        if entry is not None:
            self._entries.setdefault(digest, {})[node] = entry
            return
        holders = self._entries[digest]
        del holders[node]
        if not holders:
            del self._entries[digest]


def _by_digest(store: NodeModelStore | None) -> dict[str, ModelEntry]:
    return {entry.digest: entry for entry in store.status.models} if store else {}
