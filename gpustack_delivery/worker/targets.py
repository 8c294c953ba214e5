"""Every prefetch's targets, expanded once and kept until something moves them.

A node whose labels change moves only the prefetches that mean it before or after, and those are
found by asking each of them about this one node.

Rules: MP-PLC-01, MP-PLC-02, MP-PLC-03, MP-PLC-05.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpustack_delivery.decisions.placement import Labels, Nodes, derive, expand, fault_of, matcher
from gpustack_delivery.mirror import Key
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch, Placement
from gpustack_delivery.worker.copies import Copies, NodeFacts


@dataclass(frozen=True, slots=True)
class _Expansion:
    """What was expanded, and to what; `names` is None until it is needed again."""

    placement: Placement
    artifact_name: str
    means: Callable[[Labels], bool]
    names: tuple[str, ...] | None = None


class Targets:
    """The expansions; safe from any thread. The listeners hear which prefetches moved."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._lock = threading.Lock()
        self._expansions: dict[Key, _Expansion] = {}
        self._listeners: list[Callable[[Key], None]] = []
        copies.nodes.subscribe(self._node_changed)
        copies.instance_types.subscribe(lambda _key, _old, _new: self._forget_where())
        copies.deployments.subscribe(lambda key, _old, _new: self._forget_where(key[0]))

    def subscribe(self, listener: Callable[[Key], None]) -> None:
        """Tell a listener of every prefetch whose targets may have moved."""
        self._listeners.append(listener)

    def of(self, prefetch: ModelPrefetch) -> tuple[tuple[str, ...], str]:
        """Return a prefetch's targets in order, and what is wrong with its placement, if it is."""
        key, spec = prefetch.metadata.key, prefetch.spec
        if fault := fault_of(spec.placement):
            return (), fault
        # The lock is held throughout, so that a node that changes meanwhile is heard of afterwards.
        with self._lock:
            known = self._expansions.get(key)
            if known is None or (known.placement, known.artifact_name) != (
                spec.placement,
                spec.artifact_name,
            ):
                known = _Expansion(spec.placement, spec.artifact_name, self._matcher(prefetch))
            names = known.names
            if names is None:
                names = expand(known.means, standing_nodes(self._copies.nodes.items()))
            self._expansions[key] = _Expansion(
                known.placement, known.artifact_name, known.means, names
            )
            return names, ""

    def drop(self, key: Key) -> None:
        """Forget a prefetch."""
        with self._lock:
            self._expansions.pop(key, None)

    def _matcher(self, prefetch: ModelPrefetch) -> Callable[[Labels], bool]:
        copies = self._copies
        namespace = prefetch.metadata.namespace
        deployments = copies.deployments.items().items()
        mine = (found for (space, _), found in deployments if space == namespace)
        kinds = {name: kind for (_, name), kind in copies.instance_types.items().items()}
        return matcher(prefetch.spec.placement, kinds, derive(mine, prefetch.spec.artifact_name))

    def _node_changed(self, _key: Key, old: NodeFacts | None, new: NodeFacts | None) -> None:
        was, now = _labels(old), _labels(new)
        if was == now:
            return
        moved = []
        with self._lock:
            for key, known in self._expansions.items():
                if _meant(known, was) != _meant(known, now):
                    moved.append(key)
                    self._expansions[key] = _Expansion(
                        known.placement, known.artifact_name, known.means
                    )
        self._tell(moved)

    def _forget_where(self, namespace: str | None = None) -> None:
        """Forget the expansions of a namespace that follow from deployments; None for all."""
        with self._lock:
            moved = [
                key
                for key, known in self._expansions.items()
                if namespace is None or (key[0] == namespace and known.placement == Placement())
            ]
            for key in moved:
                del self._expansions[key]
        self._tell(moved)

    def _tell(self, moved: list[Key]) -> None:
        for key in moved:
            for listener in self._listeners:
                listener(key)


def standing_nodes(nodes: dict[Key, NodeFacts]) -> Nodes:
    """Return the labels of the nodes that are not on their way out, by name."""
    return {name: node.labels for (_, name), node in nodes.items() if not node.terminating}


def _labels(node: NodeFacts | None) -> Labels | None:
    return None if node is None or node.terminating else node.labels


def _meant(known: _Expansion, labels: Labels | None) -> bool:
    return labels is not None and known.means(labels)
