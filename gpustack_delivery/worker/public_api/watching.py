"""A watch on its way through: every event in the public version, and ended from either side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gpustack_delivery.errors import ApiFault
from gpustack_delivery.ports import Reply
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.worker.public_api.rewriting import published

BOOKMARK: Final = "BOOKMARK"
_log = logging.getLogger(__name__)


class Events:
    """The body of a watch's answer, for `httpd.Response` with `live`.

    Args:
        reply: the stored version's watch.
        show: makes what the client sees of an event's type and its public object.
        bookmarks: whether the client wants bookmarks.
    """

    def __init__(self, reply: Reply, show: Callable[[str, Json], Json], *, bookmarks: bool) -> None:
        self._reply = reply
        self._lines = reply.lines()
        self._show = show
        self._bookmarks = bookmarks

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next event's line; a watch that breaks off just ends, and is taken up again.

        Raises:
            StopIteration: the watch is over.
        """
        while True:
            try:
                event = msgspec.json.decode(next(self._lines))
                kind, body = event["type"], event["object"]
            except (ApiFault, msgspec.DecodeError, KeyError, TypeError) as error:
                _log.info("a watch that is passed on broke off: %s", error)
                raise StopIteration from None
            if kind != BOOKMARK or self._bookmarks:
                shown = self._show(kind, published(body))
                return msgspec.json.encode({"type": kind, "object": shown}) + b"\n"

    def close(self) -> None:
        """End the watch; from any thread, and twice."""
        self._reply.close()
