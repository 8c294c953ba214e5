"""The emulator's time: the machine's own, and one that a test moves by hand.

Everything in the emulator waits through `wait(condition, seconds)` on a condition it holds, and
looks at its own predicate and deadline when it comes back. That one habit makes time movable:
`ManualClock.advance` goes from deadline to deadline, wakes the threads whose time has come one
after the other, and lets everything they set in motion come to rest before it takes the next step.
The same program under the same steps then does the same things in the same order.

Coming to rest has two parts. A thread that waits on the clock is known exactly, also between the
moment somebody notifies it and the moment it runs. Threads the clock has never seen (a socket
reader, a gRPC server, a download) are judged from outside (`stillness`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from emulator.stillness import wait_for_rest


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""
        return time.time()  # noqa: TID251 - this is the clock

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a held condition until notified or `seconds` have passed; may return early."""
        if seconds is None or seconds > 0:
            condition.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))


@dataclass(eq=False, frozen=True, slots=True)
class _Waiter:
    """One thread inside `ManualClock.wait`."""

    condition: threading.Condition
    deadline: float | None


class Guest(Protocol):
    """Another process on a manual clock; `clock_service` has it."""

    def rest(self) -> tuple[float | None, int]:
        """Return, when that process is at rest, its next deadline and how often it has waited."""

    def move(self, elapsed: float) -> None:
        """Move that process's time, and return when it has come to rest."""


class ManualClock:
    """Time that stands still until `advance` moves it. Deadlines are met exactly, never late.

    `guests` are other processes that live by this clock.
    """

    def __init__(self, start: float = 1_767_225_600.0, *, patience_seconds: float = 10.0) -> None:
        """Stand at `start`, in seconds since the epoch (the beginning of 2026 unless told
        otherwise).

        Args:
            patience_seconds: real seconds after which a step goes on although something is still
                busy: a test may
                hold a transfer up on purpose.
        """
        self._epoch = start
        self._elapsed = 0.0
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._advancing = threading.Lock()
        self._waiters: list[_Waiter] = []  # in the order in which they began to wait
        self._waits = 0
        self.guests: list[Guest] = []
        self._guests_next: float | None = None

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""
        return self._epoch + self.monotonic()

    def monotonic(self) -> float:
        """Return the seconds that this clock has been moved by."""
        with self._lock:
            return self._elapsed

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a held condition until notified or `seconds` were advanced; may return early."""
        if seconds is not None and seconds <= 0:
            return
        with self._lock:
            waiter = _Waiter(condition, None if seconds is None else self._elapsed + seconds)
            self._waiters.append(waiter)
            self._waits += 1
        try:
            condition.wait()
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def advance(self, seconds: float) -> None:
        """Move time forward, stopping at every deadline on the way, and return when all has come to
        rest.

        One thread at a time advances a clock, and it must hold none of the conditions that others
        wait on.

        Raises:
            ValueError: for a negative number.
        """
        if seconds < 0:
            raise ValueError("a clock does not go back: advance it by zero seconds or more")
        with self._advancing:
            self.rest()
            self._advance_to(self.monotonic() + seconds)

    def _advance_to(self, target: float) -> None:
        while (due := self._step(target)) is not None:
            for waiter in due:
                self._wake(waiter)
            self._move_guests()
        with self._lock:
            self._elapsed = target
        self._move_guests()

    def _move_guests(self) -> None:
        guests = list(self.guests)
        for guest in guests:
            guest.move(self.monotonic())
        if guests:
            self.rest()

    def rest(self) -> None:
        """Return when every thread on this clock waits again and the rest of the process is still.

        With guests, when that holds for all processes: when one round of looking at them has found
        that nobody has waited anew since the round before. Gives up after the clock's patience, so
        that a thread held up elsewhere cannot stop time for good.
        """
        give_up = time.monotonic() + self._patience_seconds
        seen: list[int] = []
        while True:
            wait_for_rest(self._stirring, patience_seconds=self._patience_seconds)
            if not self.guests:
                self._guests_next = None
                return
            found = [guest.rest() for guest in list(self.guests)]
            waits = [self._waits, *(count for _, count in found)]
            if waits == seen or time.monotonic() > give_up:
                deadlines = [deadline for deadline, _ in found if deadline is not None]
                self._guests_next = min(deadlines, default=None)
                return
            seen = waits

    def next_deadline(self) -> float | None:
        """Return the next moment that a thread of this process waits for."""
        with self._lock:
            return min((w.deadline for w in self._waiters if w.deadline is not None), default=None)

    @property
    def waits(self) -> int:
        """Return how often threads of this process have begun to wait."""
        return self._waits

    def _step(self, target: float) -> list[_Waiter] | None:
        """Move to the next deadline up to `target` and return who waits for it; None: no more."""
        with self._lock:
            deadlines = [w.deadline for w in self._waiters if w.deadline is not None]
            if self._guests_next is not None:
                deadlines.append(self._guests_next)
            next_deadline = min(deadlines, default=target + 1)
            if next_deadline > target:
                return None
            self._elapsed = max(self._elapsed, next_deadline)
            return [w for w in self._waiters if w.deadline == next_deadline]

    def _wake(self, waiter: _Waiter) -> None:
        with waiter.condition:
            with self._lock:
                gone = (
                    waiter not in self._waiters
                )  # an earlier thread of this step notified it already
            if not gone:
                waiter.condition.notify_all()
        if not gone:
            self.rest()

    def _stirring(self) -> bool:
        """Say whether a thread was notified, or is about to wait, and has not got there yet.

        A condition keeps a queue of those that wait on it and takes a thread off at the moment of
        its notification. Nothing public shows that queue, and guessing by time would leave a step's
        end to luck.
        """
        with self._lock:
            waiting = Counter(id(waiter.condition) for waiter in self._waiters)
            return any(
                waiting[id(waiter.condition)] > len(getattr(waiter.condition, "_waiters", ()))
                for waiter in self._waiters
            )
