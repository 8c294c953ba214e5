"""Which nodes a Pod may run on: the scheduler's rules as pure functions over plain objects.

Supported are node selectors, required node affinity (labels, and the field metadata.name), taints
and tolerations, `unschedulable`, resource requests against what a node can allocate, and a node's
limit of Pods. What a Pod demands beyond that is named by `unsupported`, so that no demand is
quietly ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

Json = dict[str, Any]

AFFINITY = "node(s) didn't match Pod's node affinity/selector"
UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_SUFFIXES: Mapping[str, Decimal | int] = {
    "": 1, "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def why_not(pod: Json, node: Json, pods_there: Sequence[Json]) -> list[str]:
    """Return why a Pod does not fit a node, in the scheduler's own words; nothing when it fits."""
    if not selected(pod, node):
        return [AFFINITY]
    if (taint := untolerated(pod, node, {"NoSchedule", "NoExecute"})) is not None:
        if taint == UNSCHEDULABLE_TAINT:
            return ["node(s) were unschedulable"]
        return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    return _shortages(pod, node, pods_there)


def selected(pod: Json, node: Json) -> bool:
    """Say whether a Pod's node selector and required node affinity admit a node."""
    labels = node["metadata"].get("labels") or {}
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        _term(term, node) for term in required.get("nodeSelectorTerms") or ()
    )


def untolerated(pod: Json, node: Json, effects: Iterable[str]) -> Json | None:
    """Return a node's first taint with one of the effects that a Pod does not tolerate."""
    spec = node.get("spec", {})
    taints = list(spec.get("taints") or ())
    if spec.get("unschedulable") and UNSCHEDULABLE_TAINT["key"] not in {t["key"] for t in taints}:
        taints.append(UNSCHEDULABLE_TAINT)
    return next((t for t in taints if t["effect"] in effects and toleration(pod, t) is None), None)


def toleration(pod: Json, taint: Json) -> Json | None:
    """Return the first toleration of a Pod that tolerates a taint."""
    return next((t for t in pod["spec"].get("tolerations") or () if _tolerates(t, taint)), None)


def unsupported(pod: Json) -> str:
    """Name a demand of a Pod that this scheduler does not judge; empty when there is none."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            return f"spec.affinity.{kind}"
    constraints = spec.get("topologySpreadConstraints") or ()
    if any(c.get("whenUnsatisfiable") == "DoNotSchedule" for c in constraints):
        return "spec.topologySpreadConstraints"
    return "spec.resourceClaims" if spec.get("resourceClaims") else ""


def unavailable(reasons: Mapping[str, Sequence[str]]) -> str:
    """Return the scheduler's message about a Pod that fits nowhere.

    Args:
        reasons: for each node, why it is not fit.
    """
    if not reasons:
        return "no nodes available to schedule pods"
    counted = Counter(reason for why in reasons.values() for reason in why)
    said = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    total = len(reasons)
    head = f"0/{total} nodes are available"
    return f"{head}: {said}. preemption: {head}: {total} Preemption is not helpful for scheduling."


def quantity(text: object) -> Decimal:
    """Return a resource quantity as a number.

    Raises:
        ValueError: for what is no quantity.
    """
    written = str(text).strip()
    suffix = written.lstrip("+-0123456789.")
    try:
        if suffix[:1] in {"e", "E"} and suffix not in _SUFFIXES:
            return Decimal(written)
        return Decimal(written.removesuffix(suffix)) * _SUFFIXES[suffix]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{written!r} is no quantity: write it like 2, 500m or 16Gi") from error


def requests(pod: Json) -> dict[str, Decimal]:
    """Return what a Pod asks for: its containers' sum, or a greater init container's own."""
    total: dict[str, Decimal] = {}
    for container in pod["spec"].get("containers") or ():
        for name, amount in _requested(container).items():
            total[name] = total.get(name, Decimal()) + amount
    for container in pod["spec"].get("initContainers") or ():
        for name, amount in _requested(container).items():
            total[name] = max(total.get(name, Decimal()), amount)
    return total


def finished(pod: Json) -> bool:
    """Say whether a Pod has ended and holds nothing of its node any more."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _requested(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(amount) for name, amount in asked.items()}


def _shortages(pod: Json, node: Json, pods_there: Sequence[Json]) -> list[str]:
    allocatable = node.get("status", {}).get("allocatable") or {}
    there = [other for other in pods_there if not finished(other)]
    reasons = []
    if "pods" in allocatable and len(there) + 1 > quantity(allocatable["pods"]):
        reasons.append("Too many pods")
    wanted = requests(pod)
    taken = [requests(other) for other in there] if wanted else []
    for name, amount in wanted.items():
        used = sum(other.get(name, Decimal()) for other in taken)
        if amount > quantity(allocatable.get(name, 0)) - used:
            reasons.append(f"Insufficient {name}")
    return reasons


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _term(term: Json, node: Json) -> bool:
    """Judge one node selector term: all its expressions hold, and there is at least one."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions = term.get("matchExpressions") or ()
    field_expressions = term.get("matchFields") or ()
    return bool(expressions or field_expressions) and (
        all(_holds(expression, labels) for expression in expressions)
        and all(_holds(expression, fields) for expression in field_expressions)
    )


def _holds(expression: Json, facts: Mapping[str, str]) -> bool:
    value = facts.get(expression["key"])
    values = expression.get("values") or ()
    operator = expression["operator"]
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return _compared(operator, value, values[0] if values else "")


def _compared(operator: str, value: str | None, bound: str) -> bool:
    """Judge Gt and Lt, which compare integers and hold for nothing else."""
    try:
        number, limit = int(value or ""), int(bound)
    except ValueError:
        return False
    return number > limit if operator == "Gt" else operator == "Lt" and number < limit
