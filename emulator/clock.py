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

import math
import threading
import time
from collections import Counter
from collections.abc import MutableSequence
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

    def stirs(self) -> bool:
        """Say whether it has run since it was asked last, or runs now, or wants to."""

    def next_deadline(self) -> float:
        """Return the next moment that a thread of that process waits for; infinity for none."""

    def show(self, elapsed: float) -> None:
        """Let it read this time from now on."""

    def wake(self) -> None:
        """Wake those of its threads whose time has come, and return when they have run."""


class ManualClock:
    """Time that stands still until `advance` moves it. Deadlines are met exactly, never late.

    `guests` are other processes that live by this clock.
    """

    def __init__(self, start: float = 1_767_225_600.0, *, patience_seconds: float = 10.0) -> None:
        """Stand at `start`, in seconds since the epoch (the beginning of 2026 unless told
        otherwise).

        Args:
            patience_seconds: real seconds after which a step goes on although something is still
                busy: a test may hold a transfer up on purpose.
        """
        self._epoch = start
        self._face: MutableSequence[float] | memoryview[float] = [0.0, math.inf]
        """The time, and the next moment that anybody waits for."""
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._advancing = threading.Lock()
        self._waiters: list[_Waiter] = []  # in the order in which they began to wait
        self.guests: list[Guest] = []

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""
        return self._epoch + self.monotonic()

    def monotonic(self) -> float:
        """Return the seconds that this clock has been moved by."""
        return self._face[0]

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a held condition until notified or `seconds` were advanced; may return early."""
        if seconds is not None and seconds <= 0:
            return
        with self._lock:
            waiter = _Waiter(condition, None if seconds is None else self._face[0] + seconds)
            self._waiters.append(waiter)
            self._show_next()
        try:
            condition.wait()
        finally:
            with self._lock:
                self._waiters.remove(waiter)
                self._show_next()

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
        while (moment := self._next_up_to(target)) is not None:
            self._show(max(self.monotonic(), moment))
            for guest in [g for g in self.guests if g.next_deadline() <= moment]:
                guest.wake()
                self.rest()
            self._wake_due()
        self._show(target)

    def _wake_due(self) -> None:
        """Wake the threads of this process whose time has come, one after the other."""
        with self._lock:
            now = self._face[0]
            due = [w for w in self._waiters if w.deadline is not None and w.deadline <= now]
        for waiter in due:
            self._wake(waiter)

    def _next_up_to(self, target: float) -> float | None:
        """Return the next moment that anybody waits for, None when it lies behind the target."""
        guests = list(self.guests)
        moment = min([self._face[1], *(guest.next_deadline() for guest in guests)])
        return moment if moment <= target else None

    def _show(self, elapsed: float) -> None:
        self._face[0] = elapsed
        for guest in list(self.guests):
            guest.show(elapsed)

    def _show_next(self) -> None:
        """Say what the earliest deadline is, with the lock held."""
        deadlines = (w.deadline for w in self._waiters if w.deadline is not None)
        self._face[1] = min(deadlines, default=math.inf)

    def rest(self) -> None:
        """Return when every thread on this clock waits again and the rest of the process is still.

        With guests, when that holds for all processes at one and the same moment. Gives up after
        the clock's patience, so that a thread held up elsewhere cannot stop time for good.
        """
        wait_for_rest(self._anybody_stirs, patience_seconds=self._patience_seconds)

    def _anybody_stirs(self) -> bool:
        # All are asked, each time: what one hands to another between two looks shows in the first.
        return any([self._stirring(), *(guest.stirs() for guest in list(self.guests))])

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
