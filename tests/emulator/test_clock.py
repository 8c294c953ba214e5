"""The manual clock: deadlines in order, threads at rest between steps, the same log every time."""

from __future__ import annotations

import threading

import pytest

from emulator.clock import ManualClock, SystemClock


class Sleeper:
    """A thread that waits on a clock for one period after another and writes down when it woke."""

    def __init__(
        self, clock: ManualClock, log: list[tuple[str, float]], name: str, period: float
    ) -> None:
        self._clock, self._log, self._name, self._period = clock, log, name, period
        self._condition = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        due = self._clock.monotonic() + self._period
        with self._condition:
            while not self._stopped:
                if (left := due - self._clock.monotonic()) > 0:
                    self._clock.wait(self._condition, left)
                    continue
                self._log.append((self._name, self._clock.monotonic()))
                due += self._period

    def stop(self) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._thread.join()


def test_advance_stops_at_every_deadline_in_order() -> None:
    """Threads with different periods wake at their own times, merged in order of time."""
    clock, log = ManualClock(), list[tuple[str, float]]()
    sleepers = [Sleeper(clock, log, "three", 3.0), Sleeper(clock, log, "two", 2.0)]
    clock.rest()
    clock.advance(6.5)
    for sleeper in sleepers:
        sleeper.stop()
    assert log == [("two", 2.0), ("three", 3.0), ("two", 4.0), ("three", 6.0), ("two", 6.0)]
    assert clock.monotonic() == 6.5


def test_a_woken_thread_that_notifies_another_is_waited_for() -> None:
    """A step ends only when the chain of notifications it began has ended, before time moves on."""
    clock = ManualClock()
    log: list[tuple[str, float]] = []
    links = [threading.Condition() for _ in range(5)]
    passed = [False] * 5

    def link(index: int) -> None:
        with links[index]:
            while not passed[index]:
                clock.wait(links[index], 1.0 if index == 0 else None)
                passed[index] = passed[index] or (index == 0 and clock.monotonic() >= 1.0)
        log.append((f"link {index}", clock.monotonic()))
        if index + 1 < len(links):
            with links[index + 1]:
                passed[index + 1] = True
                links[index + 1].notify_all()

    threads = [threading.Thread(target=link, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    clock.rest()
    other: list[tuple[str, float]] = []
    late = Sleeper(clock, other, "late", 1.5)
    clock.rest()
    clock.advance(10.0)
    late.stop()
    for thread in threads:
        thread.join()
    assert log == [(f"link {index}", 1.0) for index in range(5)]
    assert len(other) == 6


def test_a_thread_the_clock_has_never_seen_is_waited_for() -> None:
    """Work that a step hands to a thread outside the clock is done before the next step."""
    clock = ManualClock()
    handed, log = threading.Event(), list[float]()

    def outside() -> None:
        handed.wait()
        total = sum(index * index for index in range(400_000))
        log.append(clock.monotonic() + 0 * total)

    worker = threading.Thread(target=outside)
    worker.start()
    due = threading.Condition()

    def inside() -> None:
        with due:
            while clock.monotonic() < 1.0:
                clock.wait(due, 1.0 - clock.monotonic())
        handed.set()

    waker = threading.Thread(target=inside)
    waker.start()
    later: list[tuple[str, float]] = []
    clock.rest()
    sleeper = Sleeper(clock, later, "later", 1.25)
    clock.rest()
    clock.advance(100.0)
    sleeper.stop()
    waker.join()
    worker.join()
    assert log == [1.0]


def test_a_thread_held_up_elsewhere_does_not_stop_time() -> None:
    """After the clock's patience a step goes on although a test keeps a thread busy."""
    clock = ManualClock(patience_seconds=0.05)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    busy = threading.Thread(target=spin)
    busy.start()
    clock.advance(5.0)
    stop.set()
    busy.join()
    assert clock.monotonic() == 5.0


def test_a_notification_ends_a_wait_without_moving_time() -> None:
    """Waiting without a deadline ends by notification alone."""
    clock, condition = ManualClock(start=1000.0), threading.Condition()
    seen: list[float] = []

    def wait() -> None:
        with condition:
            clock.wait(condition, None)
        seen.append(clock.now())

    thread = threading.Thread(target=wait)
    thread.start()
    clock.rest()
    clock.advance(60.0)
    assert seen == []
    with condition:
        condition.notify_all()
    thread.join()
    assert seen == [1060.0]


def test_a_wait_of_nothing_returns_at_once() -> None:
    """Zero and negative seconds do not wait, on either clock."""
    condition = threading.Condition()
    with condition:
        ManualClock().wait(condition, 0)
        ManualClock().wait(condition, -1)
        SystemClock().wait(condition, 0)
        SystemClock().wait(condition, -1)


def test_time_does_not_go_back() -> None:
    """A negative step is refused and named."""
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)


def test_the_system_clock_waits_no_longer_than_asked() -> None:
    """A wait on the real clock ends by itself; years are not too long to ask for."""
    clock, condition = SystemClock(), threading.Condition()
    with condition:
        clock.wait(condition, 0.001)
    assert clock.monotonic() <= clock.monotonic()
    assert clock.now() > 1_700_000_000
    done: list[bool] = []

    def wait_for_years() -> None:
        with condition:
            while not done:
                clock.wait(condition, 1e12)

    thread = threading.Thread(target=wait_for_years)
    thread.start()
    with condition:
        done.append(True)
        condition.notify_all()
    thread.join()


def test_the_same_steps_write_the_same_log() -> None:
    """Twenty runs of several threads over the same deadlines are one and the same sequence."""

    def run() -> list[tuple[str, float]]:
        clock, log = ManualClock(), list[tuple[str, float]]()
        sleepers = []
        for index, period in enumerate((0.5, 0.75, 1.0, 1.0, 0.5)):
            sleepers.append(Sleeper(clock, log, f"{index}", period))
            clock.rest()
        clock.advance(7.0)
        for sleeper in sleepers:
            sleeper.stop()
        return log

    first = run()
    assert len(first) == 14 + 9 + 7 + 7 + 14
    assert all(run() == first for _ in range(20))
