"""What passes between the server and its handlers: requests, responses and limits.

A handler sees a request only when it is whole and well-formed: its head parsed, its body read and
bounded. It answers with one of four bodies, and the server knows for each how to frame it, how to
end it and whom to close.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias


class Headers:
    """Header fields in the order they came; names compare without case."""

    __slots__ = ("_index", "_pairs")

    def __init__(self, pairs: Sequence[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        index: dict[str, list[str]] = {}
        for name, value in self._pairs:
            index.setdefault(name.lower(), []).append(value)
        self._index = index

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of a field, or the default."""
        values = self._index.get(name.lower())
        return values[0] if values else default

    def get_all(self, name: str) -> list[str]:
        """Return every value of a field, in order; empty when there is none."""
        return list(self._index.get(name.lower(), ()))

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield the fields as they came, names in their own spelling."""
        return iter(self._pairs)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._index

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        # Values may be credentials; a repr ends up in logs and tracebacks.
        return f"Headers({', '.join(name for name, _ in self._pairs)})"


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request.

    `target` is the request-target as sent. `path` and `query` are its parts, still
    percent-encoded; an absolute-form target has lost scheme and authority there, and CONNECT has
    neither. `client` is the peer's address and port. `client_certificate` is the verified TLS
    client certificate as `ssl.getpeercert` shows it, None when there is none.
    """

    method: str
    target: str
    path: str
    query: str
    headers: Headers = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    client: tuple[str, int] = ("", 0)
    client_certificate: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A part of an open binary file, which the response owns: the server closes it."""

    file: BinaryIO
    offset: int
    length: int

    def close(self) -> None:
        """Close the file."""
        self.file.close()


Takeover: TypeAlias = Callable[[socket.socket, bytes], None]
"""Takes the connection out of HTTP: called with the socket and the bytes read beyond the request.

It writes everything itself, the status line included, and the connection closes when it returns.
"""

Body: TypeAlias = bytes | Iterator[bytes] | FileSlice | Takeover


@dataclass(slots=True)
class Response:
    """An answer.

    The body decides the framing. Bytes and FileSlice get a Content-Length. An iterator is sent in
    chunks as it yields, or as it is when the headers name a Content-Length, which it then has to
    match; its `close`, where it has one, is called when it ends or the client is gone. It may raise
    ConnectionResetError or ConnectionAbortedError to break the connection off on purpose, with a
    reset or without. A Takeover answers for itself.

    `live` marks an iterator without an end of its own, such as a watch. Its `close` is called from
    another thread, perhaps more than once, as soon as the client hangs up or the server stops, and
    must make a `__next__` that is blocked end. Generators cannot be closed while they run, so a
    live body is an object.

    `done` is called once when the answer is over, however it ended, with the number of body bytes
    that the kernel took; a Takeover's are not counted.
    """

    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: Body = b""
    live: bool = False
    done: Callable[[int], None] | None = None


Handler: TypeAlias = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost.

    `idle_seconds` is longer than the 90 s after which an API server gives up a connection of its
    own accord: were it shorter, a review might be sent into the moment in which we close, and fail.
    `header_seconds` counts from a head's first byte and also bounds the silence of a fresh
    connection; `body_seconds` is for a whole body; `write_seconds` for a client that takes
    nothing at all. `body_bytes` bounds one body, `bodies_bytes` those of all clients together that
    are larger than a head may be; `room_seconds` is how long one waits for others to end.
    """

    head_bytes: int = 64 * 1024
    header_count: int = 128
    body_bytes: int = 8 * 1024 * 1024
    bodies_bytes: int = 32 * 1024 * 1024
    handshake_seconds: float = 10.0
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    room_seconds: float = 2.0
    idle_seconds: float = 120.0
    write_seconds: float = 60.0
    connections: int = 4096
    backlog: int = 1024


class Refusal(Exception):
    """A request that is answered with a status and the end of the connection, not served.

    `retry_seconds` is when to try again, 0 if that would not help.
    """

    def __init__(self, status: int, message: str, *, retry_seconds: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds
