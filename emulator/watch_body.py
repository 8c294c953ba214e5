"""A watch as the body of an HTTP answer: one line an event, until one side ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emulator.contracts import Json, WatchStream
from emulator.objects import encoded_event


class WatchBody:
    """Iterates on the connection's thread; `close` may come from any other, and more than once."""

    def __init__(self, stream: WatchStream, shape: Callable[[Json], Json] | None) -> None:
        """Send events as they are, sharing their bytes, or each object through `shape`."""
        self._stream = stream
        self._events = iter(stream)
        self._shape = shape

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        event = next(self._events)
        if self._shape is None or event.type == "ERROR":
            return event.line()
        return encoded_event(event.type, self._shape(event.object))

    def close(self) -> None:
        """End the watch."""
        self._stream.close()
