"""How an attempt is told to stop: one flag that wakes whoever works for it.

The attempt's owner holds one and calls `cancel`; the engine attaches what must be woken, so that a
blocked read ends at once and not at its timeout; `ends_requests` does it for a listing. Rules:
NS-DL-29.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpustack_delivery.adapters.flights import Flight, aboard


class Cancellation:
    """One attempt's stop flag; thread-safe, and final once set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = False
        self._attached: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        """Say whether the attempt is to stop."""
        return self._requested

    def cancel(self) -> None:
        """Stop the attempt; its checkpoints are saved and its files stay for a resume."""
        with self._lock:
            self._requested = True
            attached = list(self._attached)
        for stop in attached:
            stop()

    @contextmanager
    def attached(self, stop: Callable[[], None]) -> Iterator[None]:
        """Have `stop` called when the attempt is cancelled, at once when it is already."""
        with self._lock:
            self._attached.append(stop)
            requested = self._requested
        if requested:
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._attached.remove(stop)

    @contextmanager
    def ends_requests(self) -> Iterator[None]:
        """Have every request that this thread makes meanwhile end when the attempt does."""
        flight = Flight()
        with self.attached(flight.abort), aboard(flight):
            yield
