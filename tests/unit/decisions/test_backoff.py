"""Backoff: one minute, doubling to one hour; two reasons are free of it."""

from __future__ import annotations

import pytest

from gpustack_delivery.decisions.backoff import Setback, delay_seconds, holds_back, setback
from gpustack_delivery.errors import Reason


def test_the_delay_doubles_from_a_minute_to_an_hour() -> None:
    """The sequence of the documentation, to its end and beyond."""
    minutes = [delay_seconds(n) / 60 for n in range(1, 10)]
    assert minutes == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_record_with_an_absurd_count_still_means_an_hour() -> None:
    """A damaged ledger may say anything; the wait stays bounded."""
    assert delay_seconds(10**9) == 3600


@pytest.mark.parametrize(
    "reason",
    [
        Reason.ACCESS_DENIED,
        Reason.SOURCE_UNAVAILABLE,
        Reason.INTEGRITY_MISMATCH,
        Reason.INSUFFICIENT_CAPACITY,
    ],
)
def test_a_failure_counts_and_holds_back(reason: Reason) -> None:
    """The second failure in a row waits two minutes, and holds until exactly then."""
    decided = setback(reason, 1, now=1000.0)
    assert (decided.failures, decided.retry_at) == (2, 1120.0)
    assert holds_back(reason, decided, 1119.9)
    assert not holds_back(reason, decided, 1120.0)


@pytest.mark.parametrize("reason", [Reason.INVALID_REQUEST, Reason.CANCELED])
def test_nobodys_failure_does_not_hold_back(reason: Reason) -> None:
    """A configuration error and a cancellation count nothing and start again at once."""
    decided = setback(reason, 3, now=1000.0)
    assert (decided.failures, decided.retry_at) == (3, 1000.0)
    assert not holds_back(reason, Setback(4, 2000.0), 1000.0)


@pytest.mark.parametrize("earlier", range(10))
@pytest.mark.parametrize("back", [61.0, 1800.0, 86400.0, 1e9])
def test_a_clock_that_was_set_back_makes_no_backoff_longer(earlier: int, back: float) -> None:
    """Neither a year nor half an hour where a minute was due; a correction changes nothing."""
    last = setback(Reason.SOURCE_UNAVAILABLE, earlier, now=2e9)
    assert holds_back(Reason.SOURCE_UNAVAILABLE, last, 2e9 - 59)
    assert not holds_back(Reason.SOURCE_UNAVAILABLE, last, 2e9 - back)


def test_a_digest_without_a_failure_is_free() -> None:
    """No reason on record, nothing to wait for."""
    assert not holds_back(None, Setback(9, 5000.0), 4990.0)
