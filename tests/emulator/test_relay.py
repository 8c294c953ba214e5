"""The network between two programs: passed on, cut in the middle of a transfer, held up, mended."""

from __future__ import annotations

import hashlib
import http.client
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from emulator.faults import Relay
from gpustack_delivery.httpd import Request, Response, Server

CONTENT = hashlib.sha256(b"seed").digest() * 65536  # 2 MiB


@pytest.fixture
def relay() -> Iterator[Relay]:
    """Return a relay before a server that serves CONTENT."""

    def answer(request: Request) -> Response:
        # The large one does not fit into the buffers on its way.
        return Response(200, body=CONTENT * 16 if request.path == "/large" else CONTENT)

    with Server(answer, name="served") as server, Relay(("127.0.0.1", server.port)) as opened:
        yield opened


def _fetch(relay: Relay) -> bytes:
    host, port = relay.address
    with urllib.request.urlopen(f"http://{host}:{port}/", timeout=30) as answer:
        content: bytes = answer.read()
        return content


def test_what_passes_is_whole(relay: Relay) -> None:
    """Connections pass both ways, also several at a time, and are counted."""
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(_fetch(relay))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == [CONTENT] * 4
    assert relay.connections == 4
    assert relay.passed_bytes > 4 * len(CONTENT)


def test_a_cut_in_the_middle_of_a_transfer(relay: Relay) -> None:
    """So many bytes come through and then none, also on new connections, until it is mended."""
    relay.cut(after_bytes=100_000)
    with pytest.raises((http.client.HTTPException, OSError)):
        _fetch(relay)
    assert relay.passed_bytes == 100_000
    with pytest.raises((http.client.HTTPException, OSError)):
        _fetch(relay)
    assert relay.passed_bytes == 100_000
    relay.mend()
    assert _fetch(relay) == CONTENT


def test_a_cut_now_breaks_what_is_open(relay: Relay) -> None:
    """A transfer under way breaks at once."""
    host, port = relay.address
    with urllib.request.urlopen(f"http://{host}:{port}/large", timeout=30) as answer:
        answer.read(1000)
        relay.cut()
        with pytest.raises((http.client.HTTPException, OSError)):
            answer.read()


def test_what_is_held_up_goes_on(relay: Relay) -> None:
    """While the network loses everything nothing arrives; mended, the transfer ends whole."""
    relay.hold()
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(_fetch(relay)))
    thread.start()
    while relay.connections == 0:
        thread.join(0.001)
    assert relay.passed_bytes == 0
    assert got == []
    relay.mend()
    thread.join(30)
    assert got == [CONTENT]


def test_nothing_listens_after_stop_and_the_port_comes_back(relay: Relay) -> None:
    """Stopped, the address refuses; started again, it is the same."""
    address = relay.address
    relay.stop()
    with pytest.raises(OSError, match="refused"):
        _fetch(relay)
    relay.start()
    assert relay.address == address
    assert _fetch(relay) == CONTENT


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    """A target that refuses looks like a broken connection, as through a load balancer."""
    with Server(lambda _: Response(), name="gone") as server:
        port = server.port
    with Relay(("127.0.0.1", port)) as relay, pytest.raises((http.client.HTTPException, OSError)):
        _fetch(relay)
