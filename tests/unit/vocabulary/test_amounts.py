"""Quantities, durations and times: exact, bounded, and equal by value."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack_delivery.vocabulary.duration import format_duration, parse_duration
from gpustack_delivery.vocabulary.quantity import format_binary, parse, parse_bytes
from gpustack_delivery.vocabulary.wire import (
    format_micro_time,
    format_time,
    optional_time,
    overlay,
    parse_time,
    present,
    write_optional_time,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("1", 1),
        (1, 1),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        (".5Ki", 512),
        ("2.", 2),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("500m", Fraction(1, 2)),
        ("3n", Fraction(3, 10**9)),
        ("7u", Fraction(7, 10**6)),
        ("-1M", -(10**6)),
        ("+1T", 10**12),
    ],
)
def test_quantities(text: str | int, amount: Fraction | int) -> None:
    """Every suffix and both exponent forms have their exact value."""
    assert parse(text) == amount


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1KiB", "0x1", "1e", "1e9999", "٣", "1" * 65, "1Gi\n", True]
)
def test_what_is_no_quantity(text: str | int) -> None:
    """A text that is no quantity is refused with what one looks like."""
    with pytest.raises(ValueError, match="200Gi"):
        parse(text)


def test_bytes_round_up_and_are_never_negative() -> None:
    """A part of a byte needs a whole one."""
    assert parse_bytes("1500m") == 2
    with pytest.raises(ValueError, match="negative"):
        parse_bytes("-1")


@given(st.integers(0, 2**63 - 1))
def test_binary_format_reads_back(size: int) -> None:
    """No byte is lost between a number and its text."""
    assert parse_bytes(format_binary(size)) == size


def test_binary_format_is_canonical() -> None:
    """The largest suffix that divides the number is used, and zero has none."""
    assert [format_binary(n) for n in (0, 1000, 1024, 3 * 2**30, 2**60)] == [
        "0",
        "1000",
        "1Ki",
        "3Gi",
        "1Ei",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("24h", 86400),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("5us", 5e-6),
        ("5µs", 5e-6),
        ("7ns", 7e-9),
        ("-1m", -60),
        (".5h", 1800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Go's spellings have their value."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "1", "h", "1d", "1h 30m", "1h\n", "9999999h", "1" * 63 + "hh"]
)
def test_what_is_no_duration(text: str) -> None:
    """Bare numbers, unknown units and centuries are refused."""
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_duration_format_reads_back(seconds: int) -> None:
    """Whole seconds survive the round trip."""
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


def test_times() -> None:
    """Times are cut to the second, read with any zone, and refused without one."""
    assert format_time(1790316000.9) == "2026-09-25T06:00:00Z"
    assert format_micro_time(1790316000.25) == "2026-09-25T06:00:00.250000Z"
    assert parse_time("2026-09-25T08:00:00+02:00") == 1790316000
    assert optional_time(None) is None
    assert optional_time("1970-01-01T00:00:01Z") == 1
    assert write_optional_time(None) is None
    assert write_optional_time(1) == "1970-01-01T00:00:01Z"
    with pytest.raises(ValueError, match="no zone"):
        parse_time("2026-09-25T08:00:00")


def test_overlay_keeps_what_it_does_not_know() -> None:
    """Members of a newer schema survive; a known member that became empty goes."""
    stored = {"known": 1, "emptied": 2, "newer": False}
    assert overlay(stored, {"known": 3, "emptied": 0}) == {"known": 3, "newer": False}
    assert present({"zero": 0, "no": False, "text": "", "list": [], "map": {}, "one": 1}) == {
        "one": 1
    }
