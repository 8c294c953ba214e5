"""Real time, for programs that follow no other: how much of it a test may take.

Called by `program_seat`.
"""

from __future__ import annotations

from typing import Final

from spec_tests.targets import Unsupported
from spec_tests.waiting import pause

_STEPS: Final = 6
"""How many of the longest steps a test may take in all."""


class RealTime:
    """The machine's time; a test may take so much of it at once, and some more in all."""

    def __init__(self, most_seconds: float) -> None:
        """Begin to count."""
        self._most_seconds = most_seconds
        self._waited = 0.0

    def advance(self, seconds: float) -> None:
        """Let real time pass.

        Raises:
            Unsupported: it is too long, or all the steps together are.
        """
        if seconds > self._most_seconds:
            raise Unsupported(
                f"{seconds:g} s at once: the implementation follows no clock but the real one, and "
                f"--real-seconds is {self._most_seconds:g}"
            )
        # Steps of a second are a wait for something, which ends as a failure when it does not come.
        self._waited += seconds if seconds > 1 else 0
        if self._waited > _STEPS * self._most_seconds:
            raise Unsupported(f"more than {_STEPS * self._most_seconds:g} s of real time in all")
        pause(seconds)
