"""The second host: where a hub sends clients for large files.

It knows nothing of repositories, tokens or users. Whoever holds a signed URL gets the bytes until
the signature's time is up, and a credential that a client carries over here is a credential
leaked: the request log shows it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from urllib.parse import parse_qs, quote, unquote

from emulator.contracts import Clock
from emulator.hubs.content import Content
from emulator.hubs.replies import Reply, Subject, content_reply, text_reply
from emulator.hubs.repository import File
from gpustack_delivery.httpd import Request

_PREFIX = "/lfs/"


class ContentHost:
    """Serves contents by signed URL.

    Args:
        lifetime_seconds: how long a signed URL works, on the clock.
        range_from_bytes: files larger than this are only given out in ranges; a request for all
            of one is answered 400, as large content networks do.
    """

    def __init__(self, clock: Clock, *, lifetime_seconds: float, range_from_bytes: int) -> None:
        self._clock = clock
        self._lifetime_seconds = lifetime_seconds
        self._range_from_bytes = range_from_bytes
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._contents: dict[str, Content] = {}

    def offer(self, file: File) -> str:
        """Return the signed path and query, without a host, that a file is fetched from now."""
        digest = file.content.sha256
        with self._lock:
            self._contents[digest] = file.content
        path = f"{_PREFIX}{digest}/{quote(file.path)}"
        expires = int(self._clock.now() + self._lifetime_seconds)
        signature = self._signature(path, expires)
        return f"{path}?Expires={expires}&Signature={signature}&Key-Pair-Id=EMULATOR"

    def answer(self, request: Request) -> tuple[Reply, Subject]:
        """Answer a request."""
        digest, _, name = request.path.removeprefix(_PREFIX).partition("/")
        subject = Subject(frozenset({"cdn", "bytes"}), unquote(name, errors="replace"))
        return self._reply(request, digest), subject

    def _reply(self, request: Request, digest: str) -> Reply:
        if request.method not in {"GET", "HEAD"}:
            return _refusal(405, "MethodNotAllowed", "Only GET and HEAD are served here")
        if objection := self._objection(request):
            return _refusal(403, *objection)
        with self._lock:
            content = self._contents.get(digest)
        if content is None:
            return _refusal(404, "NoSuchKey", "The specified key does not exist")
        whole = request.method == "GET" and "Range" not in request.headers
        if whole and content.size_bytes > self._range_from_bytes:
            return _refusal(400, "InvalidRequest", "A file this large is given out in ranges only")
        return content_reply(content, digest, request)

    def _objection(self, request: Request) -> tuple[str, str] | None:
        """Return code and message of what is wrong with a URL's signature."""
        query = parse_qs(request.query)
        expires, signature = query.get("Expires", [""])[0], query.get("Signature", [""])[0]
        if not re.fullmatch(r"[0-9]{1,12}", expires):
            return "AccessDenied", "The URL is not signed"
        right = self._signature(request.path, int(expires))
        if not hmac.compare_digest(right.encode(), signature.encode()):
            return "SignatureDoesNotMatch", "The signature does not match"
        if self._clock.now() > int(expires):
            return "AccessDenied", "Request has expired"
        return None

    def _signature(self, path: str, expires: int) -> str:
        return hmac.new(self._key, f"{path}\n{expires}".encode(), hashlib.sha256).hexdigest()


def _refusal(status: int, code: str, message: str) -> Reply:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    )
    return text_reply(status, text, "application/xml")
