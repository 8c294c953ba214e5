"""Small reads become large ones, and nobody waits for more than the first byte."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from typing import TypeAlias

import pytest

from gpustack_delivery.adapters.gathering import GATHERED_BYTES, Gatherer

Ends: TypeAlias = tuple[socket.socket, socket.socket]
RECORD = 1000


class Records:
    """A connection that gives a record at a time, as TLS does; a patient reader of it fails."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.reads_left = 1000

    def fileno(self) -> int:
        """Return what to poll."""
        return self._sock.fileno()

    def readinto1(self, view: memoryview) -> int:
        """Read at most a record."""
        if not self.reads_left:
            raise TimeoutError("silent for too long")
        self.reads_left -= 1
        return self._sock.recv_into(view[:RECORD])


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return where bytes are written and where they are read; a read waits five seconds at most."""
    near, far = socket.socketpair()
    with near, far:
        far.settimeout(5)
        yield near, far


def gatherer(ends: Ends) -> tuple[Records, Gatherer]:
    """Return a gatherer that is past what comes with the headers."""
    near, far = ends
    records = Records(far)
    found = Gatherer(records)
    near.sendall(b"h")
    assert found.read_into(memoryview(bytearray(io.DEFAULT_BUFFER_SIZE))) == 1
    return records, found


def test_what_has_arrived_comes_at_once(ends: Ends) -> None:
    """Many records fill one view, in order, and it ends with the last that is there."""
    _, found = gatherer(ends)
    sent = bytes(range(250)) * 4 * 20
    ends[0].sendall(sent)
    view = memoryview(bytearray(GATHERED_BYTES))
    assert found.read_into(view) == len(sent)
    assert view[: len(sent)] == sent


def test_a_view_is_never_overrun(ends: Ends) -> None:
    """What does not fit waits for the next view."""
    _, found = gatherer(ends)
    ends[0].sendall(b"x" * 3 * RECORD)
    assert found.read_into(memoryview(bytearray(RECORD + 1))) == RECORD + 1
    assert found.read_into(memoryview(bytearray(GATHERED_BYTES))) == 2 * RECORD - 1


def test_a_failure_comes_after_the_bytes_before_it(
    ends: Ends,
) -> None:
    """Bytes count although the next read fails; its very failure is what the next call raises."""
    records, found = gatherer(ends)
    ends[0].sendall(b"x" * 2 * RECORD)
    records.reads_left = 1
    assert found.read_into(memoryview(bytearray(GATHERED_BYTES))) == RECORD
    with pytest.raises(TimeoutError, match="silent for too long"):
        found.read_into(memoryview(bytearray(GATHERED_BYTES)))


def test_an_end_comes_after_the_bytes_before_it(
    ends: Ends,
) -> None:
    """Bytes and the end of the body in one go: first the bytes, then nothing."""
    _, found = gatherer(ends)
    ends[0].sendall(b"x" * RECORD)
    ends[0].close()
    assert found.read_into(memoryview(bytearray(GATHERED_BYTES))) == RECORD
    assert found.read_into(memoryview(bytearray(GATHERED_BYTES))) == 0
