"""A watch on its way through: every event in the public version, and ended from either side.

An API server may say nothing of a kind at rest, not even by a bookmark, for as long as the watch
lasts. Silence therefore ends the connection to it and not the client's watch: that goes on, from
the newest version that an event told of.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gpustack_delivery.errors import ApiFault, Silent, Unreachable
from gpustack_delivery.ports import Clock, Errand, Passage, Reply
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.worker.public_api.rewriting import published
from gpustack_delivery.worker.public_api.targets import Target

BOOKMARK: Final = "BOOKMARK"
# The API server sends a bookmark about once a minute; ours asks for them whoever watches.
_SILENCE_SECONDS: Final = 150.0
# What an API server gives a client at least that names no end. An end there must be: only a new
# watch asks again what its client may see.
_LASTING_SECONDS: Final = 1800.0
_BEGINNING: Final = ("resourceVersion", "resourceVersionMatch", "sendInitialEvents")
_log = logging.getLogger(__name__)


class Upstream:
    """Opens the stored version's watch, and opens it again for as long as the client wanted it.

    Args:
        errand: the first request, without a query.
        target: what the client asked for.
        hidden: parameters that the stored version does not get.
    """

    def __init__(
        self,
        passage: Passage,
        clock: Clock,
        errand: Errand,
        target: Target,
        hidden: tuple[str, ...],
    ) -> None:
        self._passage = passage
        self._clock = clock
        self._errand = errand
        self._target = target
        self._hidden = ("allowWatchBookmarks", *hidden)
        asked = target.parameter("timeoutSeconds")
        seconds = float(asked) if asked.isascii() and asked.isdigit() else 0.0
        self._until = clock.monotonic() + (seconds or _LASTING_SECONDS)

    def open(self) -> Reply:
        """Ask as the client did. Raises ApiFault: there is no answer."""
        return self._ask(self._target.query_without(*self._hidden))

    def reopen(self, version: str) -> Reply | None:
        """Ask for what came after a version ("": as the client did); None when it is over.

        Raises:
            ApiFault: there is no good answer.
        """
        left = self._until - self._clock.monotonic()
        if left <= 0:
            return None
        hidden = (*self._hidden, "timeoutSeconds", *(_BEGINNING if version else ()))
        query = f"{self._target.query_without(*hidden)}&timeoutSeconds={math.ceil(left)}"
        reply = self._ask(f"{query}&resourceVersion={version}" if version else query)
        if reply.status >= 300:
            reply.close()
            raise Unreachable(f"the API server answers {reply.status}", code=reply.status)
        return reply

    def _ask(self, query: str) -> Reply:
        errand = self._errand
        path = f"{errand.target}?{query}&allowWatchBookmarks=true"
        sent = Errand(errand.method, path, errand.headers)
        return self._passage.pass_on(sent, timeout_seconds=_SILENCE_SECONDS)


class Events:
    """The body of a watch's answer, for `httpd.Response` with `live`.

    Args:
        upstream: where the watch goes on after a silence.
        reply: the stored version's watch.
        show: makes what the client sees of an event's type and its public object.
        bookmarks: whether the client wants bookmarks.
    """

    def __init__(
        self,
        upstream: Upstream,
        reply: Reply,
        show: Callable[[str, Json], Json],
        *,
        bookmarks: bool,
    ) -> None:
        self._upstream = upstream
        self._reply = reply
        self._lines = reply.lines()
        self._show = show
        self._bookmarks = bookmarks
        self._version = ""  # the newest that an event told of
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next event's line; a watch that breaks off just ends, and is taken up again.

        Raises:
            StopIteration: the watch is over.
        """
        while True:
            try:
                event = msgspec.json.decode(self._line())
                kind, body = event["type"], event["object"]
                self._note((body.get("metadata") or {}).get("resourceVersion", ""))
            except (ApiFault, msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
                _log.info("a watch that is passed on broke off: %s", error)
                raise StopIteration from None
            if kind != BOOKMARK or self._bookmarks:
                shown = self._show(kind, published(body))
                return msgspec.json.encode({"type": kind, "object": shown}) + b"\n"

    def close(self) -> None:
        """End the watch; from any thread, and twice."""
        self._closed = True
        self._reply.close()

    def _line(self) -> bytes:
        """Return the next line of the stored version's watch. Raises StopIteration, ApiFault."""
        while True:
            try:
                return next(self._lines)
            except Silent:
                reply = self._upstream.reopen(self._version)
            if reply is None:
                raise StopIteration
            self._reply, self._lines = reply, reply.lines()
            if self._closed:  # in the meantime, when it could only close the one before
                reply.close()

    def _note(self, version: str) -> None:
        """Keep the newest version: what a watch begins with comes in the order of names."""
        if _number(version) >= _number(self._version):
            self._version = version or self._version


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0
