"""A server whose every connection is taken: who only waits makes room, who is answered does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gpustack_delivery.httpd import Limits, Request, Response, Server
from tests.unit.fakes import eventually
from tests.unit.httpd.conftest import GET, PATIENCE_SECONDS, Serve, Talk, hear

PLACES = 4
# What a client may leave a server waiting in, by what it has sent.
LINGERERS = {
    "silent": b"",
    "within the head": b"GET / HTTP/1.1\r\nHo",
    "within the body": b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
    "after an answer": GET,
    "refused": b"nonsense\r\n\r\n",
    "not reading": b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close in the end whatever a test has opened."""
    with ExitStack() as stack:
        yield stack


def answer(request: Request) -> Response:
    """Answer with little, or with more than a connection holds."""
    return Response(200, [], b"x" * (64 << 20) if request.path == "/large" else b"ok")


def connect(stack: ExitStack, server: Server, data: bytes = b"") -> socket.socket:
    """Return a client that has sent something."""
    client = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
    stack.enter_context(client)
    client.sendall(data)
    return client


@pytest.mark.parametrize("sent", LINGERERS.values(), ids=LINGERERS.keys())
def test_newcomers_are_served_whatever_others_wait_for(
    serve: Serve, talk: Talk, stack: ExitStack, sent: bytes
) -> None:
    """However many stay and say no more, each newcomer is let in at once, and answered."""
    server = serve(answer, limits=Limits(connections=PLACES))
    for _ in range(3 * PLACES):
        connect(stack, server, sent)
        assert talk(server, GET).endswith(b"ok")


def test_the_longest_waited_for_goes_first(serve: Serve, stack: ExitStack) -> None:
    """A client that was answered a moment ago outlives those that have been silent for longer."""
    server = serve(answer, limits=Limits(connections=3))
    clients = []
    for _ in range(3):  # one after another: each has been waited for longer than the next
        clients.append(connect(stack, server, GET))
        assert clients[-1].recv(1000)
    active, silent, later = clients
    active.sendall(GET)
    assert active.recv(1000)
    assert connect(stack, server, GET).recv(1000)
    assert hear(silent) == b""
    for client in (active, later):
        client.sendall(GET)
        assert client.recv(1000)


def test_nobody_is_cut_who_is_being_answered(serve: Serve, stack: ExitStack) -> None:
    """A newcomer waits while all others are being answered, and each of them gets its answer."""
    go, busy = threading.Event(), threading.Semaphore(0)

    def handler(_: Request) -> Response:
        busy.release()
        go.wait(PATIENCE_SECONDS)
        return Response(200, [], b"whole")

    server = serve(handler, limits=Limits(connections=2))
    clients = [connect(stack, server, GET) for _ in range(2)]
    for _ in clients:
        assert busy.acquire(timeout=PATIENCE_SECONDS)
    clients.append(connect(stack, server, GET))
    assert not busy.acquire(timeout=0.15)
    go.set()
    for client in clients:
        assert client.recv(1000).endswith(b"whole")


def test_no_thread_stays_of_those_that_left(serve: Serve, stack: ExitStack) -> None:
    """Who gives way takes its thread along: there are never more than places, for long."""
    server = serve(answer, limits=Limits(connections=PLACES))
    for _ in range(10 * PLACES):
        connect(stack, server)

    def threads() -> int:
        return sum(thread.name.startswith("test:") for thread in threading.enumerate())

    assert connect(stack, server, GET).recv(1000)
    eventually(lambda: threads() <= PLACES, "the end of the threads")
