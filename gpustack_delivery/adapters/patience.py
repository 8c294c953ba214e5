"""How long one errand to a hub may take, and that none outlives its term.

Each request has a limit of its own, but a listing makes as many as the repository has pages or
directories. Five minutes are enough for any of them; what takes longer is a hub in trouble, and it
holds a thread of the worker that other artifacts wait for, or a Pod of the node that hears no
reason. When the worker's term ends, so does every errand, in the middle of a request if need be.

The worker's errands and the node's attempts use it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gpustack_delivery.adapters.flights import Flight, aboard
from gpustack_delivery.adapters.threads import start
from gpustack_delivery.errors import HostFault
from gpustack_delivery.ports import Clock

ERRAND_SECONDS: Final = 300.0
TOO_LONG: Final = f"the hub did not answer in full within {ERRAND_SECONDS / 60:.0f} minutes"


class Patience:
    """Gives each errand its time; safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._flights: set[Flight] = set()
        self._over = False

    @property
    def over(self) -> bool:
        """Say whether all errands were ended."""
        return self._over

    @contextmanager
    def errand(self) -> Iterator[Flight]:
        """Let this thread's requests travel on a flight that is aborted after five minutes.

        Raises:
            HostFault: there is no thread left to watch the time.
        """
        flight = Flight()
        until = self._clock.monotonic() + ERRAND_SECONDS
        watcher = threading.Thread(
            target=self._watch, args=(flight, until), name="errand", daemon=True
        )
        with self._changed:
            self._flights.add(flight)
        try:
            start(watcher)
        except HostFault:
            with self._changed:
                self._flights.remove(flight)
            raise
        try:
            with aboard(flight):
                yield flight
        finally:
            with self._changed:
                self._flights.remove(flight)
                self._changed.notify_all()
            watcher.join()

    def end(self) -> None:
        """End every errand that is under way, and each that begins from now on."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _watch(self, flight: Flight, until: float) -> None:
        with self._changed:
            while flight in self._flights and not self._over:
                left = until - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._changed, left)
            if flight in self._flights:
                flight.abort()
