"""Collection: who is a candidate, and in which order candidates go."""

from __future__ import annotations

from gpustack_delivery.decisions.collection import (
    FailureRecord,
    Partial,
    StoredTree,
    choose_failures,
    choose_partials,
    choose_trees,
)

NOW = 1_000_000.0
DAY = 24 * 3600.0


def chosen(*trees: StoredTree, **kept: set[str]) -> list[str]:
    """Return the digests chosen at NOW with the given sets kept."""
    sets = {"referenced": set[str](), "pinned": set[str](), "downloading": set[str]()} | kept
    return [tree.digest for tree in choose_trees(trees, **sets, now=NOW)]


def test_the_oldest_use_goes_first_and_equals_by_digest() -> None:
    """The order does not depend on how the trees were found."""
    trees = [StoredTree("c", 1, 100.0), StoredTree("a", 1, 300.0), StoredTree("b", 1, 100.0)]
    assert chosen(*trees) == ["b", "c", "a"]


def test_trees_in_use_pinned_or_downloading_are_no_candidates() -> None:
    """Each of the three protects alone."""
    trees = [StoredTree(name, 1, 0.0) for name in "abcd"]
    assert chosen(*trees, referenced={"a"}, pinned={"b"}, downloading={"c"}) == ["d"]


def test_a_tree_has_ten_minutes_of_grace() -> None:
    """A candidate from the very second on."""
    young, ripe = StoredTree("young", 1, NOW - 599.0), StoredTree("ripe", 1, NOW - 600.0)
    assert chosen(young, ripe) == ["ripe"]


def test_a_partial_goes_a_day_after_the_last_mount_that_asked() -> None:
    """Unless an attempt is writing it."""
    partials = [Partial("old", NOW - DAY), Partial("busy", 0.0), Partial("fresh", NOW - DAY + 1)]
    assert choose_partials(partials, downloading={"busy"}, now=NOW) == ("old",)


def test_a_failure_record_goes_a_day_after_the_last_failure() -> None:
    """Unless its digest is on the node in any form."""
    records = [
        FailureRecord("old", NOW - DAY),
        FailureRecord("present", 0.0),
        FailureRecord("fresh", NOW - DAY + 1),
    ]
    assert choose_failures(records, present={"present"}, now=NOW) == ("old",)


def test_a_clock_that_was_set_back_protects_nothing_for_ever() -> None:
    """A time that lies ahead is as old as it lies far: seconds are fresh, years are not."""
    slip, ahead = NOW + 60.0, NOW + 400 * DAY
    assert chosen(StoredTree("slip", 1, slip), StoredTree("ahead", 1, ahead)) == ["ahead"]
    partials = [Partial("slip", slip), Partial("ahead", ahead)]
    assert choose_partials(partials, downloading=set(), now=NOW) == ("ahead",)
    records = [FailureRecord("slip", slip), FailureRecord("ahead", ahead)]
    assert choose_failures(records, present=set(), now=NOW) == ("ahead",)
