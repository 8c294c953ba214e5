"""When kubelet tries again: back-off that doubles, looked at by a loop that ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 122.0


@dataclass(slots=True)
class Retries:
    """The back-off of one operation; it starts over when another operation takes its place.

    kubelet waits half a second after the first failure and doubles up to two minutes and two
    seconds, but it looks only when its loop comes round, so the next attempt is at the first tick
    after the wait.
    """

    tick_seconds: float
    started: float
    _operation: str = ""
    _wait_seconds: float = 0.0
    _not_before: float = -math.inf

    def failed(self, operation: str, now: float) -> None:
        """Note that an operation failed now."""
        again = operation == self._operation and self._wait_seconds
        doubled = min(2 * self._wait_seconds, LONGEST_SECONDS) if again else FIRST_SECONDS
        self._operation, self._wait_seconds = operation, doubled
        ticks = math.floor((now + doubled - self.started) / self.tick_seconds + 1e-6) + 1
        self._not_before = self.started + ticks * self.tick_seconds

    def succeeded(self) -> None:
        """Forget earlier failures."""
        self._operation, self._wait_seconds, self._not_before = "", 0.0, -math.inf

    def seconds_left(self, operation: str, now: float) -> float:
        """Return how long an operation has to wait; another one than what failed need not."""
        return max(0.0, self._not_before - now) if operation == self._operation else 0.0
