"""What the bodies of all requests may hold together.

A body no larger than a head may be costs what its connection does, and always passes. The others
count from before they are read until their answer is there. One for which there is no room waits
a little; then clients that have been sent for longer than that make room, and if all are being
answered, the newcomer is told to come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from gpustack_delivery.httpd.messages import Limits, Refusal

RETRY_SECONDS: Final = 1


class Holder(Protocol):
    """A connection whose request has a body."""

    def give_way(self) -> bool:
        """End it now if it only waits for its client, and say whether it did."""


class Room:
    """The room that the large bodies of one server share; safe on any number of threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._freed = threading.Condition()
        self._free = limits.bodies_bytes
        self._held: dict[Holder, tuple[float, int]] = {}  # since when, and bytes; oldest first

    @contextmanager
    def hold(self, holder: Holder, length: int | None) -> Iterator[None]:
        """Keep room for a body of this length; None is one in chunks, which may become the largest.

        Raises:
            Refusal: there is none, and nobody who could make some.
        """
        limits = self._limits
        size = min(limits.body_bytes if length is None else length, limits.bodies_bytes)
        if size <= limits.head_bytes:
            yield
            return
        self._take(holder, size)
        try:
            yield
        finally:
            with self._freed:
                self._give_back(holder)

    def _take(self, holder: Holder, size: int) -> None:
        began = time.monotonic()
        with self._freed:
            if not self._freed.wait_for(lambda: self._free >= size, self._limits.room_seconds):
                self._part_with_slow(size, began)
            if self._free < size:
                message = "too many large requests are being read or answered; try again"
                raise Refusal(503, message, retry_seconds=RETRY_SECONDS)
            self._free -= size
            self._held[holder] = (time.monotonic(), size)

    def _give_back(self, holder: Holder) -> None:
        _, size = self._held.pop(holder, (0.0, 0))  # nothing is left of one that made room
        self._free += size
        self._freed.notify_all()

    def _part_with_slow(self, size: int, began: float) -> None:
        """End those that were being read before a newcomer came, as many as stand in its way.

        Never a younger one: a crowd of the diligent would else only cut each other off.
        """
        for holder, (since, _) in list(self._held.items()):
            if self._free < size and since < began and holder.give_way():
                self._give_back(holder)
