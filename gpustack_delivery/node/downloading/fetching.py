"""One segment of one file, from the first request to its last byte, whatever happens between.

A segment is asked for as a byte range. When its source fails, the next request begins after the
last byte that came; a source that never gets further is given up after five retries. A source that
ignores ranges and sends the whole file is used all the same: what lies before the segment is
skipped, and the same answer then serves the segments after it, so that nothing is asked for twice.

A hub redirects to signed URLs on other hosts. The one that worked is kept for the file's next
segments, and when it no longer works, or has failed twice, the hub is asked again.

`engine` runs one `Fetcher` on each of its threads. Rules: NS-DL-10, NS-DL-12, NS-DL-13, NS-DL-15,
NS-DL-22, NS-FR-03.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from gpustack_delivery.adapters.http import CredentialFault, Flight, Http, Stream, TransportFault
from gpustack_delivery.adapters.redirects import same_place
from gpustack_delivery.errors import AttemptFault, Reason
from gpustack_delivery.node.downloading.answers import (
    CONTENT,
    Body,
    Question,
    TryAgain,
    judge,
    mismatch,
)
from gpustack_delivery.node.downloading.limits import Abandoned, Limits
from gpustack_delivery.ports import Clock
from gpustack_delivery.redaction import Token

STALL_SECONDS: Final = 30.0
RETRIES: Final = 5
_LONGEST_PAUSE_SECONDS: Final = 10.0


@dataclass(slots=True)
class Source:
    """Where a file comes from; `signed_url` is where its hub last sent us, and a secret."""

    url: str
    size: int
    signed_url: str = field(default="", repr=False)


@dataclass(slots=True)
class Segment:
    """A range of a file and the buffer it goes to; `received` bytes of it have come."""

    source: Source
    start: int
    view: memoryview
    received: int = 0

    @property
    def length(self) -> int:
        """Return how many bytes the segment has."""
        return len(self.view)


@dataclass(slots=True)
class Terms:
    """What an attempt lends its fetchers.

    Args:
        over: says that the attempt ends; asked often.
        pause: waits some seconds, or until the attempt is over.
        credential: the token of the moment.
        received: is told of bytes that came and were kept.
        retries: requests in a row that may bring nothing before a source is given up.
    """

    http: Http
    limits: Limits
    clock: Clock
    over: Callable[[], bool]
    pause: Callable[[float], None]
    credential: Callable[[], Token | None]
    received: Callable[[int], None]
    retries: int = RETRIES


@dataclass(slots=True)
class Watch:
    """What the watchdog sees of a request: when it last got further, and whether it tries to."""

    flight: Flight
    moved_at: float
    resting: bool = False  # it waits for bandwidth or for a buffer, not for its source
    stalled: bool = False


@dataclass(slots=True)
class _Open:
    """An answer being read, with the request's slot; `position` is its next byte in the file."""

    stream: Stream
    source: Source
    body: Body
    position: int
    held: ExitStack
    watch: Watch


class Fetcher:
    """Fetches segments one after another on one thread; another thread may look at `watch`."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._random = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._open: _Open | None = None
        self.watch: Watch | None = None

    @property
    def streaming(self) -> Source | None:
        """Return the source whose whole-file answer is open for its next segment."""
        answer = self._open  # once: other threads ask too
        return answer.source if answer else None

    def fetch(self, segment: Segment, accepted: Callable[[Body], None]) -> None:
        """Fill a segment's buffer.

        Args:
            accepted: is called when a source answers with content.

        Raises:
            AttemptFault: the source refuses, fails for good, or has another file.
            Abandoned: the attempt is over; what came until then is in the segment.
        """
        failures = 0
        while True:
            before = segment.received
            try:
                self._try(segment, accepted)
                return
            except CredentialFault as fault:
                raise AttemptFault(Reason.ACCESS_DENIED, str(fault)) from None
            except TransportFault as fault:
                stalled = self.watch is not None and self.watch.stalled
                again = TryAgain("a timeout" if stalled else str(fault))
                segment.source.signed_url = ""
            except TryAgain as useless:
                again = useless
                if failures:  # once is an accident; then the hub may know a better place
                    segment.source.signed_url = ""
            if self._terms.over():
                raise Abandoned
            if self.watch is not None:
                self.watch.resting = True
            failures = 1 if segment.received > before else failures + 1
            if failures > self._terms.retries:
                raise AttemptFault(again.reason, str(again))
            self._terms.pause(max(self._jittered(failures), again.wish_seconds))

    def close(self) -> None:
        """Let go of an open answer and its slot."""
        closing, self._open = self._open, None
        if closing is not None:
            closing.watch.resting = True
            closing.held.close()

    def _try(self, segment: Segment, accepted: Callable[[Body], None]) -> None:
        """Get as far as one answer goes."""
        wanted = segment.start + segment.received
        answer = self._open
        if answer is None or answer.source is not segment.source or answer.position > wanted:
            self.close()
            answer = self._open = self._ask(segment, wanted)
            accepted(answer.body)
        watch = self.watch = answer.watch
        watch.resting, watch.moved_at = False, self._terms.clock.monotonic()
        try:
            self._read_segment(answer, segment)
            ended = not answer.body.whole or answer.position >= segment.source.size
            if ended and answer.body.whole:
                self._expect_end(answer)
        except BaseException:
            self.close()
            raise
        if ended:
            self.close()
        watch.resting = True

    def _ask(self, segment: Segment, wanted: int) -> _Open:
        """Send a request and judge its answer; the slot it takes is held until it is closed."""
        source, clock = segment.source, self._terms.clock
        byte_range = {"Range": f"bytes={wanted}-{segment.start + segment.length - 1}"}
        with ExitStack() as held:
            held.enter_context(self._terms.limits.slot(self._terms.over))
            stream = self._send_signed(source, byte_range)
            if stream is None:
                stream = self._send(source.url, self._terms.credential(), byte_range)
            held.callback(stream.close)
            redirected = not same_place(source.url, stream.url)
            question = Question(wanted, source.size, redirected, clock.now())
            body = judge(stream.status, stream.headers, question)
            if redirected:
                source.signed_url = stream.url
            assert self.watch is not None  # noqa: S101 - `_send` has set it
            return _Open(stream, source, body, body.start, held.pop_all(), self.watch)

    def _send_signed(self, source: Source, byte_range: Mapping[str, str]) -> Stream | None:
        """Ask where the hub last sent us; None when that place has to be asked for again."""
        url = source.signed_url  # once: the file's other fetchers forget it when it fails
        if not url:
            return None
        stream = self._send(url, None, byte_range)
        if stream.status in CONTENT or stream.status >= 500 or stream.status in {416, 429}:
            return stream
        stream.close()
        source.signed_url = ""
        return None

    def _send(self, url: str, token: Token | None, byte_range: Mapping[str, str]) -> Stream:
        flight = Flight()
        self.watch = Watch(flight, self._terms.clock.monotonic())
        if self._terms.over():  # looked at after the flight can be seen, so no abort is missed
            raise Abandoned
        return self._terms.http.stream(url, token=token, headers=byte_range, flight=flight)

    def _read_segment(self, answer: _Open, segment: Segment) -> None:
        view = segment.view
        while segment.received < segment.length:
            gap = segment.start + segment.received - answer.position
            free = view[segment.received :]
            count = self._read(answer, free[:gap] if gap else free)
            if count == 0:
                raise self._ended(answer)
            if not gap:
                segment.received += count
                self._terms.received(count)

    def _read(self, answer: _Open, view: memoryview) -> int:
        limits, watch = self._terms.limits, answer.watch
        wanted = len(view)
        if limits.bytes_per_second:
            watch.resting = True
            wanted = limits.take(wanted, self._terms.over)
            watch.moved_at, watch.resting = self._terms.clock.monotonic(), False
        count = answer.stream.read_into(view[:wanted])
        limits.give_back(wanted - count)
        answer.position += count
        watch.moved_at = self._terms.clock.monotonic()
        return count

    def _ended(self, answer: _Open) -> Exception:
        if answer.body.whole and answer.stream.delimited:
            return mismatch(
                f"the source's file has {answer.position} bytes in place of {answer.source.size}"
            )
        return TryAgain("a body shorter than its range")

    def _expect_end(self, answer: _Open) -> None:
        """Make sure that a body of unknown length ends where the file ends."""
        if answer.stream.declared_bytes is not None:
            return
        count = 0
        with suppress(TransportFault):  # every byte is here; how the connection ends is its affair
            count = answer.stream.read_into(memoryview(bytearray(1)))
        if count:
            raise mismatch(f"the source's file has more than {answer.source.size} bytes")

    def _jittered(self, failures: int) -> float:
        longest = min(float(failures), _LONGEST_PAUSE_SECONDS)
        return longest * self._random.uniform(0.5, 1.0)
