"""When a process has come to rest, judged from outside its threads.

A thread is at rest when it is not runnable and has burnt no CPU time since the look before. Work
that one thread hands to another, through a socket for instance, shows at any instant: the kernel
marks the receiver runnable before the sender goes on. Only a thread that waits for the
interpreter's lock does not show, and whoever looks lets go of that lock; such a thread then shows
by the CPU time it burns.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.0001
_LONGEST_PAUSE_SECONDS = 0.002
_GROWTH = 1.25
"""How long whoever waits steps aside for the others: longer, the longer they have been at it."""

_NOISE_SECONDS = 0.000005
"""CPU time of other threads that counts as none: what two clocks read in turn may differ by."""

_TASKS = "/proc/self/task"
_STAT_BYTES = 512
_RUNNABLE = frozenset((b"R", b"D"))


def wait_for_rest(
    busy: Callable[[], bool], *, patience_seconds: float, calm_seconds: float = 0.0
) -> bool:
    """Wait, in real time, until nothing is busy and no other thread of the process runs.

    Args:
        busy: what the caller knows to be busy, asked before and after each look at the process.
        calm_seconds: how long all must stay like this.

    Returns:
        Whether it came to that within the caller's patience.
    """
    give_up = time.monotonic() + patience_seconds
    pause = _PAUSE_SECONDS
    burnt = _burnt_by_others()
    while time.monotonic() < give_up:
        if _at_rest(busy, burnt):
            if not calm_seconds:
                return True
            _sleep(calm_seconds)
            if _at_rest(busy, burnt):
                return True
            pause = _PAUSE_SECONDS
        burnt = _burnt_by_others()
        _sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_SECONDS)
    return False


def step_aside() -> None:
    """Let other threads run for a moment of real time."""
    _sleep(_PAUSE_SECONDS)


def _at_rest(busy: Callable[[], bool], burnt: float) -> bool:
    """Say whether nothing is busy, runs or wants to run, nor has since others had burnt so much."""
    return (
        not busy()
        and _burnt_by_others() - burnt < _NOISE_SECONDS
        and not runnable(_TASKS, but=threading.get_native_id())
        and not busy()
        and _burnt_by_others() - burnt < _NOISE_SECONDS
    )


def _burnt_by_others() -> float:
    """Return the CPU seconds that all threads but the caller's have used so far."""
    return time.process_time() - time.thread_time()


def runnable(tasks: str, *, but: int = 0) -> bool:
    """Look in a process's folder of threads for one that runs or wants to, and has another number.

    Without /proc, believe there is none.
    """
    try:
        with os.scandir(tasks) as found:
            others = [task.path for task in found if task.name != str(but)]
    except OSError:
        return False
    return any(_state(task) in _RUNNABLE for task in others)


def _state(task: str) -> bytes:
    """Return the letter of a thread's state."""
    try:
        descriptor = os.open(f"{task}/stat", os.O_RDONLY)
    except OSError:
        return b"X"  # the thread has ended meanwhile
    try:
        line = os.read(descriptor, _STAT_BYTES)
    except OSError:
        return b"X"
    finally:
        os.close(descriptor)
    # The name before the state is in brackets, and may hold any character.
    return line[line.rfind(b")") + 2 :][:1]


def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251 - a moment of real time, on any clock
