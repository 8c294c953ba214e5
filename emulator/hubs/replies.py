"""Answers on their way out, while faults can still get at them.

A `Reply` keeps the whole content and the part of it that the body is, instead of bytes, so that a
fault can tell which bytes of which file it touches, and an untouched reply is sent from the page
cache.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from emulator.hubs.content import Bytes, Content
from gpustack_delivery.httpd import Request, Response

_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*")


@dataclass(slots=True)
class Reply:
    """An answer: the body is `length` bytes of `content` from `start` on."""

    status: int
    headers: list[tuple[str, str]]
    content: Content
    start: int
    length: int

    def header(self, name: str) -> str:
        """Return a header's value, "" when there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    def set_header(self, name: str, value: str) -> None:
        """Replace a header, or add it; an empty value takes it away."""
        self.headers = [pair for pair in self.headers if pair[0].lower() != name.lower()]
        if value:
            self.headers.append((name, value))

    def response(self) -> Response:
        """Return the answer as the server sends it."""
        body = self.content.part(self.start, self.length)
        headers = list(self.headers)
        if not isinstance(body, bytes):
            headers.append(("Content-Length", str(self.length)))
        return Response(self.status, headers, body)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a request is about, for faults and for the log.

    `places` are the names that faults aim at: `info`, `tree`, `resolve`, `whoami`, `cdn`, and
    `bytes` for whichever answer carries a file's content. `path` is the file's within its
    repository, or empty.
    """

    places: frozenset[str] = field(default_factory=frozenset)
    path: str = ""


def bytes_reply(status: int, body: bytes, kind: str) -> Reply:
    """Return a reply with a body of a media type."""
    return Reply(status, [("Content-Type", kind)], Bytes(body), 0, len(body))


def text_reply(status: int, text: str, kind: str = "text/plain; charset=utf-8") -> Reply:
    """Return a reply with a short text."""
    return bytes_reply(status, text.encode(), kind)


def redirect_reply(status: int, location: str) -> Reply:
    """Return a redirect, which names its target in the body as well."""
    reply = text_reply(status, f"Found. Redirecting to {location}")
    reply.headers.append(("Location", location))
    return reply


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return a reply with a JSON value."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text_reply(status, body, "application/json; charset=utf-8")


def content_reply(content: Content, etag: str, request: Request) -> Reply:
    """Return a file's content, or the range of it that was asked for.

    A range that makes no sense, several of them, and one whose If-Range is about other content
    are ignored, as the standard has it; one beyond the end is answered 416.
    """
    headers = [
        ("Content-Type", "application/octet-stream"),
        ("ETag", f'"{etag}"'),
        ("Accept-Ranges", "bytes"),
    ]
    size = content.size_bytes
    match = _RANGE.fullmatch(request.headers.get("Range") or "")
    condition = request.headers.get("If-Range")
    if request.method != "GET" or match is None or condition not in {None, f'"{etag}"'}:
        return Reply(200, headers, content, 0, size)
    first, last = match[1], match[2]
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
        reversed_range = bool(last) and int(last) < int(first)
    else:
        start, end = max(size - int(last or 0), 0), size
        reversed_range = not last
    if reversed_range:
        return Reply(200, headers, content, 0, size)
    if start >= end:
        reply = text_reply(416, "the requested range is not satisfiable\n")
        reply.headers.append(("Content-Range", f"bytes */{size}"))
        return reply
    headers.append(("Content-Range", f"bytes {start}-{end - 1}/{size}"))
    return Reply(206, headers, content, start, end - start)
