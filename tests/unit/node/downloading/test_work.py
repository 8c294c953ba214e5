"""Who fetches what: as many are woken as there are pieces, and no two wait for each other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from emulator.clock import ManualClock
from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.node.downloading import Limits, Shape, Target
from gpustack_delivery.node.downloading.answers import Body
from gpustack_delivery.node.downloading.fetching import Fetcher, Source
from gpustack_delivery.node.downloading.files import File, Piece
from gpustack_delivery.node.downloading.limits import WINDOW_SEGMENTS
from gpustack_delivery.node.downloading.work import Work
from gpustack_delivery.node.workspace import Workspace
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import SEGMENT, entry, pattern

WAITING = 5


class CountingClock(ManualClock):
    """Counts how often somebody came back from waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.woken = 0

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait, and count."""
        self.waiting += 1
        super().wait(condition, seconds)
        self.waiting -= 1
        self.woken += 1


class IdleFetcher(Fetcher):
    """A fetcher without an open answer, which never asks."""

    def __init__(self) -> None:
        self._open = None


class StreamingFetcher(IdleFetcher):
    """A fetcher whose answer stays open after each segment, until it lets go of it."""

    source: Source | None = None

    @property
    def streaming(self) -> Source | None:
        """Return the source of the open answer."""
        return self.source

    def close(self) -> None:
        """Let go."""
        self.source = None


def test_a_buffer_that_is_free_again_wakes_one_fetcher(tmp_path: Path) -> None:
    """And each of them is used: nobody sleeps while there is a piece to fetch and room for it."""
    clock = CountingClock()
    work, file = _work_on_a_file(tmp_path, clock, WINDOW_SEGMENTS + WAITING)
    held = [work.take(IdleFetcher())]
    work.accepted(file, Body(start=0, whole=False))
    held += [work.take(IdleFetcher()) for _ in range(WINDOW_SEGMENTS - 1)]
    taken: list[Piece | None] = []
    threads = [
        threading.Thread(target=lambda: taken.append(work.take(IdleFetcher())), daemon=True)
        for _ in range(WAITING)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: clock.waiting == WAITING)
    for number in range(1, WAITING):
        _hash_next(work, held)
        eventually(lambda expected=number: len(taken) == expected)  # type: ignore[misc]
        eventually(lambda expected=number: clock.waiting == WAITING - expected)  # type: ignore[misc]
        assert clock.woken == number
    _hash_next(work, held)
    for thread in threads:
        thread.join(20)
    assert len(taken) == WAITING
    assert None not in taken


def test_an_open_answer_goes_on_by_itself(tmp_path: Path) -> None:
    """What a whole answer is about to bring is asked for by nobody else."""
    clock = CountingClock()
    work, file = _work_on_a_file(tmp_path, clock, 3)
    streaming = StreamingFetcher()
    first = work.take(streaming)
    _answer_whole(work, file, streaming, first)
    taken: list[Piece | None] = []
    other = threading.Thread(target=lambda: taken.append(work.take(IdleFetcher())), daemon=True)
    other.start()
    eventually(lambda: clock.waiting == 1)
    for number in (1, 2):
        before = clock.woken
        _hash_next(work, [first])
        eventually(lambda seen=before: taken or clock.woken > seen)  # type: ignore[misc]
        eventually(lambda: taken or clock.waiting == 1)
        assert taken == []
        first = work.take(streaming)
        assert first is not None
        assert first.segment.start == SEGMENT * number
    other.join(20)
    assert taken == [None]


@pytest.mark.parametrize("left", [1, 0])
def test_an_open_answer_waits_for_no_other_request(tmp_path: Path, left: int) -> None:
    """That one may wait for the request that the open answer counts as: it is let go."""
    clock = CountingClock()
    work, file = _work_on_a_file(tmp_path, clock, WINDOW_SEGMENTS + left, more=left == 0)
    early = work.take(IdleFetcher())
    work.accepted(file, Body(start=0, whole=False))
    streaming = StreamingFetcher()
    late = work.take(streaming)
    _answer_whole(work, file, streaming, late)
    for _ in range(WINDOW_SEGMENTS - 2):
        _arrive(work, late)
        late = work.take(streaming)
    _arrive(work, late)
    taken: list[Piece | None] = []
    thread = threading.Thread(target=lambda: taken.append(work.take(streaming)), daemon=True)
    thread.start()
    eventually(lambda: streaming.source is None, "the end of the open answer")
    _hash_next(work, [early])
    thread.join(20)
    assert taken[0] is not None


def _work_on_a_file(
    root: Path, clock: CountingClock, segments: int, *, more: bool = False
) -> tuple[Work, File]:
    shape, files = Shape(segment_bytes=SEGMENT), []
    for name in ("f", "g") if more else ("f",):
        content = pattern(SEGMENT * segments)
        target = Target(entry(name, content), f"https://hub/{name}", root / name)
        hasher = Hashing().start("sha256", len(content))
        files.append(File(target, hasher, 0, shape, Workspace(root, len(content))))
    return Work(files, Limits(clock), clock, shape), files[0]


def _answer_whole(work: Work, file: File, fetcher: StreamingFetcher, piece: Piece | None) -> None:
    assert piece is not None
    fetcher.source = piece.segment.source
    work.accepted(file, Body(start=0, whole=True))


def _arrive(work: Work, piece: Piece | None) -> Piece:
    assert piece is not None
    piece.segment.received = piece.segment.length
    work.arrived(piece)
    return piece


def _hash_next(work: Work, held: list[Piece | None]) -> None:
    piece = _arrive(work, held.pop(0))
    assert work.next_to_hash() is piece
    work.hashed(piece)
