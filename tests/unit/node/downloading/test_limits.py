"""The node's limits, pauses between tries and the stall rule, on a clock that the tests move."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from email.utils import formatdate

import pytest

from emulator.clock import ManualClock
from gpustack_delivery.errors import AttemptFault, Reason
from gpustack_delivery.node.downloading import Limits
from gpustack_delivery.node.downloading.limits import (
    LEAST_SEGMENTS,
    WINDOW_SEGMENTS,
    Abandoned,
)
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import SEGMENT, Site, pattern
from tests.unit.origin import HANG_UP, Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
CONTENT = pattern(SEGMENT * 10)


class Doorman:
    """Counts the requests inside a handler, and holds them there until `open` is called."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._open = False
        self.inside = 0
        self.most = 0

    def open(self) -> None:
        """Let everyone pass, now and later."""
        with self._condition:
            self._open = True
            self._condition.notify_all()

    def __call__(self, seen: Seen, wire: Wire) -> None:
        with self._condition:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if seen.byte_range[0]:
                self._condition.wait_for(lambda: self._open, timeout=20)
            self.inside -= 1
        wire.respond_range(seen, CONTENT)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_gate_holds_across_downloads(serve: Serve, concurrency: int) -> None:
    """However many downloads run, no more requests than allowed are under way at once."""
    doorman = Doorman()
    site, _ = serve(doorman)
    site.limits.change(concurrency=concurrency, bytes_per_second=0)
    runs = [site.start(site.target(name, CONTENT)) for name in ("a", "b", "c")]
    site.clock.advance(5)
    assert doorman.inside == concurrency
    doorman.open()
    for running in runs:
        running.finish()
    assert doorman.most == concurrency


def test_concurrency_changes_while_a_download_runs(serve: Serve) -> None:
    """A higher limit starts more requests at once; a lower one starts none until enough ended."""
    doorman = Doorman()
    site, _ = serve(doorman)
    site.limits.change(concurrency=2, bytes_per_second=0)
    running = site.start(site.target("f", CONTENT))
    site.clock.advance(1)
    assert doorman.inside == 2
    site.limits.change(concurrency=6, bytes_per_second=0)
    site.clock.advance(1)
    assert doorman.inside == 6
    site.limits.change(concurrency=1, bytes_per_second=0)
    site.clock.advance(1)
    assert doorman.inside == 6
    doorman.open()
    running.finish()
    assert doorman.most == 6


def test_bandwidth_holds_across_downloads(serve: Serve) -> None:
    """Two downloads together get one second's burst and then the rate; no limit means no limit."""
    rate = 64 << 10
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    site.limits = Limits(site.clock, concurrency=4, bytes_per_second=rate)
    site.rebuild()
    runs = [site.start(site.target(name, CONTENT)) for name in ("a", "b")]
    begun = site.clock.monotonic()
    while any(not running.done for running in runs):
        site.clock.advance(0.25)
        passed = site.clock.monotonic() - begun
        assert site.received <= rate * (1 + passed) + 1
    taken = site.clock.monotonic() - begun
    total = 2 * len(CONTENT)
    assert (total - rate) / rate <= taken <= (total - rate) / rate + 1
    for running in runs:
        running.finish()


@pytest.mark.parametrize(
    ("rate", "at_once"), [(1 << 10, 32 << 10), (1 << 20, 32 << 10), (200 << 20, 1 << 20)]
)
def test_a_high_bandwidth_is_used_in_large_reads(rate: int, at_once: int) -> None:
    """Some hundred a second are steady enough; thousands would keep the interpreter from mounts."""
    limits = Limits(ManualClock(), bytes_per_second=rate)
    assert limits.take(4 << 20, lambda: True) == at_once


def test_bandwidth_changes_while_a_download_runs(serve: Serve) -> None:
    """Lifting the limit lets a waiting download finish without the clock."""
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    site.limits = Limits(site.clock, concurrency=2, bytes_per_second=1024)
    site.rebuild()
    running = site.start(site.target("f", CONTENT))
    site.clock.advance(2)
    assert 0 < site.received < len(CONTENT)
    site.limits.change(concurrency=2, bytes_per_second=0)
    eventually(lambda: running.done, "the end without a limit")
    running.finish()


def test_waiting_for_bandwidth_is_no_stall(serve: Serve) -> None:
    """A download slowed to a crawl by its own node is not taken for a silent source."""
    content = pattern(SEGMENT * 4)
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, content))
    site.limits = Limits(site.clock, concurrency=1, bytes_per_second=256)
    site.rebuild()
    running = site.start(site.target("f", content))
    assert running.outcome(step_seconds=20) is None
    assert len(origin.seen) == 4


def test_cancelled_while_it_waits_for_its_turn(serve: Serve) -> None:
    """Cancellation reaches downloads that wait for bandwidth and for a request's slot."""
    doorman = Doorman()
    site, _ = serve(doorman)
    site.limits.change(concurrency=1, bytes_per_second=0)
    holding = site.start(site.target("a", CONTENT))
    site.clock.advance(1)
    waiting = site.start(site.target("b", CONTENT))
    site.clock.advance(1)
    waiting.cancellation.cancel()
    eventually(lambda: waiting.done, "the end of the waiting download")
    assert isinstance(waiting.fault, AttemptFault)
    assert waiting.fault.reason is Reason.CANCELED
    doorman.open()
    holding.finish()
    site.limits.change(concurrency=1, bytes_per_second=1)
    slow = site.start(site.target("c", CONTENT))
    site.clock.advance(1)
    slow.cancellation.cancel()
    eventually(lambda: slow.done, "the end of the slow download")


def test_limits_let_the_abandoned_go() -> None:
    """Whoever no longer wants its turn gets an exception in its place."""
    clock = ManualClock()
    limits = Limits(clock, concurrency=1, bytes_per_second=1)
    assert limits.take(1 << 15, lambda: False) == 1 << 15
    with pytest.raises(Abandoned):
        limits.take(1, lambda: True)
    with limits.slot(lambda: False), pytest.raises(Abandoned), limits.slot(lambda: True):
        pass


def test_unused_bandwidth_is_given_back() -> None:
    """What was taken and not read can be taken again, but never piles up past the burst."""
    limits = Limits(ManualClock(), bytes_per_second=1 << 15)
    assert limits.take(1 << 20, lambda: False) == 1 << 15
    limits.give_back(1 << 15)
    limits.give_back(1 << 15)
    assert limits.take(1 << 15, lambda: False) == 1 << 15
    with pytest.raises(Abandoned):
        limits.take(1, lambda: True)


def test_memory_is_shared_between_downloads() -> None:
    """Each download's share shrinks with their number, and never below what it needs to go on."""
    limits = Limits(ManualClock())
    woken: list[str] = []
    assert limits.share_segments == WINDOW_SEGMENTS
    with limits.taking_part(lambda: woken.append("a")):
        assert limits.share_segments == WINDOW_SEGMENTS
        with limits.taking_part(lambda: woken.append("b")):
            assert limits.share_segments == WINDOW_SEGMENTS // 2
        assert woken == ["a"]
    with ExitStack() as downloads:
        for _ in range(20):
            downloads.enter_context(limits.taking_part(lambda: None))
        assert limits.share_segments == LEAST_SEGMENTS


def test_many_downloads_with_little_memory_all_end(serve: Serve) -> None:
    """Twelve downloads of several files, two segments each, finish whatever their order."""
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    runs = [
        site.start(*(site.target(f"{n}-{part}", CONTENT) for part in range(3))) for n in range(12)
    ]
    for running in runs:
        running.finish()
    assert site.received == len(CONTENT) * 36


@pytest.mark.parametrize("sent", [0, 512])
def test_silent_range_goes_on_from_its_last_byte(serve: Serve, sent: int) -> None:
    """After 30 seconds without a byte the range is asked again from where it stopped."""
    content = pattern(1024)

    def handler(seen: Seen, wire: Wire) -> object:
        if len(origin.seen) > 1:
            wire.respond_range(seen, content)
            return None
        if sent:
            span = f"bytes 0-1023/{len(content)}"
            wire.respond(206, content[:sent], Content_Range=span, Content_Length="1024")
        wire.wait_for_hangup()
        return HANG_UP

    site, origin = serve(handler)
    running = site.start(site.target("f", content))
    eventually(lambda: len(origin.seen) == 1 and site.received == sent, "the first bytes")
    site.clock.advance(29.5)
    assert len(origin.seen) == 1
    site.clock.advance(0.6)
    running.finish()
    assert [seen.headers["range"] for seen in origin.seen] == [
        "bytes=0-1023",
        f"bytes={sent}-1023",
    ]
    assert site.content("f") == content


def test_trickle_is_no_stall(serve: Serve) -> None:
    """A source that sends a byte now and then is slow, not silent."""
    content = pattern(5)
    step = threading.Semaphore(0)

    def handler(seen: Seen, wire: Wire) -> None:
        wire.respond(206, b"", Content_Range="bytes 0-4/5", Content_Length="5")
        for at in range(5):
            step.acquire(timeout=20)
            wire.send(content[at : at + 1])

    site, origin = serve(handler)
    running = site.start(site.target("f", content))
    for expected in range(1, 6):
        site.clock.advance(20)
        step.release()
        eventually(lambda n=expected: site.received == n, "the next byte")  # type: ignore[misc]  # bound early
    running.finish()
    assert len(origin.seen) == 1


def test_source_that_stays_silent_is_given_up(serve: Serve) -> None:
    """Six silent requests of 30 seconds each end the attempt as a timeout."""

    def handler(seen: Seen, wire: Wire) -> str:
        wire.wait_for_hangup()
        return HANG_UP

    site, origin = serve(handler)
    with pytest.raises(AttemptFault) as caught:
        site.fetch(site.target("f", CONTENT))
    assert (caught.value.reason, str(caught.value)) == (Reason.SOURCE_UNAVAILABLE, "a timeout")
    assert len(origin.seen) == 6


def moments(serve: Serve, retry_after: Callable[[Site], str], answers: int) -> list[float]:
    """Return the pauses before the second and later requests under failing answers."""
    times: list[float] = []

    def handler(seen: Seen, wire: Wire) -> None:
        times.append(site.clock.monotonic())
        if len(times) <= answers:
            wire.respond(429, b"", Retry_After=retry_after(site))
        else:
            wire.respond_range(seen, b"x")

    site, _ = serve(handler)
    running = site.start(site.target("f", b"x"))
    assert running.outcome(step_seconds=0.05) is None
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_pauses_grow_and_are_spread(serve: Serve) -> None:
    """Without a wish the n-th retry comes after half to all of n seconds."""
    pauses = moments(serve, lambda site: "", 5)
    assert len(pauses) == 5
    for number, pause in enumerate(pauses, start=1):
        assert number * 0.5 <= pause <= number + 0.1


@pytest.mark.parametrize(
    ("wish", "least", "most"),
    [
        (lambda site: "7", 7, 7.1),
        (lambda site: formatdate(site.clock.now() + 20, usegmt=True), 19, 20.1),
        (lambda site: formatdate(site.clock.now() - 1000, usegmt=True), 0.5, 1.1),
        (lambda site: "86400", 60, 60.1),
        (lambda site: "soon", 0.5, 1.1),
        (lambda site: "-5", 0.5, 1.1),
        (lambda site: "9" * 400, 0.5, 60.1),
        (lambda site: "0", 0.5, 1.1),
    ],
    ids=["seconds", "date", "past date", "a day", "words", "negative", "absurd", "zero"],
)
def test_wish_to_wait_is_honoured_within_bounds(
    serve: Serve, wish: Callable[[Site], str], least: float, most: float
) -> None:
    """Retry-After counts in both forms, up to a minute; what makes no sense is ignored."""
    (pause,) = moments(serve, wish, 1)
    assert least <= pause <= most


def test_progress_gives_a_source_new_chances(serve: Serve) -> None:
    """A source that gets a little further each time is never given up."""
    content = pattern(40)

    def handler(seen: Seen, wire: Wire) -> str:
        first, last = seen.byte_range
        span = f"bytes {first}-{last}/40"
        length = str(last - first + 1)
        wire.respond(206, content[first : first + 1], Content_Range=span, Content_Length=length)
        return HANG_UP

    site, origin = serve(handler)
    site.fetch(site.target("f", content))
    assert len(origin.seen) == 40
    assert site.content("f") == content
