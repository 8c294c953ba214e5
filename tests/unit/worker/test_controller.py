"""The keyed queue: one pass at a time for a key, delays, retries, and the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpustack_delivery.errors import Conflict, DeliveryError, NotFound, Unreachable
from gpustack_delivery.mirror import Key
from gpustack_delivery.worker.controller import Controller, Reconcile
from tests.unit.fakes import ManualClock, eventually
from tests.unit.worker.world import SteppedClock

A: Key = ("ns", "a")
B: Key = ("ns", "b")


class Log:
    """Hears of passes."""

    def __init__(self) -> None:
        self.passes: list[tuple[str, bool]] = []

    def reconciled(self, controller: str, seconds: float, *, failed: bool) -> None:
        """Note a pass."""
        self.passes.append((controller, failed))


@contextmanager
def running(reconcile: Reconcile, clock: ManualClock, threads: int = 2) -> Iterator[Controller]:
    """Run a controller for a while."""
    controller = Controller("test", reconcile, clock, Log(), threads=threads)
    controller.start()
    try:
        yield controller
    finally:
        controller.stop()


def test_every_key_is_worked_on_and_observed() -> None:
    """Each key asked for has its pass, and each pass is heard of."""
    seen: list[Key] = []
    log = Log()
    controller = Controller("test", seen.append, ManualClock(), log, threads=2)
    controller.enqueue(A)
    controller.start()
    controller.enqueue(B)
    eventually(lambda: sorted(seen) == [A, B])
    controller.stop()
    assert log.passes == [("test", False), ("test", False)]


def test_never_two_passes_of_one_key_at_once() -> None:
    """A key asked for during its pass is worked on once more afterwards, and only once."""
    inside, free = threading.Event(), threading.Event()
    lock = threading.Lock()
    active = [0, 0]  # now, most
    passes: list[Key] = []

    def reconcile(key: Key) -> None:
        with lock:
            active[0] += 1
            active[1] = max(active)
        passes.append(key)
        inside.set()
        free.wait()
        with lock:
            active[0] -= 1

    with running(reconcile, ManualClock(), threads=4) as controller:
        controller.enqueue(A)
        inside.wait()
        for _ in range(20):
            controller.enqueue(A)
        controller.enqueue(B)
        eventually(lambda: B in passes, "the other key's pass")
        free.set()
        eventually(lambda: passes.count(A) == 2, "the second pass")
    assert passes.count(A) == 2
    assert active[1] == 2  # A and B, never A and A


def test_delays_and_the_earliest_of_them() -> None:
    """A key waits for its time; an earlier wish moves it forward, a later one does not back."""
    seen: list[Key] = []
    clock = ManualClock()
    with running(seen.append, clock) as controller:
        controller.enqueue(A, 60)
        controller.enqueue(B, 10)
        controller.enqueue(A, 20)
        controller.enqueue(A, 90)
        clock.advance(10)
        eventually(lambda: seen == [B])
        clock.advance(10)
        eventually(lambda: seen == [B, A])
        clock.advance(200)
        controller.enqueue(B)
        eventually(lambda: len(seen) == 3)
    assert seen == [B, A, B]


def test_a_pass_names_its_next_time() -> None:
    """What a pass returns is when it is called again."""
    seen: list[Key] = []
    clock = ManualClock()

    def reconcile(key: Key) -> float:
        seen.append(key)
        return 30

    with running(reconcile, clock) as controller:
        controller.enqueue(A)
        for count in (1, 2, 3):
            eventually(lambda count=count: len(seen) == count)  # type: ignore[misc]
            clock.advance(29)
            clock.advance(1)


def test_failures_are_retried_with_growing_pauses() -> None:
    """A failing key comes again, each time later up to five minutes, while others go on."""
    seen: list[Key] = []
    clock = SteppedClock()

    def reconcile(key: Key) -> None:
        seen.append(key)
        if key == A:
            raise RuntimeError("broken") if len(seen) % 2 else Unreachable("down", code=503)

    with running(reconcile, clock) as controller:
        controller.enqueue(A)
        for failures in range(1, 12):
            eventually(lambda failures=failures: len(seen) == failures)  # type: ignore[misc]
            clock.settle(2)
            longest = min(2.0 ** (failures - 1), 300)
            clock.advance(longest / 2 - 0.01)
            clock.settle(2)
            assert seen == [A] * failures, "it came too early"
            clock.advance(longest / 2 + 0.01)
        controller.enqueue(B)
        eventually(lambda: B in seen)


def test_the_servers_wish_is_respected() -> None:
    """A failure that says when to come again is not retried before."""
    times: list[float] = []
    clock = ManualClock()

    def reconcile(_key: Key) -> None:
        times.append(clock.monotonic())
        raise Unreachable("slow down", code=429, retry_after_seconds=120)

    with running(reconcile, clock) as controller:
        controller.enqueue(A)
        eventually(lambda: len(times) == 1)
        while len(times) < 2:
            clock.advance(1)
    assert times[1] - times[0] >= 120


@pytest.mark.parametrize("fault", [NotFound("gone", code=404), Conflict("moved on", code=409)])
def test_what_a_copy_behind_meets_is_told_when_it_meets_it_again(
    fault: DeliveryError, caplog: pytest.LogCaptureFixture
) -> None:
    """An object gone or moved on is a failure, and said aloud, from the second time in a row on."""
    clock, log = SteppedClock(), Log()
    faults: list[DeliveryError | None] = [fault, None, fault, fault, None]

    def reconcile(_key: Key) -> None:
        if (raised := faults.pop(0)) is not None:
            raise raised

    controller = Controller("test", reconcile, clock, log, threads=1)
    controller.start()
    controller.enqueue(A)
    for left, asked in ((4, False), (3, False), (2, True), (1, False), (0, False)):
        if asked:
            controller.enqueue(A)
        eventually(lambda left=left: len(faults) == left)  # type: ignore[misc]
        clock.settle(1)
        clock.advance(2)
    controller.stop()
    assert [failed for _, failed in log.passes] == [False, False, False, True, False]
    told = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [record.levelname for record in told] == ["WARNING"]


def test_stop_lets_a_pass_end_and_begins_no_other() -> None:
    """After stop nothing runs, and what ran has ended."""
    inside, free = threading.Event(), threading.Event()
    ended: list[Key] = []

    def reconcile(key: Key) -> None:
        inside.set()
        free.wait()
        ended.append(key)

    controller = Controller("test", reconcile, ManualClock(), Log(), threads=1)
    controller.start()
    controller.enqueue(A)
    controller.enqueue(B)
    inside.wait()
    stopper = threading.Thread(target=controller.stop)
    stopper.start()
    free.set()
    stopper.join()
    assert len(ended) == 1


def test_stop_before_start() -> None:
    """A controller that never ran stops at once."""
    Controller("test", lambda _key: None, ManualClock(), Log()).stop()
