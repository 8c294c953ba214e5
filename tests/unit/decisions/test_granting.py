"""Verdicts on grants and prefetches: first fault first, and nothing is judged twice."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.decisions.budget import Ask
from gpustack_delivery.decisions.granting import (
    judge_binding,
    judge_binding_update,
    judge_budget,
    judge_references,
    judge_stores,
    judge_targets,
    read_prefetch,
)
from gpustack_delivery.vocabulary.grants import BindingSpec, StoreSpec
from gpustack_delivery.vocabulary.prefetch import Retention, Spec
from gpustack_delivery.vocabulary.selector import Selector
from tests.unit.decisions.warm import DIGEST, OTHER

GRANT: dict[str, Any] = {"storeRefs": [{"name": "a"}, {"name": "b"}], "quota": {"bytes": "1Gi"}}
SPEC = Spec("model", "grant")
ALLOWED = BindingSpec(("a",), 100, allow_pinned=True)
NODES = {f"n{number}": {"pool": "gpu"} for number in range(5)} | {"cpu": {}}
GPU = StoreSpec(Selector.from_wire({"matchLabels": {"pool": "gpu"}}))


def fields(denials: tuple[Denial, ...]) -> list[str]:
    """Return the fields that verdicts name."""
    return [denial.field for denial in denials]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"storeRefs": []}, ["spec.storeRefs"]),
        ({"storeRefs": [{"name": "a"}, {}]}, ["spec.storeRefs[1].name"]),
        ({"quota": {"bytes": 0}}, ["spec.quota.bytes"]),
        ({"quota": {"bytes": "-1"}}, ["spec.quota.bytes"]),
        ({"quota": {"bytes": "much"}}, ["spec.quota.bytes"]),
        ({"quota": {}}, ["spec.quota.bytes"]),
    ],
)
def test_the_shape_of_a_grant(change: dict[str, Any], wrong: list[str]) -> None:
    """It names stores and is more than nothing."""
    assert fields(judge_binding({**GRANT, **change})) == wrong


def test_stores_must_exist() -> None:
    """Each one that does not is named."""
    (denial,) = judge_stores(["a", "b"], {"a"})
    assert denial.field == "spec.storeRefs[1].name"
    assert "b" in denial.message


@pytest.mark.parametrize(
    ("old", "new", "beginning"),
    [
        ({}, {"storeRefs": [{"name": "b"}, {"name": "a"}]}, "is immutable"),
        ({}, {"quota": {"bytes": "1G"}}, "cannot shrink"),
        ({"allowPinned": True}, {}, "cannot go back to false"),
        ({"allowPinned": True}, {"allowPinned": False}, "cannot go back to false"),
        ({}, {"quota": {"bytes": 0}}, "must be more than 0"),
    ],
)
def test_a_grant_never_shrinks(old: dict[str, Any], new: dict[str, Any], beginning: str) -> None:
    """Stores stay in their order, the budget does not fall, pinning is not taken back."""
    (denial,) = judge_binding_update({**GRANT, **old}, {**GRANT, **new})
    assert denial.message.startswith(beginning)


@pytest.mark.parametrize(
    "new", [{}, {"quota": {"bytes": "1024Mi"}}, {"quota": {"bytes": "2G"}}, {"allowPinned": True}]
)
def test_a_grant_may_grow(new: dict[str, Any]) -> None:
    """Another spelling of the same budget is no change."""
    assert judge_binding_update(GRANT, {**GRANT, **new}) == ()


def test_a_spec_that_nobody_can_carry_out() -> None:
    """Both kinds of placement, and a time to live that is too long to count."""
    wire: dict[str, Any] = {"artifactRef": {"name": "model"}, "bindingRef": {"name": "grant"}}
    assert read_prefetch(wire) == SPEC
    both = wire | {"placement": {"instanceTypes": ["a"], "nodeSelector": {}}}
    (denial,) = read_prefetch(both)  # type: ignore[misc]  # a denial here
    assert denial.field == "spec.placement"
    endless = wire | {"retention": {"ttlAfterLastUse": "9" * 40 + "h"}}
    (denial,) = read_prefetch(endless)  # type: ignore[misc]  # a denial here
    assert denial.field == "spec.retention.ttlAfterLastUse"


def test_references_in_order() -> None:
    """The artifact first, then the grant, then what the grant allows."""
    pinned = Spec("model", "grant", retention=Retention(pinned=True))
    refusing = BindingSpec(("a",), 100)
    nothing = judge_references(pinned, artifact_exists=False, binding=None)
    assert fields(nothing) == ["spec.artifactRef.name"]
    no_grant = judge_references(pinned, artifact_exists=True, binding=None)
    assert fields(no_grant) == ["spec.bindingRef.name"]
    (denial,) = judge_references(pinned, artifact_exists=True, binding=refusing)
    assert denial.message.startswith("pinning is an admin-granted capability")
    assert judge_references(pinned, artifact_exists=True, binding=ALLOWED) == ()
    assert judge_references(SPEC, artifact_exists=True, binding=refusing) == ()


def test_targets_stay_inside_the_grant() -> None:
    """One node outside is enough; of many, a few are named."""
    assert judge_targets(SPEC, ["n0", "n1"], NODES, [GPU]) == ()
    (denial,) = judge_targets(SPEC, ["n0", "cpu"], NODES, [GPU])
    assert denial.message.startswith("the target set leaves the grant")
    assert denial.message.endswith("selects cpu")
    (denial,) = judge_targets(SPEC, sorted(NODES), NODES, [])
    assert denial.message.endswith("cpu, n0, n1 and 3 more")


def test_the_bar_is_within_the_targets() -> None:
    """As many as there are, and not one more; no targets and no bar are fine."""
    assert judge_targets(Spec("m", "g", min_ready=2), ["n0", "n1"], NODES, [GPU]) == ()
    (denial,) = judge_targets(Spec("m", "g", min_ready=3), ["n0", "n1"], NODES, [GPU])
    assert denial.message.startswith("asks for more ready nodes than")
    assert judge_targets(SPEC, [], NODES, []) == ()


def test_the_budget_holds_to_the_byte() -> None:
    """What the namespace would reach may be the quota and not more."""
    others = [Ask(DIGEST, 10, 3), Ask("", 0, 9)]
    assert judge_budget(Ask(OTHER, 35, 2), others, "grant", ALLOWED) == ()
    (denial,) = judge_budget(Ask(OTHER, 36, 2), others, "grant", ALLOWED)
    assert denial.message.startswith("the namespace's warm footprint would reach 102 bytes")
    assert denial.field == "spec"
