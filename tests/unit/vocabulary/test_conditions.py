"""Conditions: order, transition times and the wire."""

from __future__ import annotations

from gpustack_delivery.vocabulary.conditions import (
    Condition,
    assign,
    find,
    holds,
    read_conditions,
    write_conditions,
)

READY = Condition("Ready", "True", "Serving", "all well", 100.0, 3)
LOW = Condition("CapacityLow", "False", "WithinWatermarks", "", 100.0)


def test_round_trip() -> None:
    """Conditions come back as they were written, an empty message included."""
    wire = write_conditions((READY, LOW))
    assert wire[1] == {
        "type": "CapacityLow",
        "status": "False",
        "reason": "WithinWatermarks",
        "lastTransitionTime": "1970-01-01T00:01:40Z",
        "message": "",
    }
    assert read_conditions({"conditions": wire}) == (READY, LOW)


def test_same_status_keeps_its_time_and_place() -> None:
    """A new reason and message replace the old ones where they stood."""
    wanted = Condition("Ready", "True", "Serving", "capped")
    ready, low = assign((READY, LOW), wanted, now=500.7)
    assert (ready.message, ready.transition_time, low) == ("capped", 100.0, LOW)


def test_new_status_is_stamped() -> None:
    """A changed status carries the time of the change, cut to the second."""
    assert assign((READY,), Condition("Ready", "False", "Off"), now=500.7)[0].transition_time == 500


def test_restamp() -> None:
    """A caller may ask for a new stamp although the status stays."""
    again = assign((READY,), Condition("Ready", "True", "Other"), now=500, restamp=True)
    assert again[0].transition_time == 500


def test_new_type_is_appended() -> None:
    """Types this writer does not know are kept."""
    assert assign((LOW,), READY, now=9)[0] == LOW


def test_find_and_holds() -> None:
    """Absence is neither found nor held; only True holds."""
    assert find((READY,), "CapacityLow") is None
    assert holds((READY, LOW), "Ready")
    assert not holds((READY, LOW), "CapacityLow")
    assert not holds((), "Ready")
