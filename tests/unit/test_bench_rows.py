"""How the bench judges: by the median of paired ratios, against the most or the least."""

from __future__ import annotations

import pytest

from tests.performance.rows import Row


@pytest.mark.parametrize(("most", "missed"), [(2.9, True), (3.0, False), (None, False)])
def test_ratios_are_paired_before_the_median(most: float | None, missed: bool) -> None:  # noqa: FBT001 - a case
    """A round that slowed both sides down weighs no more than any other."""
    found = Row("r", "s", "peer", at_most=most).beside([3, 200, 8], [1, 100, 2])
    assert (found.judged, found.ours, found.theirs) == (3, 8, 2)
    assert found.missed is missed


@pytest.mark.parametrize(("least", "missed"), [(4.1, True), (4.0, False)])
def test_a_figure_that_stands_alone_is_judged_itself(least: float, missed: bool) -> None:  # noqa: FBT001 - a case
    """Without a peer there is no ratio, and a least is a limit like a most."""
    assert Row("r", "s", at_least=least).alone([4, 1, 9]).missed is missed


def test_the_worst_round_counts_where_a_peak_is_meant() -> None:
    """One round over the limit is a miss."""
    assert Row("r", "MiB", at_most=5).worst([1, 1, 6]).missed
