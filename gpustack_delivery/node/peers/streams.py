"""The requests that one peer may get from this node, whatever they are for.

A peer serves many nodes, so each of them asks it for a few ranges at a time. What the node's own
limits say about requests, bandwidth and memory holds for peers as well.

Rules: NS-DL-12, NS-DL-13, PS-CLI-02.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpustack_delivery.node.downloading import Limits
from gpustack_delivery.ports import Clock


class SourceLimits(Limits):
    """One peer's share of the node's limits; used in place of the node's own.

    Args:
        node: the node's limits, which decide everything else.
        streams: requests that may run at once against this peer.
    """

    def __init__(self, clock: Clock, node: Limits, streams: int) -> None:
        super().__init__(clock, concurrency=streams)
        self._node = node
        self._streams = streams

    @property
    def concurrency(self) -> int:
        """Return how many requests may run at once."""
        return min(self._streams, self._node.concurrency)

    @property
    def bytes_per_second(self) -> int:
        """Return the node's bandwidth; 0 means no limit."""
        return self._node.bytes_per_second

    @property
    def share_segments(self) -> int:
        """Return how many segments one download may hold now."""
        return self._node.share_segments

    def wake(self) -> None:
        """Let everyone who waits here, or at the node's gate, look again."""
        super().wake()
        self._node.wake()

    @contextmanager
    def taking_part(self, wake_download: Callable[[], None]) -> Iterator[None]:
        """Count a download in among all of the node's."""
        with self._node.taking_part(wake_download):
            yield

    @contextmanager
    def slot(self, over: Callable[[], bool]) -> Iterator[None]:
        """Hold one of the peer's requests and one of the node's, always in this order."""
        with super().slot(over), self._node.slot(over):
            yield

    def take(self, wanted: int, over: Callable[[], bool]) -> int:
        """Wait for the node's bandwidth; see `Limits.take`."""
        return self._node.take(wanted, over)

    def give_back(self, unread: int) -> None:
        """Return bandwidth that was taken and not used."""
        self._node.give_back(unread)


class Streams:
    """The limits of every peer that was ever asked. Thread-safe."""

    def __init__(self, clock: Clock, node: Limits, streams: int) -> None:
        self._clock = clock
        self._node = node
        self._streams = streams
        self._lock = threading.Lock()
        self._of: dict[str, SourceLimits] = {}

    def of(self, url: str) -> SourceLimits:
        """Return the limits of the peer with a base URL, the same for every download."""
        with self._lock:
            if url not in self._of:
                self._of[url] = SourceLimits(self._clock, self._node, self._streams)
            return self._of[url]
