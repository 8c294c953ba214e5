"""Faults of whole answers: another status, another page, another range than was asked for.

All of them are honest HTTP, and that makes them dangerous: a client has to look at what it got.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from emulator.hubs.faults import Strike
from emulator.hubs.replies import Reply
from gpustack_delivery.httpd import Request, Response

_PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Sign in to continue</title></head>\n"
    "<body><h1>Sign in to continue</h1><p>This network needs you to sign in first.</p></body>"
).ljust(627) + "</html>\n"


class AnyAnswer:
    """A fault that every answer can have."""

    def strikes(self, request: Request, reply: Reply) -> bool:
        """Say whether this answer can go wrong this way: always."""
        return True


@dataclass(frozen=True)
class Status(AnyAnswer):
    """A status instead of the answer.

    Args:
        retry_after: seconds, a time that is sent as an HTTP date, or the header as it is.
        headers: further headers, such as X-Error-Code or RateLimit.
    """

    code: int
    body: str = ""
    retry_after: int | str | datetime | None = None
    headers: Sequence[tuple[str, str]] = ()

    def spoil(self, strike: Strike) -> Response:
        """Return the status."""
        headers = [("Content-Type", "text/plain; charset=utf-8"), *self.headers]
        if isinstance(self.retry_after, datetime):
            headers.append(("Retry-After", format_datetime(self.retry_after, usegmt=True)))
        elif self.retry_after is not None:
            headers.append(("Retry-After", str(self.retry_after)))
        return Response(self.code, headers, self.body.encode())


@dataclass(frozen=True)
class HtmlPage(AnyAnswer):
    """A proxy's or captive portal's page where something else was expected."""

    status: int = 200
    body: str = _PAGE

    def spoil(self, strike: Strike) -> Response:
        """Return the page."""
        headers = [("Content-Type", "text/html; charset=utf-8")]
        return Response(self.status, headers, self.body.encode())


@dataclass(frozen=True)
class Redirect(AnyAnswer):
    """A redirect to any place; to itself when none is given, and so in circles."""

    location: str = ""
    status: int = 302

    def spoil(self, strike: Strike) -> Response:
        """Return the redirect."""
        return Response(self.status, [("Location", self.location or strike.request.target)])


@dataclass(frozen=True)
class Delay(AnyAnswer):
    """The right answer, later; without seconds: until `release`."""

    seconds: float | None = None

    def spoil(self, strike: Strike) -> Response:
        """Wait, then return the answer."""
        strike.gate.wait(self.seconds)
        return strike.reply.response()


@dataclass(frozen=True)
class After(AnyAnswer):
    """The right answer, after something has happened: a branch moved, a token withdrawn."""

    action: Callable[[], object]

    def spoil(self, strike: Strike) -> Response:
        """Let it happen, then return the answer, which was made before."""
        self.action()
        return strike.reply.response()


class IgnoreRange:
    """200 and the whole file, whatever range was asked for."""

    def strikes(self, request: Request, reply: Reply) -> bool:
        """Say whether the answer is a range."""
        return reply.status == 206

    def spoil(self, strike: Strike) -> Response:
        """Return the whole file."""
        reply = strike.reply
        reply.status, reply.start, reply.length = 200, 0, reply.content.size_bytes
        reply.set_header("Content-Range", "")
        return reply.response()


@dataclass(frozen=True)
class WrongRange(IgnoreRange):
    """The bytes that were asked for under a Content-Range that tells other numbers.

    Args:
        start_by: added to both ends of the range.
        total_by: added to the file's size.
    """

    start_by: int = 0
    total_by: int = 0

    def spoil(self, strike: Strike) -> Response:
        """Return the answer with other numbers."""
        reply = strike.reply
        start, total = reply.start + self.start_by, reply.content.size_bytes + self.total_by
        reply.set_header("Content-Range", f"bytes {start}-{start + reply.length - 1}/{total}")
        return reply.response()


@dataclass(frozen=True)
class Resize(AnyAnswer):
    """A body that is whole HTTP but longer or shorter than it should be; JSON ends midway."""

    by: int

    def spoil(self, strike: Strike) -> Response:
        """Return the answer with zeros added, or bytes missing, at its end."""
        reply = strike.reply
        data = b"".join(reply.content.pieces(reply.start, reply.length))
        data = data + bytes(self.by) if self.by > 0 else data[: max(len(data) + self.by, 0)]
        return Response(reply.status, list(reply.headers), data)


class Gzip(AnyAnswer):
    """The answer compressed, though nobody asked for that."""

    def spoil(self, strike: Strike) -> Response:
        """Return the answer with Content-Encoding gzip."""
        reply = strike.reply
        data = b"".join(reply.content.pieces(reply.start, reply.length))
        headers = [*reply.headers, ("Content-Encoding", "gzip")]
        return Response(reply.status, headers, gzip.compress(data, mtime=0))


class Unmeasured(AnyAnswer):
    """The answer in chunks, its length not named."""

    def spoil(self, strike: Strike) -> Response:
        """Return the answer in chunks."""
        reply = strike.reply
        pieces = reply.content.pieces(reply.start, reply.length)
        return Response(reply.status, list(reply.headers), pieces)


@dataclass(frozen=True)
class Rewrite(AnyAnswer):
    """A JSON answer that says something else: what `change` makes of the value."""

    change: Callable[[Any], Any]

    def strikes(self, request: Request, reply: Reply) -> bool:
        """Say whether the answer is JSON."""
        return reply.header("Content-Type").startswith("application/json")

    def spoil(self, strike: Strike) -> Response:
        """Return the changed value."""
        reply = strike.reply
        value = json.loads(b"".join(reply.content.pieces(0, reply.content.size_bytes)))
        data = json.dumps(self.change(value)).encode()
        return Response(reply.status, list(reply.headers), data)


@dataclass(frozen=True)
class NextLink(AnyAnswer):
    """A page whose `Link` names another next page; the header as given when it holds a `<`."""

    url: str

    def spoil(self, strike: Strike) -> Response:
        """Return the page with the other link."""
        link = self.url if "<" in self.url else f'<{self.url}>; rel="next"'
        strike.reply.set_header("Link", link)
        return strike.reply.response()


def mask_digests(entries: Any) -> Any:
    """Return a tree page as a gated repository shows it to strangers: LFS digests starred out."""
    return [
        entry | {"lfs": entry["lfs"] | {"oid": "*" * 64}} if "lfs" in entry else entry
        for entry in entries
    ]


EXPIRED_URL = Status(
    403,
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>'
    "<Message>Request has expired</Message></Error>",
    headers=(("X-Cache", "Error from cdn"),),
)
"""What a content host answers to a signed URL past its time."""
