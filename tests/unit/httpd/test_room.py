"""What large bodies hold together: bounded, given back, and not kept by clients that are slow."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gpustack_delivery.httpd import Limits, Request, Response
from tests.unit.httpd.conftest import GET, PATIENCE_SECONDS, Serve, Talk, hear

HEAD, BODY = 1024, 4096
TIGHT = Limits(head_bytes=HEAD, body_bytes=BODY, bodies_bytes=2 * BODY, room_seconds=0.1)
PATIENT = Limits(
    head_bytes=HEAD, body_bytes=BODY, bodies_bytes=2 * BODY, room_seconds=PATIENCE_SECONDS
)
ANNOUNCED = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = ANNOUNCED % BODY + b"x" * BODY
ASKING = (ANNOUNCED % BODY).replace(b"Host", b"Expect: 100-continue\r\nHost")


class Busy:
    """A handler that answers a body when it is let, and anything else at once."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, request: Request) -> Response:
        if request.body:
            self.asked.release()
            self.go.wait(PATIENCE_SECONDS)
        return Response(200, [], b"whole")


@pytest.fixture
def busy() -> Iterator[Busy]:
    """Return a handler that keeps nobody after the test."""
    busy = Busy()
    yield busy
    busy.go.set()


@pytest.fixture
def connect() -> Iterator[Callable[[int, bytes], socket.socket]]:
    """Return a function that connects to a port and sends something; all is closed at the end."""
    with ExitStack() as stack:

        def send(port: int, data: bytes) -> socket.socket:
            client = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
            stack.enter_context(client)
            client.sendall(data)
            return client

        yield send


Connect = Callable[[int, bytes], socket.socket]


@pytest.mark.parametrize(
    "sent", [LARGE, CHUNKED + b"%x\r\n" % BODY], ids=["with a length", "chunked"]
)
def test_what_has_no_room_is_told_to_come_back(
    serve: Serve, talk: Talk, connect: Connect, busy: Busy, sent: bytes
) -> None:
    """Beside bodies that are being answered there is a 503 with its Retry-After, and no cut."""
    server = serve(busy, limits=TIGHT)
    clients = [connect(server.port, LARGE) for _ in range(2)]
    for _ in clients:
        assert busy.asked.acquire(timeout=PATIENCE_SECONDS)
    refusal = talk(server, sent)
    assert refusal.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in refusal
    busy.go.set()
    for client in clients:
        assert client.recv(1000).endswith(b"whole")


def test_small_bodies_and_none_need_no_room(
    serve: Serve, talk: Talk, connect: Connect, busy: Busy
) -> None:
    """While large bodies hold all there is, a probe is answered and a small review is judged."""
    server = serve(busy, limits=PATIENT)
    for _ in range(2):
        connect(server.port, LARGE)
        assert busy.asked.acquire(timeout=PATIENCE_SECONDS)
    assert talk(server, GET).endswith(b"whole")
    connect(server.port, ANNOUNCED % HEAD + b"x" * HEAD)
    assert busy.asked.acquire(timeout=PATIENCE_SECONDS)


def test_a_newcomer_waits_for_those_that_are_nearly_done(
    serve: Serve, connect: Connect, busy: Busy
) -> None:
    """One more large body than there is room for is answered when another one is done."""
    server = serve(busy, limits=PATIENT)
    clients = [connect(server.port, LARGE) for _ in range(2)]
    for _ in clients:
        assert busy.asked.acquire(timeout=PATIENCE_SECONDS)
    clients.append(connect(server.port, LARGE))
    busy.go.set()
    for client in clients:
        assert client.recv(1000).endswith(b"whole")


def test_who_is_slow_makes_room(serve: Serve, talk: Talk, connect: Connect) -> None:
    """Clients that announce much and send nothing keep nobody out: the oldest leaves, no more."""
    server = serve(limits=TIGHT)
    slow = []
    for _ in range(2):
        slow.append(connect(server.port, ASKING))
        assert slow[-1].recv(1000).startswith(b"HTTP/1.1 100 ")
    assert talk(server, LARGE).startswith(b"HTTP/1.1 200 ")
    assert hear(slow[0]) == b""
    slow[1].sendall(b"x" * BODY)
    assert slow[1].recv(1000).startswith(b"HTTP/1.1 200 ")


ENDINGS = {
    "answered": LARGE,
    "left within the body": ANNOUNCED % BODY + b"x",
    "malformed": CHUNKED + b"nonsense\r\n",
    "too large": CHUNKED + b"%x\r\n" % (BODY + 1),
    "another expectation": LARGE.replace(b"Host", b"Expect: tea\r\nHost"),
}


@pytest.mark.parametrize("sent", ENDINGS.values(), ids=ENDINGS.keys())
def test_room_comes_back_however_a_request_ends(serve: Serve, talk: Talk, sent: bytes) -> None:
    """After more such requests than there is room for, a large one is still served."""
    server = serve(limits=PATIENT)
    for _ in range(3):
        talk(server, sent)
    assert talk(server, LARGE).startswith(b"HTTP/1.1 200 ")


def test_permission_to_send_comes_when_there_is_room(
    serve: Serve, connect: Connect, busy: Busy
) -> None:
    """Who asks before it sends hears the refusal instead of a 100."""
    server = serve(busy, limits=TIGHT)
    for _ in range(2):
        connect(server.port, LARGE)
        assert busy.asked.acquire(timeout=PATIENCE_SECONDS)
    asking = connect(server.port, ASKING)
    asking.shutdown(socket.SHUT_WR)
    assert hear(asking).startswith(b"HTTP/1.1 503 ")
