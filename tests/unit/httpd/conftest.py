"""A server per test, and a client that says exactly the bytes it is told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from gpustack_delivery.httpd import Handler, Limits, Request, Response, Server

PATIENCE_SECONDS = 10.0
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Serve(Protocol):
    """Starts a server that the test's end stops."""

    def __call__(self, handler: Handler = ..., *, limits: Limits = ...) -> Server: ...


Talk = Callable[[Server, bytes], bytes]


class Feed:
    """A live body: yields what it is given, and ends when closed from any thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._events: list[bytes] = []
        self.asked = threading.Event()
        self.closed = threading.Event()

    def put(self, event: bytes) -> None:
        """Give the next piece."""
        with self._condition:
            self._events.append(event)
            self._condition.notify()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self.asked.set()
        with self._condition:
            self._condition.wait_for(lambda: self._events or self.closed.is_set())
            if self._events:
                return self._events.pop(0)
        raise StopIteration

    def close(self) -> None:
        """End the stream; safe from any thread, and twice."""
        with self._condition:
            self.closed.set()
            self._condition.notify()


def echo(request: Request) -> Response:
    """Answer with the request's method, path, query and body, a space between them."""
    parts = (request.method.encode(), request.path.encode(), request.query.encode(), request.body)
    return Response(200, [("Content-Type", "application/octet-stream")], b" ".join(parts))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts servers; all are stopped at the end."""
    with ExitStack() as stack:

        def start(handler: Handler = echo, *, limits: Limits = Limits()) -> Server:  # noqa: B008 - frozen
            return stack.enter_context(Server(handler, name="test", limits=limits))

        yield start


@pytest.fixture
def talk() -> Talk:
    """Return a function that sends bytes, ends its side and returns everything the server says."""

    def say(server: Server, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the server has heard enough already; its answer may be waiting
            return hear(sock)

    return say


def hear(sock: socket.socket) -> bytes:
    """Return everything until the server closes; what came before a reset still counts."""
    heard = bytearray()
    try:
        while data := sock.recv(65536):
            heard += data
    except ConnectionError:
        pass
    return bytes(heard)
