"""What a hub was asked, by whom with which credential, and how much it gave.

Tests read the entries; people read `dump`, which withholds credentials and signatures. The
entries themselves keep them, because a test must be able to say that a token went to one host and
not to another: `carries` compares, and nothing prints.
"""

from __future__ import annotations

import fnmatch
import threading
from dataclasses import dataclass, field
from urllib.parse import unquote

from emulator.contracts import Clock
from gpustack_delivery.httpd import Headers, Request


@dataclass(slots=True, eq=False)
class Entry:
    """One request and what became of it.

    `host` is the server that was asked: `hub`, `cdn` or `proxy`. `path` is percent-decoded. Times
    are the injected clock's, `ended` None while the answer is under way. `began` and `over` number
    all beginnings and ends in their order, so that two entries overlapped when each began before
    the other was over, however the clock stood. `in_flight` counts the requests under way when
    this one came, itself included.
    """

    host: str
    method: str
    path: str
    headers: Headers
    started: float
    in_flight: int
    began: int
    query: str = field(default="", repr=False)
    status: int = 0
    sent_bytes: int = 0
    ended: float | None = None
    over: int | None = None

    @property
    def range(self) -> str:
        """The Range header, "" when there was none."""
        return self.headers.get("Range") or ""

    @property
    def authorized(self) -> bool:
        """Whether any credential came along."""
        return "Authorization" in self.headers

    def overlaps(self, other: Entry) -> bool:
        """Say whether two requests were under way at the same time."""
        return (other.over is None or self.began < other.over) and (
            self.over is None or other.began < self.over
        )

    def carries(self, secret: str) -> bool:
        """Say whether a secret stands anywhere in the request's target or headers."""
        values = [value for _, value in self.headers.items()]
        return any(secret in text for text in (self.path, self.query, *values))

    def line(self) -> str:
        """Return the entry as one line without secrets."""
        query = f"?{_WITHHELD}" if "signature" in self.query.lower() else ""
        query = query or (f"?{self.query}" if self.query else "")
        credential = f" authorization={_WITHHELD}" if self.authorized else ""
        asked = f" range={self.range}" if self.range else ""
        target = "".join(_printable(character) for character in self.path + query)
        return (
            f"{self.started:.3f} {self.host} {self.method} {target}{asked}{credential}"
            f" -> {self.status} {self.sent_bytes}B"
        )


_WITHHELD = "(withheld)"


def _printable(character: str) -> str:
    return character if character.isprintable() else f"\\u{ord(character):04x}"


class RequestLog:
    """The requests of one hub in the order in which they came. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._in_flight = 0
        self._moment = 0

    def begin(self, host: str, request: Request, path: str = "") -> Entry:
        """Note a request, under another path than its own if one is given; `end` has to follow."""
        path = unquote(path or request.path, errors="replace")
        with self._lock:
            self._in_flight += 1
            self._moment += 1
            entry = Entry(
                host,
                request.method,
                path,
                request.headers,
                self._clock.now(),
                self._in_flight,
                self._moment,
                request.query,
            )
            self._entries.append(entry)
        return entry

    def end(self, entry: Entry, sent_bytes: int) -> None:
        """Note that an answer is over."""
        with self._lock:
            self._in_flight -= 1
            self._moment += 1
            entry.over = self._moment
            entry.sent_bytes += sent_bytes
            entry.ended = self._clock.now()

    @property
    def in_flight(self) -> int:
        """How many requests are being answered now."""
        return self._in_flight

    def entries(self, path: str = "*", *, host: str = "*", method: str = "*") -> list[Entry]:
        """Return the entries whose path, host and method match patterns, oldest first."""
        with self._lock:
            entries = list(self._entries)
        return [
            entry
            for entry in entries
            if fnmatch.fnmatchcase(entry.path, path)
            and fnmatch.fnmatchcase(entry.host, host)
            and fnmatch.fnmatchcase(entry.method, method)
        ]

    def sent_bytes(self, path: str = "*", *, host: str = "*") -> int:
        """Return how many body bytes were sent in answer to matching requests."""
        return sum(entry.sent_bytes for entry in self.entries(path, host=host))

    def peak(self, path: str = "*", *, host: str = "*") -> int:
        """Return the most requests that were under way when a matching one came."""
        return max((entry.in_flight for entry in self.entries(path, host=host)), default=0)

    def clear(self) -> None:
        """Forget what was; requests under way are still counted."""
        with self._lock:
            self._entries.clear()

    def dump(self) -> str:
        """Return the log as text, a line a request, without secrets."""
        return "\n".join(entry.line() for entry in self.entries())
