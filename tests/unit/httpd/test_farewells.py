"""How connections end: clients that leave, reset or stop reading, and servers that stop."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpustack_delivery.httpd import FileSlice, Limits, Request, Response, Server
from tests.unit.httpd.conftest import GET, PATIENCE_SECONDS, Feed, Serve, Talk, hear


def until_refused(server: Server) -> None:
    """Return once nobody new is let in."""
    with suppress(ConnectionError):
        while True:
            socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS).close()


def test_live_body_is_closed_when_the_client_leaves(serve: Serve) -> None:
    """A watch blocked between events ends as soon as its client hangs up."""
    feed = Feed()
    server = serve(lambda _: Response(200, [], feed, live=True))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(GET)
        feed.put(b"event")
        heard = sock.recv(1000)
        while b"event" not in heard:
            heard += sock.recv(1000)
        assert not feed.closed.is_set()
    assert feed.closed.wait(PATIENCE_SECONDS)


def test_live_body_is_closed_when_the_client_resets(serve: Serve) -> None:
    """A reset is noticed like a farewell."""
    feed = Feed()
    server = serve(lambda _: Response(200, [], feed, live=True))
    sock = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
    with sock:
        sock.sendall(GET)
        assert feed.asked.wait(PATIENCE_SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert feed.closed.wait(PATIENCE_SECONDS)


def test_generator_is_closed_when_the_client_is_gone(serve: Serve) -> None:
    """An endless generator is closed at the write that finds nobody."""
    closed = threading.Event()

    def source() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 10000
        finally:
            closed.set()

    server = serve(lambda _: Response(200, [], source()))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(GET)
        assert sock.recv(1000)
    assert closed.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("kind", ["bytes", "file", "iterator"])
def test_client_that_takes_nothing_is_dropped(serve: Serve, tmp_path: Path, kind: str) -> None:
    """A client that does not read is given up after the write timeout, whatever the body."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    closed = threading.Event()

    def source() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
        finally:
            closed.set()

    def handler(_: Request) -> Response:
        if kind == "bytes":
            return Response(200, [], b"x" * 64 * 1024 * 1024)
        if kind == "file":
            return Response(200, [], FileSlice(path.open("rb"), 0, 64 * 1024 * 1024))
        return Response(200, [], source())

    server = serve(handler, limits=Limits(write_seconds=0.2))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(GET)
        assert sock.recv(1000)
        server.stop(drain_seconds=PATIENCE_SECONDS)  # returns once the connection has ended
        assert len(hear(sock)) < 64 * 1024 * 1024
    assert closed.is_set() == (kind == "iterator")


def test_stop_lets_a_busy_request_finish(serve: Serve) -> None:
    """Draining waits for an answer under way, and tells the client that it was the last."""
    arrived, go = threading.Event(), threading.Event()

    def handler(_: Request) -> Response:
        arrived.set()
        go.wait(PATIENCE_SECONDS)
        return Response(200, [], b"finished")

    server = serve(handler)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(GET)
        assert arrived.wait(PATIENCE_SECONDS)
        stopping = threading.Thread(target=server.stop, args=(PATIENCE_SECONDS,))
        stopping.start()
        until_refused(server)
        go.set()
        answer = hear(sock)
        stopping.join(PATIENCE_SECONDS)
    assert answer.endswith(b"finished")
    assert b"Connection: close\r\n" in answer
    assert not stopping.is_alive()


def test_stop_ends_idle_silent_and_live_connections_at_once(serve: Serve) -> None:
    """Nobody who is not being answered holds a stop up."""
    feed = Feed()
    server = serve(
        lambda request: (
            Response(200, [], feed, live=True)
            if request.path == "/watch"
            else Response(200, [], b"ok")
        )
    )
    address = ("127.0.0.1", server.port)
    with (
        socket.create_connection(address, PATIENCE_SECONDS) as idle,
        socket.create_connection(address, PATIENCE_SECONDS) as silent,
        socket.create_connection(address, PATIENCE_SECONDS) as watching,
    ):
        idle.sendall(GET)
        assert idle.recv(1000)
        watching.sendall(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n")
        assert feed.asked.wait(PATIENCE_SECONDS)
        server.stop(drain_seconds=PATIENCE_SECONDS * 100)  # it would take that long, did one wait
        assert hear(idle) == hear(silent) == b""
        assert hear(watching).endswith(b"0\r\n\r\n")


def test_stop_cuts_what_does_not_end(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """After the drain time a transfer is cut, and a handler that never returns is named."""
    caplog.set_level(logging.WARNING)
    arrived, go = threading.Event(), threading.Event()

    def handler(request: Request) -> Response:
        if request.path == "/stuck":
            arrived.set()
            go.wait(PATIENCE_SECONDS)
        return Response(200, [], b"x" * 64 * 1024 * 1024)

    server = serve(handler)
    address = ("127.0.0.1", server.port)
    with (
        socket.create_connection(address, PATIENCE_SECONDS) as reading_nothing,
        socket.create_connection(address, PATIENCE_SECONDS) as stuck,
    ):
        reading_nothing.sendall(GET)
        stuck.sendall(b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n")
        assert reading_nothing.recv(1)
        assert arrived.wait(PATIENCE_SECONDS)
        name = f"test:{stuck.getsockname()[1]}"
        server.stop(drain_seconds=0.1)
        assert f"handler was still busy in ['{name}']" in caplog.text
        go.set()
        for thread in threading.enumerate():
            if thread.name == name:
                thread.join(PATIENCE_SECONDS)


def test_handler_may_stop_its_server(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A server that is stopped by one of its own requests ends, and cuts that request off."""
    servers: list[Server] = []

    def handler(_: Request) -> Response:
        servers[0].stop(drain_seconds=0.0)
        return Response(200, [], b"too late")

    servers.append(serve(handler))
    with socket.create_connection(("127.0.0.1", servers[0].port), PATIENCE_SECONDS) as sock:
        sock.sendall(GET)
        assert hear(sock) == b""
    assert not caplog.records


def test_server_starts_again_on_its_port(serve: Serve, talk: Talk) -> None:
    """A stopped server may be started again, and is found where it was."""
    server = serve()
    url = server.url
    server.stop()
    server.stop()  # a second stop is nothing
    server.start()
    assert server.url == url
    assert talk(server, GET).startswith(b"HTTP/1.1 200 ")


def test_two_servers_cannot_share_a_port(serve: Serve) -> None:
    """The second server on a port fails at its start, with nothing left behind."""
    taken = Server(lambda _: Response(), name="second", port=serve().port)
    with pytest.raises(OSError, match="already in use"):
        taken.start()
    taken.stop()


def test_ipv6(talk: Talk) -> None:
    """An IPv6 address is written in brackets."""
    with Server(lambda _: Response(), name="six", host="::1") as server:
        assert server.url == f"http://[::1]:{server.port}"
        with socket.create_connection(("::1", server.port), PATIENCE_SECONDS) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert hear(sock).startswith(b"HTTP/1.1 200 ")


def test_api_server_is_the_one_to_end_an_idle_connection() -> None:
    """Idle connections outlive the 90 s after which Go's clients, the API server too, drop them."""
    assert Limits().idle_seconds > 90
