"""What a ModelStore's status says of its pool: how many nodes, what they hold, who overrides it.

Rules: MP-RES-01, MP-RES-03.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.decisions.configuration import winner
from gpustack_delivery.vocabulary.conditions import FALSE, TRUE, Condition, assign
from gpustack_delivery.vocabulary.grants import (
    READY,
    SELECTOR_OVERLAP,
    ModelStore,
    StoreSpec,
    StoreStatus,
)
from gpustack_delivery.vocabulary.node_store import NodeModelStore, Spec

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node as a pool sees it: its object if there is one, and whether it is to have one."""

    labels: Mapping[str, str]
    has_plugin: bool
    store: NodeModelStore | None = None


def describe(
    store: ModelStore, others: Sequence[ModelStore], nodes: Mapping[str, PoolNode], now: float
) -> StoreStatus:
    """Return a store's status.

    Args:
        store: the store with the status it has.
        others: every other store.
        nodes: every node by name, those on their way out left out.
        now: seconds since the epoch.
    """
    matched = {
        name: node for name, node in nodes.items() if store.spec.node_selector.matches(node.labels)
    }
    rivals: set[str] = set()
    lost: set[str] = set()
    pending: list[str] = []
    for name, node in sorted(matched.items()):
        sharing = [other for other in others if other.spec.node_selector.matches(node.labels)]
        rivals |= {other.metadata.name for other in sharing}
        first = winner([store, *sharing], node.labels)
        if first is not None and first.metadata.name != store.metadata.name:
            lost.add(first.metadata.name)
        elif not _applied(store, node):
            pending.append(name)
    reported = [node.store.status.capacity for node in matched.values() if node.store]
    reported = [capacity for capacity in reported if capacity.total_bytes]
    conditions = store.status.conditions
    for condition in (_ready(store, len(matched), lost, pending), _overlap(rivals)):
        conditions = assign(conditions, condition, now=now)
    return StoreStatus(
        nodes=len(matched),
        total_bytes=sum(capacity.total_bytes for capacity in reported) if reported else None,
        stored_bytes=sum(capacity.stored_bytes for capacity in reported) if reported else None,
        conditions=conditions,
    )


def _applied(store: ModelStore, node: PoolNode) -> bool:
    """Say whether a node that the store wins has its overrides; one without a cache needs none."""
    if node.store is None:
        return not node.has_plugin
    return has_overrides(node.store.spec, store)


def has_overrides(spec: Spec, store: ModelStore) -> bool:
    """Say whether a node's configuration is as a store wants it."""
    return spec.store == store.metadata.name and _follows(spec, store.spec)


def _follows(spec: Spec, overrides: StoreSpec) -> bool:
    stated = (
        (overrides.watermarks, spec.watermarks),
        (overrides.concurrency, spec.download.concurrency),
        (overrides.bytes_per_second, spec.download.bytes_per_second),
    )
    return all(wanted is None or wanted == found for wanted, found in stated)


def _ready(store: ModelStore, matched: int, lost: set[str], pending: Sequence[str]) -> Condition:
    if not store.spec.node_selector.is_valid:
        message = (
            "nodeSelector holds an expression that is none; operators are In, NotIn, Exists and "
            "DoesNotExist, and only the first two take values"
        )
        return Condition(READY, FALSE, "SelectorInvalid", message)
    if not matched:
        return Condition(READY, TRUE, "NoNodes", "no node has the labels of nodeSelector")
    if lost:
        message = f"{_listed(lost)} comes first by name on some of its nodes and wins them"
        return Condition(READY, FALSE, "Overridden", message)
    if pending:
        message = f"{len(pending)} of {matched} nodes do not have the overrides yet"
        return Condition(READY, FALSE, "Applying", f"{message}: {_listed(pending)}")
    return Condition(READY, TRUE, "Applied", f"its nodes, {matched} in all, have the overrides")


def _overlap(rivals: set[str]) -> Condition:
    if not rivals:
        return Condition(SELECTOR_OVERLAP, FALSE, "Exclusive", "no other store selects its nodes")
    message = f"also selected by {_listed(rivals)}; the first name in the alphabet wins the nodes"
    return Condition(SELECTOR_OVERLAP, TRUE, "SharedNodes", message)


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
