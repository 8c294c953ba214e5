"""What a namespace's warm content takes, measured and projected, and what that makes of its grant.

Measured: each distinct digest at its full size, for every node that holds it, whatever state its
entry is in. Who else uses the same tree does not matter, so nobody games the figure by warming what
another namespace has warmed. A figure that cannot be had is absent, and zero is a measurement.

Projected, when a prefetch is admitted: each distinct digest at its resolved size, times the widest
number of nodes that any prefetch of the namespace asks for. What is not resolved yet weighs
nothing; the measurement shows it later.

Rules: MP-BUD-01, MP-BUD-02, MP-BUD-03, MP-BUD-04, MP-BUD-09, MP-BUD-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.vocabulary.artifact import DigestSource, ModelArtifact
from gpustack_delivery.vocabulary.conditions import FALSE, TRUE, UNKNOWN, Condition, assign
from gpustack_delivery.vocabulary.grants import (
    OVER_QUOTA,
    READY,
    BindingPhase,
    BindingStatus,
    ModelStoreBinding,
)
from gpustack_delivery.vocabulary.node_store import ModelEntry
from gpustack_delivery.vocabulary.quantity import format_binary

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a namespace's content takes; None if it was not measured, and then why."""

    used_bytes: int | None
    unmeasured: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """One prefetch as the projection sees it: a digest on so many nodes.

    The digest is empty, and the size 0, while the artifact is not resolved.
    """

    digest: str
    size_bytes: int
    nodes: int


def measure(
    artifacts: Mapping[str, ModelArtifact | None], held: Callable[[str], Sequence[ModelEntry]]
) -> Footprint:
    """Measure what a namespace's prefetches have made nodes hold.

    Args:
        artifacts: the artifacts that the namespace's prefetches name; None for one that is missing.
        held: returns the entries of every node that lists a digest.
    """
    sizes: dict[str, int | None] = {}
    for name, artifact in sorted(artifacts.items()):
        resolved = artifact.status.resolved if artifact else None
        if resolved is None or not resolved.manifest_digest:
            return Footprint(None, f"the ModelArtifact {name} has not resolved")
        digest = resolved.manifest_digest
        if resolved.digest_source is DigestSource.HUB:
            sizes[digest] = resolved.size_bytes
        else:
            sizes.setdefault(digest, None)
    used = 0
    for digest, known in sizes.items():
        entries = held(digest)
        # An identity that only its author vouched for has no size before a node has listed it.
        size = max((entry.size_bytes for entry in entries), default=0) if known is None else known
        if known is None and entries and not size:
            return Footprint(None, "no node has learned yet how large the content is")
        used += size * len(entries)
    return Footprint(used)


def project(asks: Iterable[Ask]) -> int:
    """Return the bytes that a namespace's prefetches ask for together."""
    widest: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for ask in asks:
        if ask.digest:
            widest[ask.digest] = max(widest.get(ask.digest, 0), ask.nodes)
            sizes[ask.digest] = max(sizes.get(ask.digest, 0), ask.size_bytes)
    return sum(sizes[digest] * nodes for digest, nodes in widest.items())


def account(
    binding: ModelStoreBinding, missing: Sequence[str], footprint: Footprint, now: float
) -> BindingStatus:
    """Return a binding's status.

    Args:
        binding: the grant with the status it has.
        missing: the ModelStores that it names and that do not exist.
        footprint: what its namespace takes.
        now: seconds since the epoch.
    """
    ready, over = _ready(missing, footprint), _over_quota(binding, footprint)
    conditions = binding.status.conditions
    for condition in (ready, over):
        conditions = assign(conditions, condition, now=now)
    if over.status == TRUE:
        phase = BindingPhase.OVER_QUOTA
    else:
        phase = BindingPhase.READY if ready.status == TRUE else BindingPhase.ERROR
    return BindingStatus(phase, ready.message, footprint.used_bytes, conditions)


def _ready(missing: Sequence[str], footprint: Footprint) -> Condition:
    if missing:
        named = ", ".join(missing[:_NAMED])
        message = f"no ModelStore named {named} exists; nothing can be warmed on its nodes"
        return Condition(READY, FALSE, "StoreMissing", message)
    if footprint.used_bytes is None:
        return Condition(READY, FALSE, "Unmeasured", footprint.unmeasured)
    message = f"the namespace's content takes {format_binary(footprint.used_bytes)} bytes on nodes"
    return Condition(READY, TRUE, "Accounted", message)


def _over_quota(binding: ModelStoreBinding, footprint: Footprint) -> Condition:
    if footprint.used_bytes is None:
        return Condition(OVER_QUOTA, UNKNOWN, "Unmeasured", footprint.unmeasured)
    quota = format_binary(binding.spec.quota_bytes)
    if footprint.used_bytes > binding.spec.quota_bytes:
        message = (
            f"the content takes more than the {quota} bytes granted: remove a prefetch, or have "
            "the grant enlarged"
        )
        return Condition(OVER_QUOTA, TRUE, "PastBudget", message)
    return Condition(OVER_QUOTA, FALSE, "WithinBudget", f"the grant is {quota} bytes")
