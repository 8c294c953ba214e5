"""Budgets: the measured footprint, the projection, and what both make of a grant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpustack_delivery.decisions.budget import Ask, Footprint, account, measure, project
from gpustack_delivery.vocabulary.conditions import find
from gpustack_delivery.vocabulary.grants import ModelStoreBinding
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from tests.unit.decisions.warm import DIGEST, NOW, OTHER, SIZE, artifact, entry

BINDING = ModelStoreBinding.from_wire(
    {
        "metadata": {"name": "grant", "namespace": "team-a"},
        "spec": {"storeRefs": [{"name": "pool"}], "quota": {"bytes": 2000}},
    }
)
FAILED = entry(ModelState.FAILED, size_bytes=0)


def held(digest: str) -> Sequence[ModelEntry]:
    """Return two nodes' entries of one digest, one of them failed, and one of the other."""
    return {DIGEST: (entry(), FAILED), OTHER: (entry(),)}.get(digest, ())


def test_distinct_digests_count_at_full_size_for_every_holder() -> None:
    """Two artifacts of one tree count once; a failed entry counts in full."""
    artifacts = {"a": artifact("a"), "b": artifact("b"), "c": artifact("c", digest=OTHER, size=5)}
    assert measure(artifacts, held) == Footprint(2 * SIZE + 5)


def test_nothing_named_and_nothing_held_are_zero() -> None:
    """Zero is a measurement."""
    assert measure({}, held) == Footprint(0)
    assert measure({"a": artifact()}, lambda _digest: ()) == Footprint(0)


@pytest.mark.parametrize("missing", [None, artifact(digest="")])
def test_one_that_has_not_resolved_hides_the_figure(missing: object) -> None:
    """Missing or unresolved, nothing is measured, and the reason names it."""
    found = measure({"a": artifact(), "b": missing}, held)  # type: ignore[dict-item]  # both kinds
    assert found.used_bytes is None
    assert "b has not resolved" in found.unmeasured


def test_an_expected_identity_weighs_what_its_holders_learned() -> None:
    """Without a size of its own it takes the listed one; nobody holding it, it takes nothing."""
    expected = artifact(digest_source="Expected", size=0)
    assert measure({"a": expected}, held) == Footprint(2 * SIZE)
    assert measure({"a": expected}, lambda _digest: ()) == Footprint(0)
    unknown = measure({"a": expected}, lambda _digest: (FAILED,))
    assert unknown.used_bytes is None
    both = {"a": expected, "b": artifact("b", size=7)}
    assert measure(both, held) == Footprint(14), "the hub's word about one tree holds for both"


def test_the_projection_takes_the_widest_ask_of_each_digest() -> None:
    """And nothing for what has not resolved."""
    asks = [Ask(DIGEST, 10, 2), Ask(DIGEST, 10, 5), Ask(OTHER, 3, 1), Ask("", 0, 100)]
    assert project(asks) == 53
    assert project([]) == 0


@pytest.mark.parametrize(
    ("missing", "footprint", "phase", "ready", "over"),
    [
        ((), Footprint(2000), "Ready", ("True", "Accounted"), ("False", "WithinBudget")),
        ((), Footprint(2001), "OverQuota", ("True", "Accounted"), ("True", "PastBudget")),
        ((), Footprint(None, "why"), "Error", ("False", "Unmeasured"), ("Unknown", "Unmeasured")),
        (("x",), Footprint(1), "Error", ("False", "StoreMissing"), ("False", "WithinBudget")),
        (("x",), Footprint(None), "Error", ("False", "StoreMissing"), ("Unknown", "Unmeasured")),
        (("x",), Footprint(3000), "OverQuota", ("False", "StoreMissing"), ("True", "PastBudget")),
    ],
)
def test_a_bindings_status(
    missing: tuple[str, ...],
    footprint: Footprint,
    phase: str,
    ready: tuple[str, str],
    over: tuple[str, str],
) -> None:
    """Phase, figure and both conditions, for every way they can come together."""
    status = account(BINDING, missing, footprint, NOW)
    assert status.phase == phase
    assert status.used_bytes == footprint.used_bytes
    found = {each.type: (each.status, each.reason) for each in status.conditions}
    assert found == {"Ready": ready, "OverQuota": over}
    first = find(status.conditions, "Ready")
    assert first is not None
    assert status.phase_message == first.message
