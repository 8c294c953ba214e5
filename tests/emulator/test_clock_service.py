"""One manual clock for several processes: moved from either, and met exactly in all."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.clock import ManualClock
from emulator.clock_service import ClockService, RemoteClock

SLEEPER = """
import sys, threading
from pathlib import Path
from emulator.clock_service import RemoteClock

clock = RemoteClock(Path(sys.argv[1]))
period, condition, due = float(sys.argv[2]), threading.Condition(), clock.monotonic()
print("ready", flush=True)
for _ in range(int(sys.argv[3])):
    due += period
    with condition:
        while (left := due - clock.monotonic()) > 0:
            clock.wait(condition, left)
    print(f"{clock.monotonic():.1f}", flush=True)
clock.close()
"""


STOPPED = """
import signal, sys, threading
from pathlib import Path
from emulator.clock_service import RemoteClock

clock = RemoteClock(Path(sys.argv[1]))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
waiter = threading.Thread(target=lambda: print(signal.sigwait([signal.SIGTERM]).name, flush=True))
waiter.start()
print("ready", flush=True)
waiter.join()
clock.close()
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ManualClock, Path]]:
    """Return a clock and the socket that it is served on."""
    clock, path = ManualClock(), tmp_path / "clock"
    service = ClockService(clock, path).start()
    try:
        yield clock, path
    finally:
        service.stop()
    assert not path.exists()


def test_a_follower_meets_its_deadlines_exactly(served: tuple[ManualClock, Path]) -> None:
    """Another process wakes at its own times, between those of this one."""
    clock, path = served
    log: list[float] = []
    condition = threading.Condition()

    def here() -> None:
        for due in (1.5, 3.5):
            with condition:
                while (left := due - clock.monotonic()) > 0:
                    clock.wait(condition, left)
            log.append(clock.monotonic())

    thread = threading.Thread(target=here)
    thread.start()
    command = [sys.executable, "-c", SLEEPER, str(path), "1", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        clock.advance(2.2)
        assert [process.stdout.readline() for _ in range(2)] == ["1.0\n", "2.0\n"]
        assert log == [1.5]
        clock.advance(10)
        assert [process.stdout.readline() for _ in range(2)] == ["3.0\n", "4.0\n"]
    thread.join()
    assert log == [1.5, 3.5]
    assert clock.monotonic() == 12.2


HEARER = """
import sys, threading
from pathlib import Path
from emulator.clock_service import RemoteClock

clock, condition = RemoteClock(Path(sys.argv[1])), threading.Condition()
print("ready", flush=True)
sys.stdin.readline()
sum(range(3_000_000))
due = clock.monotonic() + 1
with condition:
    while (left := due - clock.monotonic()) > 0:
        clock.wait(condition, left)
print(clock.monotonic(), flush=True)
clock.close()
"""


def test_time_waits_for_what_one_process_hands_to_another(served: tuple[ManualClock, Path]) -> None:
    """A process that nobody waits for on the clock works at the time at which it was spoken to."""
    clock, path = served
    condition = threading.Condition()
    command = [sys.executable, "-c", HEARER, str(path)]
    with subprocess.Popen(  # noqa: S603 - ours
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hearer = process.stdin

        def speak() -> None:
            with condition:
                while (left := 1.5 - clock.monotonic()) > 0:
                    clock.wait(condition, left)
            hearer.write("now\n")

        assert process.stdout.readline() == "ready\n"
        thread = threading.Thread(target=speak)
        thread.start()
        clock.advance(100)
        assert process.stdout.readline() == "2.5\n"
        thread.join()


def test_a_follower_may_move_the_time_of_all(served: tuple[ManualClock, Path]) -> None:
    """Time is the same on both sides before and after either moves it."""
    clock, path = served
    clock.advance(5)
    remote = RemoteClock(path)
    try:
        assert (remote.now(), remote.monotonic()) == (clock.now(), 5.0)
        remote.advance(7)
        assert (clock.monotonic(), remote.monotonic()) == (12.0, 12.0)
        with pytest.raises(ValueError, match="a clock does not go back"):
            remote.advance(-1)
    finally:
        remote.close()


def test_a_follower_that_goes_holds_nobody_up(served: tuple[ManualClock, Path]) -> None:
    """After a follower has closed, time moves as if it had never been."""
    clock, path = served
    RemoteClock(path).close()
    clock.advance(3)
    assert clock.monotonic() == 3.0


def test_there_is_nothing_to_follow(tmp_path: Path) -> None:
    """A path without a clock is an error."""
    with pytest.raises(FileNotFoundError):
        RemoteClock(tmp_path / "none")


def test_a_followers_signals_are_its_own(served: tuple[ManualClock, Path]) -> None:
    """A program on the clock that waits for SIGTERM by name hears it, and ends as it means to."""
    command = [sys.executable, "-c", STOPPED, str(served[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "SIGTERM\n"
    assert process.returncode == 0
