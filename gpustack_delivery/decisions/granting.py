"""What the API server may store of grants and prefetches: more verdicts of the worker's webhooks.

A grant never shrinks under what was admitted with it: its stores stay, its budget grows, the right
to pin is not taken back. A prefetch is admitted when what it names exists, its nodes lie inside the
grant, and the namespace's content would stay within the budget. The first thing that is wrong is
said; a spec that stays as it was is not judged again, so that nothing keeps an old object from
being let go.

Rules: MP-RES-04..08, MP-PLC-04, MP-PLC-05, MP-BUD-05..10.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.decisions.budget import Ask, project
from gpustack_delivery.decisions.placement import Nodes, fault_of
from gpustack_delivery.vocabulary.grants import BindingSpec, StoreSpec
from gpustack_delivery.vocabulary.prefetch import Spec
from gpustack_delivery.vocabulary.quantity import format_binary, parse
from gpustack_delivery.vocabulary.resources import Json

IMMUTABLE: Final = "is immutable"
SHRINKS: Final = "cannot shrink"
STAYS_ON: Final = "cannot go back to false"
PIN_GRANT: Final = "pinning is an admin-granted capability"
OUTSIDE: Final = "the target set leaves the grant"
TOO_MANY: Final = "asks for more ready nodes than"
OVER_BUDGET: Final = "the namespace's warm footprint would reach"
_NAMED: Final = 3


def judge_binding(spec: Json) -> tuple[Denial, ...]:
    """Judge a binding's shape: it names stores, and its budget is more than nothing."""
    denials = [
        Denial(f"spec.storeRefs[{index}].name", "must name a ModelStore")
        for index, name in enumerate(_store_names(spec))
        if not name
    ]
    if not _store_names(spec):
        denials.append(Denial("spec.storeRefs", "must name at least one ModelStore"))
    try:
        if parse(_quota(spec)) <= 0:
            denials.append(Denial("spec.quota.bytes", "must be more than 0"))
    except ValueError as fault:
        denials.append(Denial("spec.quota.bytes", str(fault)))
    return tuple(denials)


def judge_stores(names: Sequence[str], existing: Collection[str]) -> tuple[Denial, ...]:
    """Judge that the stores of a new binding exist."""
    return tuple(
        Denial(f"spec.storeRefs[{index}].name", f"no ModelStore named {name} exists; create it")
        for index, name in enumerate(names)
        if name not in existing
    )


def judge_binding_update(old: Json, new: Json) -> tuple[Denial, ...]:
    """Judge what an update does to a grant: it may only grow."""
    if denials := judge_binding(new):
        return denials
    found = []
    if _store_names(old) != _store_names(new):
        message = f"{IMMUTABLE}; grant other stores by another ModelStoreBinding"
        found.append(Denial("spec.storeRefs", message))
    if parse(_quota(new)) < parse(_quota(old)):
        message = f"{SHRINKS}: it is {_quota(old)}, and prefetches were admitted under it"
        found.append(Denial("spec.quota.bytes", message))
    if old.get("allowPinned") and not new.get("allowPinned"):
        message = f"{STAYS_ON}: prefetches may have been admitted under it"
        found.append(Denial("spec.allowPinned", message))
    return tuple(found)


def read_prefetch(spec: Json) -> Spec | tuple[Denial, ...]:
    """Read a prefetch's spec, or say why it cannot be carried out by anybody."""
    try:
        read = Spec.from_wire(spec)
    except ValueError:
        message = "must be a duration such as 72h or 90m"
        return (Denial("spec.retention.ttlAfterLastUse", message),)
    if fault := fault_of(read.placement):
        return (Denial("spec.placement", fault),)
    return read


def judge_references(
    spec: Spec, *, artifact_exists: bool, binding: BindingSpec | None
) -> tuple[Denial, ...]:
    """Judge what a prefetch names in its namespace, and whether the grant lets it pin."""
    if not artifact_exists:
        message = f"no ModelArtifact named {spec.artifact_name} exists in this namespace"
        return (Denial("spec.artifactRef.name", message),)
    if binding is None:
        message = (
            f"no ModelStoreBinding named {spec.binding_name} exists in this namespace; an "
            "administrator grants one"
        )
        return (Denial("spec.bindingRef.name", message),)
    if spec.retention.pinned and not binding.allow_pinned:
        message = f"{PIN_GRANT}: the binding {spec.binding_name} does not set allowPinned"
        return (Denial("spec.retention.pinned", message),)
    return ()


def judge_targets(
    spec: Spec, targets: Sequence[str], nodes: Nodes, stores: Iterable[StoreSpec]
) -> tuple[Denial, ...]:
    """Judge the target set: inside the grant, and large enough for what is asked of it.

    Args:
        spec: the prefetch's.
        targets: its expansion.
        nodes: every node with its labels.
        stores: the granted ModelStores that exist.
    """
    selectors = [store.node_selector for store in stores]
    outside = [
        name for name in targets if not any(selector.matches(nodes[name]) for selector in selectors)
    ]
    if outside:
        more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        message = f"{OUTSIDE}: no granted ModelStore selects {', '.join(outside[:_NAMED])}{more}"
        return (Denial("spec.placement", message),)
    if spec.min_ready > len(targets):
        message = f"{TOO_MANY} there are targets: {spec.min_ready} of {len(targets)}"
        return (Denial("spec.minReady", message),)
    return ()


def judge_budget(
    mine: Ask, others: Iterable[Ask], binding_name: str, binding: BindingSpec
) -> tuple[Denial, ...]:
    """Judge the projection: what the namespace asks for with this prefetch fits the budget."""
    reached = project((mine, *others))
    if reached <= binding.quota_bytes:
        return ()
    message = (
        f"{OVER_BUDGET} {format_binary(reached)} bytes, and the binding {binding_name} grants "
        f"{format_binary(binding.quota_bytes)}: target fewer nodes, or have the grant enlarged"
    )
    return (Denial("spec", message),)


def _store_names(spec: Json) -> list[str]:
    return [(ref or {}).get("name", "") for ref in spec.get("storeRefs") or ()]


def _quota(spec: Json) -> str | int:
    amount: str | int = (spec.get("quota") or {}).get("bytes", 0)
    return amount
