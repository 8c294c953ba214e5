"""`gpustack-delivery worker` as it is, on a clock that leaps when it is told to.

    python -m tests.performance.scale.leaping WORKER-ARGUMENTS…

Each line of standard input is a number of seconds, by which the clock is ahead from then on; the
line is repeated on standard output when everybody who waits has been told. That is how an hour of a
process takes no hour. The end of standard input is nobody's concern.
"""

from __future__ import annotations

import signal
import sys
import threading
import weakref

from gpustack_delivery import __main__ as program
from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.worker import command

_ROUNDS = 3
_ROUND_SECONDS = 0.1


class LeapingClock(SystemClock):
    """The machine's clock, and what it was told to be ahead of it."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._lock = threading.Lock()
        self._conditions: weakref.WeakSet[threading.Condition] = weakref.WeakSet()

    def now(self) -> float:
        """Return seconds since the epoch, UTC, with every leap."""
        return super().now() + self._ahead

    def monotonic(self) -> float:
        """Return seconds that never go back, with every leap."""
        return super().monotonic() + self._ahead

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a condition the caller holds, at most `seconds` when given, or until a leap."""
        with self._lock:
            self._conditions.add(condition)
        super().wait(condition, seconds)

    def leap(self, seconds: float) -> None:
        """Be so far ahead, and wake everybody who waits."""
        self._ahead += seconds
        # Whoever worked out its wait just before the leap may begin it just after: once more.
        pause = threading.Event()
        for _ in range(_ROUNDS):
            with self._lock:
                conditions = list(self._conditions)
            for condition in conditions:
                with condition:
                    condition.notify_all()
            pause.wait(_ROUND_SECONDS)


def main() -> int:
    """Run the worker."""
    clock = LeapingClock()
    vars(command)["SystemClock"] = lambda: clock

    def listen() -> None:
        for line in sys.stdin:
            clock.leap(float(line))
            sys.stdout.write(line)
            sys.stdout.flush()

    held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the worker's
    threading.Thread(target=listen, name="leaps", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return program.main(["worker", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
