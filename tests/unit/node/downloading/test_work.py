"""Who is woken when there is something to fetch: as many fetchers as there are pieces."""

from __future__ import annotations

import threading
from pathlib import Path

from emulator.clock import ManualClock
from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.node.downloading import Limits, Shape, Target
from gpustack_delivery.node.downloading.answers import Body
from gpustack_delivery.node.downloading.fetching import Fetcher
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


def test_a_buffer_that_is_free_again_wakes_one_fetcher(tmp_path: Path) -> None:
    """And each of them is used: nobody sleeps while there is a piece to fetch and room for it."""
    clock, content = CountingClock(), pattern(SEGMENT * (WINDOW_SEGMENTS + WAITING))
    target = Target(entry("f", content), "https://hub/f", tmp_path / "f")
    shape, hasher = Shape(segment_bytes=SEGMENT), Hashing().start("sha256", len(content))
    file = File(target, hasher, 0, shape, Workspace(tmp_path, len(content)))
    work = Work([file], Limits(clock), clock, shape)
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


def _hash_next(work: Work, held: list[Piece | None]) -> None:
    piece = held.pop(0)
    assert piece is not None
    piece.segment.received = piece.segment.length
    work.arrived(piece)
    assert work.next_to_hash() is piece
    work.hashed(piece)
