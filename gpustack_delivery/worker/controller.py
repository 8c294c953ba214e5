"""Work that is named by a key and done until it holds: a queue, some threads, and retries.

A controller calls its `reconcile` for one key at a time on each of its threads, and never for the
same key on two of them. A key that is asked for while it is worked on is worked on again
afterwards. `reconcile` returns in how many seconds it wants to be called again, None for never;
what it raises is logged and retried after a growing, jittered pause, so that one broken object
neither stops the others nor spins. A write that met an object gone or moved on is no failure the
first time: the copy it was made from is behind, and by the next pass it is not.

Everything that waits here waits on the clock it was given.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from gpustack_delivery.errors import ApiFault, Conflict, DeliveryError, NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 300.0

Reconcile: TypeAlias = Callable[[Key], float | None]
"""Bring one object to where it should be; return when to look again, in seconds, None for never."""

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Hears of every pass, for the metrics."""

    def reconciled(self, controller: str, seconds: float, *, failed: bool) -> None:
        """Note one pass: whose, how long it took, and whether it raised."""


class Controller:
    """A keyed queue and the threads that work it off, from `start` to `stop`."""

    def __init__(
        self, name: str, reconcile: Reconcile, clock: Clock, observer: Observer, *, threads: int = 2
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self._clock = clock
        self._observer = observer
        self._changed = threading.Condition()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}:{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the passes under way end, and begin no other."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def enqueue(self, key: Key, delay_seconds: float = 0.0) -> None:
        """Ask for a pass over a key; the earliest of all that were asked for counts."""
        with self._changed:
            self._schedule(key, self._clock.monotonic() + delay_seconds)

    def _schedule(self, key: Key, due: float) -> None:
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._changed.notify()

    def _work(self) -> None:
        while (key := self._take()) is not None:
            began = self._clock.monotonic()
            again, failed = self._pass(key)
            self._observer.reconciled(self._name, self._clock.monotonic() - began, failed=failed)
            with self._changed:
                self._running.discard(key)
                if again is not None:
                    self._schedule(key, self._clock.monotonic() + again)
                if key in self._due:
                    # It was asked for while it ran; whoever saw it then put it aside.
                    heapq.heappush(self._heap, (self._due[key], key))
                    self._changed.notify()

    def _take(self) -> Key | None:
        """Wait for the next key that is due and that no other thread works on; None at the end."""
        with self._changed:
            while not self._stopping:
                wait = None
                if self._heap:
                    due, key = self._heap[0]
                    wait = due - self._clock.monotonic()
                    if key in self._running or self._due.get(key) != due:
                        heapq.heappop(self._heap)  # a later entry, or the end of the pass, counts
                        continue
                    if wait <= 0:
                        heapq.heappop(self._heap)
                        del self._due[key]
                        self._running.add(key)
                        return key
                self._clock.wait(self._changed, wait)
            return None

    def _pass(self, key: Key) -> tuple[float | None, bool]:
        """Reconcile one key; return when to look again, and whether it failed."""
        try:
            again = self._reconcile(key)
        except DeliveryError as error:
            behind = isinstance(error, NotFound | Conflict) and key not in self._failures
            level, name = logging.DEBUG if behind else logging.WARNING, "/".join(key)
            _log.log(level, "%s %s failed: %s %s", self._name, name, error, error.detail)
            wish = error.retry_after_seconds if isinstance(error, ApiFault) else 0.0
            return max(self._pause(key), wish), not behind
        except Exception:  # noqa: BLE001 - one defect must not end a thread that serves others
            _log.exception("%s %s failed", self._name, "/".join(key))
            return self._pause(key), True
        self._failures.pop(key, None)
        return again, False

    def _pause(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE_SECONDS)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
