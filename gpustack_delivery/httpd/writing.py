"""Responses to bytes: one write for a small answer, sendfile for a file, chunks as they come.

`frame` decides how a body is delimited and `transmit` sends it. Every body leaves with its length
known or in chunks, so a client can always tell a whole answer from a cut one (HTTP/1.0, which
knows no chunks, has the end of the connection). A body that breaks its promise, such as a file
that shrank, raises `Cut`.
"""

from __future__ import annotations

import http
import os
import select
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpustack_delivery.httpd.messages import FileSlice, Response

# A piece is what a client must take within the write timeout, and what TLS copies at a time.
_PIECE_BYTES = 256 * 1024
_SENDFILE_BYTES = 8 * 1024 * 1024
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class Cut(Exception):
    """A body ended before it was whole, or would not end where it should."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How a response is delimited: its head as bytes, and what follows.

    `length` is None for a body without a length of its own; `silent` when no body may follow.
    """

    head: bytes
    length: int | None
    chunked: bool
    silent: bool
    keep_alive: bool


class Tally:
    """Counts the body bytes of one answer, also when it does not come to its end."""

    __slots__ = ("body_bytes",)

    def __init__(self) -> None:
        self.body_bytes = 0


def frame(response: Response, *, to_head: bool, http_1_0: bool, keep_alive: bool) -> Frame:
    """Decide a response's framing.

    Args:
        to_head: the request was HEAD, whose answer may name the length of the body it lacks.
        http_1_0: the client knows no chunks.
        keep_alive: whether the connection may live on.

    Raises:
        ValueError: a header field would break out of its line, or contradicts the body.
    """
    declared: int | None = None
    for name, value in response.headers:
        match name.lower():
            case "content-length":
                declared = int(value)
            case "transfer-encoding":
                raise ValueError("the server, not a handler, chooses the transfer coding")
            case "connection" if value.lower() == "close":
                keep_alive = False
    length, chunked = _measure(response, to_head=to_head, declared=declared), False
    framing: list[tuple[str, str]] = []
    bodiless = response.status in {204, 304} or response.status < 200
    if not bodiless:
        if length is None and not http_1_0:
            chunked = True
            framing.append(("Transfer-Encoding", "chunked"))
        elif length is None:
            keep_alive = False
        elif declared is None:
            framing.append(("Content-Length", str(length)))
    if not keep_alive:
        framing.append(("Connection", "close"))
    head = _head(response, framing)
    return Frame(head, length, chunked, bodiless or to_head, keep_alive)


def _measure(response: Response, *, to_head: bool, declared: int | None) -> int | None:
    body = response.body
    if isinstance(body, bytes):
        length = len(body)
    elif isinstance(body, FileSlice):
        length = body.length
    else:
        return declared
    if declared is None or declared == length:
        return length
    if to_head and not length:
        return declared
    raise ValueError(f"a body of {length} bytes with a Content-Length of {declared}")


def _head(response: Response, framing: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}"]
    own = (field for field in response.headers if field[0].lower() != "connection")
    for name, value in (*own, *framing):
        if "\r" in value or "\n" in value or "\r" in name or "\n" in name:
            raise ValueError(f"the header field {name!r} holds a line break")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def transmit(sock: socket.socket, response: Response, framed: Frame, tally: Tally) -> None:
    """Send head and body. The body is the caller's to close.

    Raises:
        Cut: the body was not what was promised; the connection has to be reset.
        OSError: the client is gone, or takes nothing within the socket's timeout.
    """
    body = response.body
    if framed.silent:
        sock.sendall(framed.head)
    elif isinstance(body, bytes):
        _send_bytes(sock, framed.head, body, tally)
    elif isinstance(body, FileSlice):
        if isinstance(sock, ssl.SSLSocket):
            sock.sendall(framed.head)
            _copy_file(sock, body, tally)
        else:
            # The kernel holds the head back until the file's first bytes are behind it.
            sock.sendall(framed.head, socket.MSG_MORE if body.length else 0)
            _sendfile(sock, body, tally)
    elif callable(body):
        raise TypeError("a takeover answers for itself")
    else:
        sock.sendall(framed.head)
        pieces = _guarded(body)
        if framed.chunked:
            _send_chunks(sock, pieces, tally)
        else:
            _send_measured(sock, pieces, framed.length, tally)


def _send_bytes(sock: socket.socket, head: bytes, body: bytes, tally: Tally) -> None:
    if len(body) <= _PIECE_BYTES:
        sock.sendall(head + body)
        tally.body_bytes += len(body)
        return
    if head:
        sock.sendall(head)
    view = memoryview(body)
    for start in range(0, len(view), _PIECE_BYTES):
        piece = view[start : start + _PIECE_BYTES]
        sock.sendall(piece)
        tally.body_bytes += len(piece)


def _guarded(body: Iterator[bytes]) -> Iterator[bytes]:
    """Tell a failing body from a failing socket."""
    try:
        yield from body
    except ConnectionError:
        raise
    except Exception as error:
        raise Cut(f"its source failed with {type(error).__name__}") from error


def _send_chunks(sock: socket.socket, pieces: Iterator[bytes], tally: Tally) -> None:
    for piece in pieces:
        if piece:  # an empty chunk would end the body
            sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            tally.body_bytes += len(piece)
    sock.sendall(b"0\r\n\r\n")


def _send_measured(
    sock: socket.socket, pieces: Iterator[bytes], length: int | None, tally: Tally
) -> None:
    for piece in pieces:
        if length is not None and tally.body_bytes + len(piece) > length:
            raise Cut(f"it was to have {length} bytes and wanted to be longer")
        _send_bytes(sock, b"", piece, tally)
    if length is not None and tally.body_bytes < length:
        raise Cut(f"it was to have {length} bytes and ended after {tally.body_bytes}")


def _copy_file(sock: socket.socket, part: FileSlice, tally: Tally) -> None:
    buffer = memoryview(bytearray(min(_PIECE_BYTES, max(part.length, 1))))
    descriptor = part.file.fileno()
    offset, end = part.offset, part.offset + part.length
    while offset < end:
        size = os.preadv(descriptor, [buffer[: end - offset]], offset)
        if size == 0:
            raise Cut(f"its file ended {end - offset} bytes early")
        sock.sendall(buffer[:size])
        offset += size
        tally.body_bytes += size


def _sendfile(sock: socket.socket, part: FileSlice, tally: Tally) -> None:
    source, target = part.file.fileno(), sock.fileno()
    timeout = sock.gettimeout()
    writable = select.poll()
    writable.register(target, select.POLLOUT)
    offset, end = part.offset, part.offset + part.length
    while offset < end:
        try:
            size = os.sendfile(target, source, offset, min(end - offset, _SENDFILE_BYTES))
        except BlockingIOError:
            if not writable.poll(None if timeout is None else timeout * 1000):
                raise TimeoutError("the client takes nothing") from None
            continue
        if size == 0:
            raise Cut(f"its file ended {end - offset} bytes early")
        offset += size
        tally.body_bytes += size
