"""What happens when the machine runs out of something, and when handlers are at fault."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gpustack_delivery.httpd import Limits, Request, Response, Server
from tests.unit.httpd.conftest import GET, PATIENCE_SECONDS, Serve, Talk, hear


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave the process without a free file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - one more would be open
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_clients_wait_while_descriptors_are_short(serve: Serve) -> None:
    """Without a descriptor to accept with, clients wait; with one again they are served."""
    server = serve()
    with socket.socket() as client:
        with no_descriptors():
            client.connect(("127.0.0.1", server.port))
            client.sendall(GET)
            client.settimeout(0.15)
            with pytest.raises(TimeoutError):
                client.recv(1000)
        client.settimeout(PATIENCE_SECONDS)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_clients_wait_while_threads_are_short(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose thread cannot be started is not dropped: it is tried again."""
    server = serve()
    start, failures = threading.Thread.start, iter([True, True])

    def sometimes(thread: threading.Thread) -> None:
        if thread.name.startswith("test:") and next(failures, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", sometimes)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as client:
        client.sendall(GET)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert next(failures, None) is None


def test_stop_while_clients_wait() -> None:
    """A client that still waits for its turn does not hold the stop up, nor leak."""
    arrived, go = threading.Event(), threading.Event()

    def handler(_: Request) -> Response:
        arrived.set()
        go.wait(PATIENCE_SECONDS)
        return Response()

    with ExitStack() as stack:
        server = stack.enter_context(Server(handler, name="test", limits=Limits(connections=1)))
        stack.callback(go.set)
        address = ("127.0.0.1", server.port)
        first = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
        first.sendall(GET)
        assert arrived.wait(PATIENCE_SECONDS)
        second = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
        second.sendall(GET)
        second.settimeout(0.1)
        with pytest.raises(TimeoutError):
            second.recv(1000)
        second.settimeout(PATIENCE_SECONDS)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert hear(second) == b""
        go.set()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()


def test_clients_that_leave_at_once(serve: Serve, talk: Talk) -> None:
    """Connections reset before anybody looks at them harm nobody."""
    server = serve()
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert talk(server, GET).startswith(b"HTTP/1.1 200 ")


class Stubborn:
    """A body that cannot be closed."""

    def __iter__(self) -> Iterator[bytes]:
        return iter([b"piece"])

    def __next__(self) -> bytes:
        raise StopIteration

    def close(self) -> None:
        """Fail to close."""
        raise RuntimeError("stuck")


def test_body_that_fails_to_close(
    serve: Serve, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is whole, the failure is told, and the connection lives on."""
    answer = talk(serve(lambda _: Response(200, [], Stubborn())), GET + GET)
    assert answer.count(b"5\r\npiece\r\n0\r\n\r\n") == 2
    assert "failed to close" in caplog.text


def test_takeover_and_done_that_fail(
    serve: Serve, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in what a handler left behind ends that connection alone, and is told."""

    def fail(*_: object) -> None:
        raise RuntimeError("afterwards")

    def handler(request: Request) -> Response:
        match request.path:
            case "/takeover":
                return Response(body=fail)
            case "/done":
                return Response(done=fail)
        return Response()

    server = serve(handler)
    for path in (b"/takeover", b"/done"):
        caplog.clear()
        talk(server, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        server.stop()
        server.start()
        assert "afterwards" in caplog.text
    assert talk(server, GET).startswith(b"HTTP/1.1 200 ")
