"""Capacity: exact boundaries, reservations, and the cap beside kubelet."""

from __future__ import annotations

import pytest

from gpustack_delivery.decisions.capacity import (
    Reservation,
    effective,
    fits,
    outstanding_bytes,
    used_percent,
)
from gpustack_delivery.ports import Usage
from gpustack_delivery.vocabulary.node_store import KubeletThresholds, Watermarks

GIB = 2**30


def test_a_boundary_met_exactly_fits_and_one_byte_more_does_not() -> None:
    """80 percent of 1000 is 800, to the byte."""
    usage = Usage(total_bytes=1000, used_bytes=700)
    assert fits(usage, 100, 80)
    assert not fits(usage, 101, 80)


def test_nothing_fits_on_a_filesystem_without_a_size() -> None:
    """A statfs that answers zero is no invitation."""
    assert not fits(Usage(0, 0), 0, 80)


def test_written_bytes_count_once() -> None:
    """What a download has written is usage already; what it wrote too much is no credit."""
    claims = [Reservation(100, 30), Reservation(50, 50), Reservation(10, 25)]
    assert outstanding_bytes(claims) == 70


@pytest.mark.parametrize(
    ("used", "total", "percent"),
    [(42, 100, 40), (45, 100, 45), (449, 1000, 40), (100, 100, 100), (0, 100, 0), (5, 0, 0)],
)
def test_usage_is_told_in_steps_of_five(used: int, total: int, percent: int) -> None:
    """Rounded down, and zero for a filesystem without a size."""
    assert used_percent(Usage(total, used)) == percent


@pytest.mark.parametrize(
    ("thresholds", "cap"),
    [
        (None, 80),
        (KubeletThresholds(), 80),
        (KubeletThresholds("10%", "", 85), 80),
        (KubeletThresholds("5%", "8%", 90), 85),
        (KubeletThresholds("200Gi", "1%", 99), 75),
        (KubeletThresholds(image_gc_high_percent=70), 65),
        (KubeletThresholds("30%", "", 95), 65),
        (KubeletThresholds("2000Gi"), 2),
        (KubeletThresholds(image_gc_high_percent=0), 2),
        (KubeletThresholds("9.1%", "1%", 99), 85),
        (KubeletThresholds("nonsense"), 80),
        (KubeletThresholds("-5%"), 80),
        (KubeletThresholds("101%"), 80),
        (KubeletThresholds("-1Gi"), 80),
    ],
)
def test_the_cap_stays_below_kubelets_lowest_line(
    thresholds: KubeletThresholds | None, cap: int
) -> None:
    """On a filesystem of 1000 GiB; a line that no cache can stay below leaves 2 percent."""
    capped = effective(Watermarks(95, 1), thresholds, 1000 * GIB)
    assert capped.watermarks.high_percent == cap
    assert f"capped at {cap}%" in capped.note


@pytest.mark.parametrize(
    ("configured", "in_force"),
    [((95, 90), (80, 79)), ((90, 85), (80, 79)), ((75, 60), (75, 60)), ((85, 60), (80, 60))],
)
def test_the_low_watermark_is_lowered_with_the_high_one(
    configured: tuple[int, int], in_force: tuple[int, int]
) -> None:
    """It stays below the high one, and where it was if it can."""
    result = effective(Watermarks(*configured), KubeletThresholds("10%", "15%", 85), 1000 * GIB)
    assert result.watermarks == Watermarks(*in_force)


def test_watermarks_below_a_cap_that_was_read_need_no_note() -> None:
    """The Ready message stays empty when there is nothing to know."""
    assert effective(Watermarks(75, 60), KubeletThresholds(), 1000 * GIB).note == ""


@pytest.mark.parametrize(
    ("thresholds", "said"),
    [
        (None, "never read"),
        (KubeletThresholds("nonsense"), "nodefs.available"),
        (KubeletThresholds("", "nonsense"), "imagefs.available"),
        (KubeletThresholds("99%"), "no room"),
    ],
)
def test_an_assumption_is_said_even_when_nothing_is_lowered(
    thresholds: KubeletThresholds | None, said: str
) -> None:
    """A person reads from the message what the cap rests on."""
    assert said in effective(Watermarks(2, 1), thresholds, 1000 * GIB).note


def test_a_quantity_needs_a_filesystem_size_to_become_a_share() -> None:
    """Without one the default holds instead of a division by zero."""
    assert effective(Watermarks(95, 90), KubeletThresholds("1Gi"), 0).watermarks.high_percent == 80
