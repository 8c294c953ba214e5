"""What all downloads of a node share: a gate of requests, a bandwidth, and memory.

One `Limits` lives as long as the plugin. Its numbers follow the node's spec while downloads run: a
lower concurrency lets running requests end and starts fewer, a new bandwidth holds from the next
read on.

`fetching` takes slots and bandwidth, `engine` asks for its share of the memory, and `reporter`'s
side calls `change`. Rules: NS-DL-12, NS-DL-13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpustack_delivery.ports import Clock

WINDOW_SEGMENTS: Final = 12
"""Segments that all downloads of the node together hold in memory, a few more while they change."""

LEAST_SEGMENTS: Final = 2
"""What one download may hold however many there are: one arriving, one being hashed."""

UNIT_BYTES: Final = 32 << 10
"""The least that is read at once while the bandwidth is limited, and the least that may burst."""

_UNITS_PER_SECOND: Final = 200
"""Reads that are enough to be steady: each costs the interpreter, which mounts wait for."""


class Abandoned(Exception):
    """The download that waits for its turn is over."""


class Limits:
    """The node's limits; thread-safe.

    Args:
        clock: what bandwidth is measured by.
        concurrency: requests that may run at once, at least 1.
        bytes_per_second: received bytes, 0 for no limit.
    """

    def __init__(self, clock: Clock, *, concurrency: int = 8, bytes_per_second: int = 0) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._concurrency = max(1, concurrency)
        self._running = 0
        self._rate = max(0, bytes_per_second)
        self._tokens = float(self._burst())
        self._filled_at = clock.monotonic()
        self._downloads: list[Callable[[], None]] = []

    @property
    def concurrency(self) -> int:
        """Return how many requests may run at once."""
        return self._concurrency

    @property
    def bytes_per_second(self) -> int:
        """Return the bandwidth; 0 means no limit."""
        return self._rate

    @property
    def share_segments(self) -> int:
        """Return how many segments one download may hold now."""
        return max(LEAST_SEGMENTS, WINDOW_SEGMENTS // max(1, len(self._downloads)))

    def change(self, *, concurrency: int, bytes_per_second: int) -> None:
        """Apply new numbers to everything that runs."""
        with self._changed:
            self._fill()
            self._concurrency = max(1, concurrency)
            self._rate = max(0, bytes_per_second)
            self._tokens = min(self._tokens, self._burst())
            downloads = list(self._downloads)
        self.wake()
        for wake_download in downloads:
            wake_download()

    def wake(self) -> None:
        """Let everyone who waits here look again at what they wait for."""
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def taking_part(self, wake_download: Callable[[], None]) -> Iterator[None]:
        """Count a download in while it runs; it is called when its share or the numbers change."""
        with self._changed:
            self._downloads.append(wake_download)
        try:
            yield
        finally:
            with self._changed:
                self._downloads.remove(wake_download)
                others = list(self._downloads)
            for wake_other in others:
                wake_other()

    @contextmanager
    def slot(self, over: Callable[[], bool]) -> Iterator[None]:
        """Hold one of the node's requests.

        Raises:
            Abandoned: `over` came true while waiting.
        """
        with self._changed:
            while self._running >= self._concurrency:
                if over():
                    raise Abandoned
                self._clock.wait(self._changed, None)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def take(self, wanted: int, over: Callable[[], bool]) -> int:
        """Wait for bandwidth and return how many bytes may be read now, at least 1.

        Raises:
            Abandoned: `over` came true while waiting.
        """
        if not self._rate:
            return wanted
        with self._changed:
            while self._rate:
                self._fill()
                least = min(wanted, max(UNIT_BYTES, self._rate // _UNITS_PER_SECOND))
                missing = least - self._tokens
                if missing < 1:  # a part of a byte: waiting for it may be too short for any clock
                    self._tokens -= least
                    return least
                if over():
                    raise Abandoned
                self._clock.wait(self._changed, missing / self._rate)
        return wanted

    def give_back(self, unread: int) -> None:
        """Return bandwidth that was taken and not used."""
        if unread and self._rate:
            with self._changed:
                self._tokens = min(self._tokens + unread, self._burst())

    def _burst(self) -> int:
        return max(self._rate, UNIT_BYTES)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        grown = (now - self._filled_at) * self._rate
        self._tokens = min(self._tokens + grown, self._burst())
        self._filled_at = now
