"""Bytes to requests: the strict half of the server.

Two parties that read one byte stream differently can be played against each other, so nothing
here is lenient. Lines end in CRLF and nothing else; a request has one Host and one way to say how
long it is; a chunk is exactly as long as it says. What does not fit is refused with a status, and
the connection closes, because nobody can say any more where the next request would begin.

Deadlines are those of real sockets, hence `time.monotonic`: no simulated clock reaches the other
end.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass

from gpustack_delivery.httpd.messages import Headers, Limits, Refusal

_RECEIVE_BYTES = 64 * 1024
_CHUNK_LINE_BYTES = 4096
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(r"[!-~]+")
_HOST = re.compile(r"[0-9A-Za-z\-._~%!$&'()*+,;=:\[\]]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_DIGITS = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?]*")


@dataclass(frozen=True, slots=True)
class Head:
    """The parsed start of a request. `length` is the body's, None when it comes in chunks."""

    method: str
    target: str
    path: str
    query: str
    headers: Headers
    length: int | None
    http_1_0: bool

    @property
    def keep_alive(self) -> bool:
        """Whether the client lets the connection live on; HTTP/1.0 never does here."""
        if self.http_1_0:
            return False
        options = ",".join(self.headers.get_all("connection")).lower().split(",")
        return "close" not in (option.strip() for option in options)

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for permission before it sends the body.

        Raises:
            Refusal: it expects something else.
        """
        expectation = self.headers.get("expect")
        if expectation is None or self.http_1_0:
            return False
        if expectation.lower() != "100-continue":
            raise Refusal(417, "the only expectation this server meets is 100-continue")
        return True


class Reader:
    """Takes requests off one socket, whose timeout it sets as it goes."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self._sock = sock
        self._limits = limits
        self._buffer = bytearray()

    @property
    def pending(self) -> bool:
        """Whether bytes beyond the last request are here already."""
        return bool(self._buffer)

    def rest(self) -> bytes:
        """Return and forget the bytes beyond the last request."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def head(self, patience_seconds: float) -> Head | None:
        """Return the next request's head; None when the client left or stayed silent too long.

        Args:
            patience_seconds: how long to wait for the first byte.

        Raises:
            Refusal: the head is malformed, too large or too slow.
        """
        buffer = self._buffer
        if not buffer and not self._first_bytes(patience_seconds):
            return None
        deadline = 0.0
        while True:
            if buffer.startswith(b"\r\n"):  # some clients end a body with a line too many
                del buffer[:2]
            end = buffer.find(b"\r\n\r\n", 0, self._limits.head_bytes)
            if end >= 0:
                break
            if len(buffer) >= self._limits.head_bytes:
                raise Refusal(431, "the request's head is too large")
            if _BARE_LINE_FEED.search(buffer):
                raise Refusal(400, "lines of a request end in CRLF")
            deadline = deadline or time.monotonic() + self._limits.header_seconds
            self._more(deadline, "the request's head")
        raw = bytes(buffer[:end])
        del buffer[: end + 4]
        return _parse_head(raw, self._limits)

    def body(self, head: Head) -> bytes:
        """Return the whole body that follows a head.

        Raises:
            Refusal: it is malformed, too large or too slow.
        """
        if head.length == 0:
            return b""
        deadline = time.monotonic() + self._limits.body_seconds
        if head.length is None:
            return self._chunked(deadline)
        return self._exactly(head.length, deadline)

    def _first_bytes(self, patience_seconds: float) -> bool:
        self._sock.settimeout(patience_seconds)
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except TimeoutError:
            return False
        self._buffer += data
        return bool(data)

    def _more(self, deadline: float, what: str) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise Refusal(408, f"{what} took too long")
        self._sock.settimeout(remaining)
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise Refusal(408, f"{what} took too long") from None
        if not data:
            raise ConnectionAbortedError(f"the client left within {what}")
        self._buffer += data

    def _exactly(self, length: int, deadline: float) -> bytes:
        buffer = self._buffer
        while len(buffer) < length:
            self._more(deadline, "the request's body")
        body = bytes(buffer[:length])
        del buffer[:length]
        return body

    def _chunked(self, deadline: float) -> bytes:
        body = bytearray()
        while True:
            match = _CHUNK_SIZE.fullmatch(self._line(deadline))
            if match is None:
                raise Refusal(400, "a chunk's size is malformed")
            size = int(match[1], 16)
            if size == 0:
                break
            if len(body) + size > self._limits.body_bytes:
                raise Refusal(413, "the request's body is too large")
            body += self._exactly(size, deadline)
            if self._exactly(2, deadline) != b"\r\n":
                raise Refusal(400, "a chunk is longer than its size")
        trailer_bytes = 0
        while line := self._line(deadline):
            trailer_bytes += len(line) + 2
            if trailer_bytes > self._limits.head_bytes:
                raise Refusal(431, "the request's trailer is too large")
        return bytes(body)

    def _line(self, deadline: float) -> bytes:
        buffer = self._buffer
        while (end := buffer.find(b"\n", 0, _CHUNK_LINE_BYTES)) < 0:
            if len(buffer) >= _CHUNK_LINE_BYTES:
                raise Refusal(400, "a line within the request's body is too long")
            self._more(deadline, "the request's body")
        line = bytes(buffer[: end + 1])
        del buffer[: end + 1]
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise Refusal(400, "lines of a request end in CRLF")
        return line[:-2]


def _parse_head(raw: bytes, limits: Limits) -> Head:
    request_line, *lines = raw.decode("latin-1").split("\r\n")
    if _CONTROL.search(request_line) or any(map(_CONTROL.search, lines)):
        raise Refusal(400, "the request's head holds control characters")
    if len(lines) > limits.header_count:
        raise Refusal(431, "the request has too many header fields")
    method, target, version = _parse_request_line(request_line)
    pairs = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise Refusal(400, "a header field is malformed")
        pairs.append((name, value.strip(" \t")))
    headers = Headers(pairs)
    http_1_0 = version == "HTTP/1.0"
    hosts = headers.get_all("host")
    if len(hosts) > 1 or (not hosts and not http_1_0) or not all(map(_HOST.fullmatch, hosts)):
        raise Refusal(400, "a request names exactly one valid Host")
    path, _, query = _origin_form(method, target).partition("?")
    length = _body_length(headers, http_1_0=http_1_0)
    if length is not None and length > limits.body_bytes:
        raise Refusal(413, "the request's body is too large")
    return Head(method, target, path, query, headers, length, http_1_0)


def _parse_request_line(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise Refusal(400, "the request line is malformed")
    if parts[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        if re.fullmatch(r"HTTP/[0-9]\.[0-9]", parts[2]):
            raise Refusal(505, "this server speaks HTTP/1.1")
        raise Refusal(400, "the request line is malformed")
    return parts[0], parts[1], parts[2]


def _origin_form(method: str, target: str) -> str:
    if "#" in target:
        raise Refusal(400, "a request target has no fragment")
    if target.startswith("/") or (method == "OPTIONS" and target == "*"):
        return target
    if method == "CONNECT":
        return ""
    authority = _ABSOLUTE.match(target)
    if authority is None:
        raise Refusal(400, "the request target is malformed")
    rest = target[authority.end() :]
    return rest if rest.startswith("/") else "/" + rest


def _body_length(headers: Headers, *, http_1_0: bool) -> int | None:
    lengths = headers.get_all("content-length")
    codings = headers.get_all("transfer-encoding")
    if codings:
        if lengths or http_1_0 or len(codings) > 1:
            raise Refusal(400, "the request's length is ambiguous")
        if codings[0].lower() != "chunked":
            raise Refusal(501, "the only transfer coding this server reads is chunked")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0]):
        raise Refusal(400, "the request's length is malformed")
    return int(lengths[0])
