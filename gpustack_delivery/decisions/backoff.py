"""When a digest that failed may be tried again.

One minute after the first failure, doubling to one hour. A configuration that cannot be executed
and a canceled attempt are nobody's failure: they count nothing and the next mount starts at once.
The node's attempts record what this decides, and a plugin restart reads it back.

Rules: NS-DL-24, NS-DL-26, NS-DL-27, NS-DL-28.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpustack_delivery.errors import Reason

FIRST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0
FREE_OF_BACKOFF: Final = frozenset({Reason.INVALID_REQUEST, Reason.CANCELED})


@dataclass(frozen=True, slots=True)
class Setback:
    """What a failure leaves behind: how many in a row, and the earliest next attempt (epoch)."""

    failures: int
    retry_at: float


def delay_seconds(failures: int) -> float:
    """Return how long the n-th consecutive failure holds a digest back, n counted from 1."""
    # The exponent is bounded first: a record may hold any number, and a float does not.
    return min(FIRST_SECONDS * 2.0 ** min(failures - 1, 16), LONGEST_SECONDS)


def setback(reason: Reason, earlier_failures: int, now: float) -> Setback:
    """Decide what a failure at `now` means after `earlier_failures` in a row."""
    if reason in FREE_OF_BACKOFF:
        return Setback(earlier_failures, now)
    failures = earlier_failures + 1
    return Setback(failures, now + delay_seconds(failures))


def holds_back(reason: Reason | None, last: Setback, now: float) -> bool:
    """Say whether a recorded failure still refuses a new attempt.

    A time further off than its own backoff lasts is a damaged record's, or was written before the
    clock was set back; it refuses nothing. A minute more is what a clock may be corrected by.
    """
    counts = reason is not None and reason not in FREE_OF_BACKOFF
    return counts and now < last.retry_at <= now + delay_seconds(last.failures) + FIRST_SECONDS
