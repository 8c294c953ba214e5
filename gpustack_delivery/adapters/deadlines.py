"""When an answer has to be whole, however it comes in, and that its head is.

A socket's timeout counts the silence between two bytes, and a byte now and then is enough to get
past it: with headers, interim answers, trailers or compressed nothing that never end. So each read
of an answer looks at the time that is left for all of it.

`http` sets the time of a call, which holds for everything its thread reads meanwhile, a proxy's own
answer included; `plugin_port` the time of a question.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from http.client import HTTPResponse, RemoteDisconnected
from typing import Any, Final

from gpustack_delivery.adapters.host import SystemClock

_DUE: Final[ContextVar[float | None]] = ContextVar("due", default=None)
_clock: Final = SystemClock()


@contextmanager
def due_in(seconds: float) -> Iterator[None]:
    """Give everything that this thread reads of answers meanwhile so much time together.

    A read that begins later raises TimeoutError; one that has begun ends by the socket's timeout.
    """
    entered = _DUE.set(_clock.monotonic() + seconds)
    try:
        yield
    finally:
        _DUE.reset(entered)


class PunctualResponse(HTTPResponse):
    """An answer that is read in its thread's time, if it has one, and whose head is whole."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        due = _DUE.get()
        if due is not None:
            self.fp = io.BufferedReader(_Punctual(self.fp.detach(), due))

    def begin(self) -> None:
        """Read the head, and before it those of interim answers, of which `http.client` knows one.

        Raises:
            RemoteDisconnected: the connection ended in it. `http.client` takes the end for the
                head's, and half a number, a redirect or an error code for a whole one.
        """
        if self.headers is not None:
            return
        reader: Any = self.fp
        lines: Any = _Lines(reader)
        nothing: Any = None
        self.fp = lines
        try:
            super().begin()
            while 100 <= self.status < 200 and self.status != HTTPStatus.SWITCHING_PROTOCOLS:
                self.headers = self.msg = nothing
                super().begin()
        finally:
            if self.fp is lines:
                self.fp = reader
        if lines.last not in {b"\r\n", b"\n"}:
            raise RemoteDisconnected("the connection ended in the head of an answer")


class _Lines:
    """Reads lines, and knows the last one."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.close = reader.close
        self.last = b""

    def readline(self, limit: int) -> bytes:
        self.last = self._reader.readline(limit)
        return self.last


class _Punctual(io.RawIOBase):
    """A socket's bytes until a time."""

    def __init__(self, raw: io.RawIOBase, due: float) -> None:
        self._raw = raw
        self._due = due

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int | None:
        if _clock.monotonic() > self._due:
            raise TimeoutError("the answer took too long")
        return self._raw.readinto(view)

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()
