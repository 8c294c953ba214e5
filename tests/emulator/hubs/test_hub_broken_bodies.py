"""Bodies that go wrong at a byte, and connections that break, as a client sees them."""

from __future__ import annotations

import http.client
import socket
import threading
from urllib.parse import urlsplit

import pytest

from emulator.clock import ManualClock
from emulator.hubs import (
    BrokenChunks,
    Close,
    Delay,
    Flip,
    Hangup,
    HuggingFaceHub,
    Overrun,
    Reset,
    Stall,
)
from emulator.hubs.faults import Fault
from tests.emulator.hubs.conftest import (
    DATA,
    PATIENCE_SECONDS,
    Answer,
    ask,
    content_url,
    eventually,
    tree_url,
    with_model,
)

SIZE = len(DATA)


@pytest.fixture
def hub(hub: HuggingFaceHub) -> HuggingFaceHub:
    """Serve one large and one small file."""
    return with_model(hub)


@pytest.mark.parametrize(
    "fault",
    [Flip(500_000), Reset(500_000), Close(500_000), BrokenChunks(500_000), Stall(500_000, 1.0)],
)
def test_fault_at_a_byte_strikes_its_range_only(hub: HuggingFaceHub, fault: Fault) -> None:
    """However a file is cut into ranges, only the one that carries the byte goes wrong."""
    url = content_url(hub)
    rule = hub.faults.add(fault, times=1)
    for span in ("0-499999", "500001-600000", f"900000-{SIZE}"):
        answer = ask(url, Range=f"bytes={span}")
        assert (answer.status, answer.error) == (206, "")
    assert ask(url, "HEAD").status == 200
    assert rule.hits == 0


def test_flipped_byte(hub: HuggingFaceHub) -> None:
    """One byte differs and nothing else does, neither length nor headers."""
    url = content_url(hub)
    honest = ask(url)
    hub.faults.add(Flip(offset=500_000, mask=0x01))
    answer = ask(url)
    assert answer.headers == honest.headers
    assert len(answer.body) == SIZE
    assert [n for n in range(SIZE) if answer.body[n] != DATA[n]] == [500_000]
    part = ask(url, Range="bytes=500000-500009")
    assert part.body == bytes([DATA[500_000] ^ 1]) + DATA[500_001:500_010]


@pytest.mark.parametrize("offset", [0, 1, 65_536, 700_000, SIZE - 1])
def test_connection_reset(hub: HuggingFaceHub, offset: int) -> None:
    """The connection is reset before the byte, whose range promised more."""
    url = content_url(hub)
    hub.faults.add(Reset(offset=offset))
    answer = ask(url)
    assert (answer.status, answer.error) == (200, "reset")
    eventually(lambda: hub.requests.in_flight == 0)
    assert hub.requests.sent_bytes(host="cdn") == offset


@pytest.mark.parametrize("offset", [0, 1, 700_000, SIZE - 1])
def test_connection_closed(hub: HuggingFaceHub, offset: int) -> None:
    """The connection ends before the byte, and everything before it arrived."""
    url = content_url(hub)
    hub.faults.add(Close(offset=offset))
    answer = ask(url)
    assert (answer.status, answer.error, answer.body) == (200, "incomplete", DATA[:offset])
    part = ask(url, Range=f"bytes={offset}-")
    assert (part.status, part.body) == (206, b"")


def test_stall_until_released(hub: HuggingFaceHub) -> None:
    """Bytes stop in the middle and go on when the test says so."""
    url = content_url(hub)
    hub.faults.add(Stall(offset=300_000), times=1)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(url)))
    thread.start()
    eventually(lambda: hub.faults.gate.waiting == 1)
    assert not answers
    hub.faults.release()
    thread.join(PATIENCE_SECONDS)
    assert answers[0].body == DATA


def test_stall_for_a_time(hub: HuggingFaceHub, clock: ManualClock) -> None:
    """Bytes go on when the clock has come that far, and not before."""
    url = content_url(hub)
    hub.faults.add(Stall(offset=300_000, seconds=29.0), times=1)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(url)))
    thread.start()
    eventually(lambda: hub.faults.gate.waiting == 1)
    clock.advance(28.0)
    assert hub.faults.gate.waiting == 1
    clock.advance(1.0)
    thread.join(PATIENCE_SECONDS)
    assert answers[0].body == DATA


def test_stall_ends_with_its_client(hub: HuggingFaceHub) -> None:
    """A client that gives up frees the stalled answer, and what it got is counted."""
    parts = urlsplit(content_url(hub))
    hub.faults.add(Stall(offset=1000))
    with socket.create_connection((parts.hostname, parts.port), PATIENCE_SECONDS) as sock:
        request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
        sock.sendall(request.encode())
        eventually(lambda: hub.faults.gate.waiting == 1)
        assert sock.recv(100_000).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: hub.faults.gate.waiting == hub.requests.in_flight == 0)
    assert hub.requests.sent_bytes(host="cdn") == 1000


def test_delay(hub: HuggingFaceHub, clock: ManualClock) -> None:
    """The whole answer waits for the clock."""
    hub.faults.add(Delay(3.0), at="tree", times=1)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(tree_url(hub))))
    thread.start()
    eventually(lambda: hub.faults.gate.waiting == 1)
    clock.advance(3.0)
    thread.join(PATIENCE_SECONDS)
    assert answers[0].status == 200
    (entry,) = hub.requests.entries("*/tree/*")
    eventually(lambda: entry.ended is not None)
    assert entry.ended == entry.started + 3.0


def test_overrun(hub: HuggingFaceHub) -> None:
    """Bytes follow the end of the body, as if the next answer had begun."""
    parts = urlsplit(content_url(hub))
    hub.faults.add(Overrun(b"HTTP/1.1 200 OK\r\n\r\n"))
    with socket.create_connection((parts.hostname, parts.port), PATIENCE_SECONDS) as sock:
        request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        sock.sendall((request + "Range: bytes=0-3\r\n\r\n").encode())
        heard = b""
        while data := sock.recv(65536):
            heard += data
    assert b"Content-Length: 4\r\n" in heard
    assert heard.endswith(b"\r\n\r\n" + DATA[:4] + b"HTTP/1.1 200 OK\r\n\r\n")


def test_broken_chunks(hub: HuggingFaceHub) -> None:
    """A chunked body breaks off where a size should stand."""
    url = content_url(hub)
    hub.faults.add(BrokenChunks(offset=300_000))
    answer = ask(url)
    assert answer.error == "incomplete"
    assert answer.body == DATA[:300_000]


def test_hangup(hub: HuggingFaceHub) -> None:
    """The connection ends without an answer."""
    hub.faults.add(Hangup(), at="tree")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(tree_url(hub))
