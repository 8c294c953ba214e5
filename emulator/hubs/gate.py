"""Where answers wait that a fault holds up."""

from __future__ import annotations

import threading
from collections.abc import Callable

from emulator.contracts import Clock


class Gate:
    """Holds answers up, while `shut`, until time has passed or a test lets them go on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self.shut = True
        self._opened = 0
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many answers are held up now."""
        return self._waiting

    @property
    def openings(self) -> int:
        """How often it was opened: whoever must not miss one compares."""
        return self._opened

    def open(self) -> None:
        """Let everything that waits now go on."""
        with self._condition:
            self._opened += 1
            self._condition.notify_all()

    def wake(self) -> None:
        """Make every waiting answer look at its `given_up`."""
        with self._condition:
            self._condition.notify_all()

    def wait(self, seconds: float | None, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until opened, given up, or `seconds` have passed on the clock (None: for ever)."""
        deadline = None if seconds is None else self._clock.monotonic() + seconds
        with self._condition:
            opened = self._opened
            self._waiting += 1
            try:
                while self.shut and self._opened == opened and not given_up():
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._clock.wait(self._condition, left)
            finally:
                self._waiting -= 1
