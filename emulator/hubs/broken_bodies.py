"""Faults within a body: bytes wrong, missing, late or too many, and connections that break.

Offsets are positions in the file, not in the answer: `Reset(offset=1000)` breaks whichever answer
carries byte 1000, just before it. For answers that are no file, position and offset are the same.
"""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from emulator.hubs.faults import Strike
from emulator.hubs.gate import Gate
from emulator.hubs.replies import Reply
from emulator.hubs.wrong_answers import AnyAnswer
from gpustack_delivery.httpd import Request, Response


@dataclass(frozen=True)
class Within:
    """A fault at one byte of a file; it strikes only answers that carry this byte."""

    offset: int = 0

    def strikes(self, request: Request, reply: Reply) -> bool:
        """Say whether the answer's body holds the byte."""
        holds = reply.start <= self.offset < reply.start + reply.length
        return holds and request.method == "GET" and reply.status in {200, 206}

    def before(self, reply: Reply) -> Iterator[bytes]:
        """Yield the part of the body in front of the byte."""
        return reply.content.pieces(reply.start, self.offset - reply.start)

    def after(self, reply: Reply) -> Iterator[bytes]:
        """Yield the rest of the body, the byte itself included."""
        end = reply.start + reply.length
        return reply.content.pieces(self.offset, end - self.offset)


@dataclass(frozen=True)
class _Spoiled(Within, ABC):
    """An answer as long as it should be, with something else for a body."""

    def spoil(self, strike: Strike) -> Response:
        """Return the answer with its length, and what `body` yields as its body."""
        reply = strike.reply
        headers = [*reply.headers, ("Content-Length", str(reply.length))]
        return Response(reply.status, headers, self.body(reply))

    @abstractmethod
    def body(self, reply: Reply) -> Iterator[bytes]:
        """Yield the spoiled body."""


@dataclass(frozen=True)
class Flip(_Spoiled):
    """One byte with some of its bits flipped."""

    mask: int = 0xFF

    def body(self, reply: Reply) -> Iterator[bytes]:
        """Yield everything, one byte of it wrong."""
        yield from self.before(reply)
        rest = self.after(reply)
        piece = next(rest)
        yield bytes([piece[0] ^ self.mask]) + piece[1:]
        yield from rest


class Reset(_Spoiled):
    """The connection is reset in front of the byte."""

    def body(self, reply: Reply) -> Iterator[bytes]:
        """Yield the beginning, then break."""
        yield from self.before(reply)
        raise ConnectionResetError


class Close(_Spoiled):
    """The connection is closed in front of the byte, though the length promised more."""

    def body(self, reply: Reply) -> Iterator[bytes]:
        """Yield the beginning, then end the connection."""
        yield from self.before(reply)
        raise ConnectionAbortedError


@dataclass(frozen=True)
class Stall(Within):
    """Nothing more from the byte on, the connection staying open.

    Args:
        seconds: how long the pause is; then the rest is sent. With None it lasts until
            `faults.release()`, or until the client closes the connection.
    """

    seconds: float | None = None

    def spoil(self, strike: Strike) -> Response:
        """Return an answer that stops in its middle."""
        reply = strike.reply
        headers = [*reply.headers, ("Content-Length", str(reply.length))]
        body = _Stalled(self, reply, strike.gate)
        return Response(reply.status, headers, body, live=True)


class _Stalled:
    """A body that waits at a gate on its way; closing it from another thread ends the wait."""

    def __init__(self, stall: Stall, reply: Reply, gate: Gate) -> None:
        self._gate = gate
        self._closed = threading.Event()
        self._pieces = self._run(stall, reply)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """End the body, and the connection with it."""
        self._closed.set()
        self._gate.wake()

    def _run(self, stall: Stall, reply: Reply) -> Iterator[bytes]:
        yield from stall.before(reply)
        self._gate.wait(stall.seconds, self._closed.is_set)
        if self._closed.is_set():
            raise ConnectionAbortedError
        yield from stall.after(reply)


@dataclass(frozen=True)
class Overrun(AnyAnswer):
    """More bytes than the Content-Length says; they look like the next answer's beginning."""

    extra: bytes = b"overrun"

    def spoil(self, strike: Strike) -> Response:
        """Return the answer with bytes behind its end."""
        reply = strike.reply

        def send(sock: socket.socket, _: bytes) -> None:
            sock.sendall(_head(reply, ("Content-Length", str(reply.length))))
            for piece in reply.content.pieces(reply.start, reply.length):
                sock.sendall(piece)
            sock.sendall(self.extra)

        return Response(reply.status, body=send)


class BrokenChunks(Within):
    """A body in chunks, in which garbage takes the place of a chunk's size."""

    def spoil(self, strike: Strike) -> Response:
        """Return the answer in chunks that break off."""
        reply = strike.reply

        def send(sock: socket.socket, _: bytes) -> None:
            sock.sendall(_head(reply, ("Transfer-Encoding", "chunked")))
            for piece in self.before(reply):
                sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            sock.sendall(b"zz\r\n")

        return Response(reply.status, body=send)


class Hangup(AnyAnswer):
    """The connection is closed without a word."""

    def spoil(self, strike: Strike) -> Response:
        """Return a takeover that says nothing."""
        return Response(body=lambda *_: None)


def _head(reply: Reply, framing: tuple[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Spoiled"]
    lines += [f"{name}: {value}" for name, value in (*reply.headers, framing)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
