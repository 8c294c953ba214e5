"""Which nodes a Pod may run on, rule by rule."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from emulator.predicates import (
    AFFINITY,
    quantity,
    requests,
    selected,
    toleration,
    unavailable,
    unsupported,
    untolerated,
    why_not,
)

Json = dict[str, Any]


def node(
    name: str = "node-a",
    *,
    labels: Json | None = None,
    spec: Json | None = None,
    **allocatable: str,
) -> Json:
    """Return a node."""
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {"allocatable": allocatable},
    }


def pod(**spec: Any) -> Json:
    """Return a Pod."""
    return {"metadata": {"name": "p"}, "spec": spec, "status": {}}


def affinity(*terms: Json) -> Json:
    """Return required node affinity with these terms."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> Json:
    """Return one match expression."""
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("match", "admitted"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("none", "NotIn", "b"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("zone", "Exists"), True),
        (expression("none", "Exists"), False),
        (expression("none", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("size", "Gt", "3"), True),
        (expression("size", "Gt", "4"), False),
        (expression("size", "Lt", "5"), True),
        (expression("zone", "Gt", "3"), False),
        (expression("none", "Lt", "3"), False),
        (expression("zone", "Bogus", "a"), False),
    ],
)
def test_label_expressions(match: Json, admitted: bool) -> None:  # noqa: FBT001 - a table's column
    """Each operator of a node selector term decides by the node's labels."""
    there = node(labels={"zone": "a", "size": "4"})
    assert selected(pod(affinity=affinity({"matchExpressions": [match]})), there) is admitted


def test_terms_are_alternatives_and_expressions_are_demands() -> None:
    """One term of many suffices, all of a term must hold, and an empty term admits nothing."""
    there = node(labels={"zone": "a"})
    good, bad = expression("zone", "In", "a"), expression("zone", "In", "b")
    assert selected(
        pod(affinity=affinity({"matchExpressions": [bad]}, {"matchExpressions": [good]})), there
    )
    assert not selected(pod(affinity=affinity({"matchExpressions": [good, bad]})), there)
    assert not selected(pod(affinity=affinity({})), there)
    assert not selected(pod(affinity=affinity()), there)


def test_a_field_term_names_one_node() -> None:
    """Required affinity on metadata.name admits that node alone."""
    wanted = pod(affinity=affinity({"matchFields": [expression("metadata.name", "In", "node-b")]}))
    assert selected(wanted, node("node-b"))
    assert not selected(wanted, node("node-a"))


def test_the_node_selector_and_affinity_both_decide() -> None:
    """Every label of the selector must match, besides the affinity."""
    there = node(labels={"gpu": "yes", "zone": "a"})
    assert selected(pod(nodeSelector={"gpu": "yes", "zone": "a"}), there)
    assert not selected(pod(nodeSelector={"gpu": "no"}), there)
    zone_b = affinity({"matchExpressions": [expression("zone", "In", "b")]})
    assert why_not(pod(nodeSelector={"gpu": "yes"}, affinity=zone_b), there, []) == [AFFINITY]


@pytest.mark.parametrize(
    ("tolerated", "holds"),
    [
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({}, False),
    ],
)
def test_tolerations(tolerated: Json, holds: bool) -> None:  # noqa: FBT001 - a table's column
    """A toleration covers a taint by key, value, operator and effect."""
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert (toleration(pod(tolerations=[tolerated]), taint) is not None) is holds


def test_taints_keep_pods_away() -> None:
    """An untolerated taint is named; those that only prefer or evict keep nobody away."""
    tainted = node(spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})
    assert why_not(pod(), tainted, []) == ["node(s) had untolerated taint {k: v}"]
    assert untolerated(pod(), tainted, {"NoExecute"}) is None
    assert (
        why_not(pod(), node(spec={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}), [])
        == []
    )
    cordoned = node(spec={"unschedulable": True})
    assert why_not(pod(), cordoned, []) == ["node(s) were unschedulable"]
    assert why_not(pod(tolerations=[{"operator": "Exists"}]), cordoned, []) == []


def container(**amounts: str) -> Json:
    """Return a container that requests something."""
    return {"name": "c", "resources": {"requests": amounts}}


def test_requests_must_fit_beside_those_of_others() -> None:
    """What running Pods take is gone, what ended ones took is free; a limit is a request."""
    there = node(cpu="2", pods="3")
    there["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    one = pod(containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    ended = {**one, "status": {"phase": "Succeeded"}}
    assert why_not(one, there, [one]) == []
    assert why_not(one, there, [one, one]) == ["Insufficient nvidia.com/gpu"]
    assert why_not(one, there, [one, ended, ended, ended]) == []
    assert why_not(pod(containers=[container(cpu="2500m")]), there, []) == ["Insufficient cpu"]
    assert why_not(pod(containers=[container(rdma="1")]), there, []) == ["Insufficient rdma"]
    assert why_not(pod(), there, [pod(), pod(), pod()]) == ["Too many pods"]


def test_an_init_container_counts_only_beyond_the_others() -> None:
    """The sum of the containers and each init container are compared, not added."""
    asked = requests(
        pod(
            containers=[container(cpu="1"), container(cpu="500m")],
            initContainers=[container(cpu="2", memory="1Gi")],
        )
    )
    assert asked == {"cpu": Decimal(2), "memory": Decimal(2**30)}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", "1"),
        ("500m", "0.5"),
        ("1.5Gi", "1610612736"),
        ("2k", "2000"),
        ("1e3", "1000"),
        ("3E", "3e18"),
        (4, "4"),
    ],
)
def test_quantities(text: object, number: str) -> None:
    """Decimal and binary suffixes and exponents are read."""
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "x", "1Xi", "--1", "1 G"])
def test_what_is_no_quantity(text: str) -> None:
    """Anything else is refused with an example of what would do."""
    with pytest.raises(ValueError, match="no quantity"):
        quantity(text)


def test_the_message_counts_nodes_by_reason() -> None:
    """The sentence about a Pod that fits nowhere is the scheduler's."""
    reasons = {"a": [AFFINITY], "b": ["Insufficient cpu"], "c": [AFFINITY]}
    assert unavailable(reasons) == (
        "0/3 nodes are available: "
        "1 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert unavailable({}) == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "podAffinity",
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topologySpread"),
        ({"resourceClaims": [{"name": "x"}]}, "resourceClaims"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        (
            {
                "affinity": {
                    "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}
                }
            },
            "",
        ),
    ],
)
def test_demands_that_are_not_judged_are_named(spec: Json, name: str) -> None:
    """A hard demand beyond the supported ones is named; a soft one may go unmet."""
    assert name in unsupported(pod(**spec))
    assert bool(unsupported(pod(**spec))) is bool(name)
