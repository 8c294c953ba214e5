"""The network between two programs, as a TCP relay that can be cut, held up, and mended.

    with Relay(("127.0.0.1", peer.port)) as relay:
        ...                      # give relay.address to the client in the peer's place
        relay.cut(after_bytes=1_000_000)

What passes is not looked at, so TLS goes through untouched.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

_PIECE_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Passes connections on to one address, from `start` to `stop`. Thread-safe.

    `connections` counts those that came, `passed_bytes` what went to clients.
    """

    def __init__(self, target: tuple[str, int], *, host: str = "127.0.0.1", port: int = 0) -> None:
        """`target` may change at any time; it counts for the next connection."""
        self.target = target
        self.connections = 0
        self.passed_bytes = 0
        self._host, self._port = host, port
        self._changed = threading.Condition()
        self._down = False
        self._held = False
        self._allowance: int | None = None
        self._stopped = True
        self._listener: socket.socket | None = None
        self._lines: dict[_Line, threading.Thread] = {}
        self._acceptor: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return where clients connect to."""
        return self._host, self._port

    def start(self) -> Self:
        """Listen; again on the same port after a stop."""
        listener = socket.create_server((self._host, self._port))
        self._port = listener.getsockname()[1]
        with self._changed:
            self._stopped, self._listener = False, listener
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name="relay")
        self._acceptor.start()
        return self

    def stop(self) -> None:
        """Break every connection and listen no more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        if self._acceptor is not None:
            self._acceptor.join()
        self._break_lines()

    def cut(self, after_bytes: int = 0) -> None:
        """Reset every connection, and every new one, after so many more bytes to clients."""
        with self._changed:
            self._allowance = after_bytes or None
            self._down = not after_bytes
        if not after_bytes:
            self._break_lines()

    def hold(self) -> None:
        """Let nothing through, while connections stay open: packets are lost."""
        with self._changed:
            self._held = True

    def mend(self) -> None:
        """Let everything through again; what was held up goes on."""
        with self._changed:
            self._down = self._held = False
            self._allowance = None
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._changed:
                self.connections += 1
                refused = self._down or self._stopped
            if refused:
                _reset(client)
                continue
            line = _Line(client)
            thread = threading.Thread(target=self._carry, args=(line,), name="relay-line")
            with self._changed:
                self._lines[line] = thread
            thread.start()

    def _carry(self, line: _Line) -> None:
        try:
            line.connect(self.target)
            while (piece := line.receive()) is not None:
                if not self._may_pass(line, piece):
                    line.broken = True
                    return
                line.send(piece)
        except OSError:
            line.broken = True  # either side has gone
        finally:
            line.close()
            with self._changed:
                self._lines.pop(line, None)

    def _may_pass(self, line: _Line, piece: tuple[socket.socket, bytes]) -> bool:
        """Wait while the network is held up; say whether the piece passes whole."""
        with self._changed:
            while self._held and not self._stopped and not line.broken:
                self._changed.wait()
            if self._stopped or self._down or line.broken:
                return False
            if piece[0] is not line.client:
                return True
            size = len(piece[1])
            if self._allowance is not None:
                passing = min(size, self._allowance)
                self._allowance -= passing
                self._down = self._allowance == 0
                if passing < size:
                    self.passed_bytes += passing
                    line.send((line.client, piece[1][:passing]))
                    return False
            self.passed_bytes += size
            return True

    def _break_lines(self) -> None:
        with self._changed:
            lines = dict(self._lines)
            self._changed.notify_all()
        for line in lines:
            line.stop()
        with self._changed:
            self._changed.notify_all()
        for thread in lines.values():
            if thread is not threading.current_thread():
                thread.join()


class _Line:
    """One connection through the relay: both its ends."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.broken = False
        self._server: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()

    def connect(self, target: tuple[str, int]) -> None:
        """Connect to the other end. Raises OSError."""
        self._server = socket.create_connection(target, _CONNECT_SECONDS)
        self._server.settimeout(None)
        for end in (self.client, self._server):  # what came in goes out, without delay
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> tuple[socket.socket, bytes] | None:
        """Return where the next piece goes, and the piece; None when either side has ended."""
        server = self._server
        if server is None:
            return None
        source = self._ready((self.client, select.POLLIN), (server, select.POLLIN))
        data = source.recv(_PIECE_BYTES) if source is not None else b""
        return (server if source is self.client else self.client, data) if data else None

    def send(self, piece: tuple[socket.socket, bytes]) -> None:
        """Send a piece on, as far as the line holds. Raises OSError."""
        end, left = piece[0], memoryview(piece[1])
        while left and self._ready((end, select.POLLOUT)) is not None:
            with suppress(BlockingIOError):
                left = left[end.send(left, socket.MSG_DONTWAIT) :]

    def _ready(self, *wanted: tuple[socket.socket, int]) -> socket.socket | None:
        """Wait for one of the ends; return it, or None when the line is broken."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for end, event in wanted:
            poll.register(end, event)
        ready = {descriptor for descriptor, _ in poll.poll()}
        if self._woken.fileno() in ready:
            self.broken = True
            return None
        return next(end for end, _ in wanted if end.fileno() in ready)

    def stop(self) -> None:
        """Break the connection, from any thread."""
        self.broken = True
        with suppress(OSError):
            self._wake.send(b"x")

    def close(self) -> None:
        """Close both ends, with a reset when the line broke."""
        with ExitStack() as stack:
            for end in (self._wake, self._woken, self._server, self.client):
                if end is not None:
                    stack.callback(_reset if self.broken and end is self.client else _end, end)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()


def _end(end: socket.socket) -> None:
    end.close()
