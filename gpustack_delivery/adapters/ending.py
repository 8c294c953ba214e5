"""Being told to stop, by SIGTERM or SIGINT, and never missing it.

Python runs its signal handlers on the main thread alone, and the kernel may hand a process's signal
to another: to one that is just being started, for instance. A main thread that waits on a lock then
sleeps on, with the handler due and nothing to wake it; on a busy machine one stop in some dozens
was lost that way. So there is no handler. Every thread holds the signals back, and one waits for
them by name.

The commands that run until they are told to stop use `ending`. A command that ends by itself, and
waits in short steps alone, cannot sleep on for long: `interruptible` gives it a handler.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


@contextmanager
def ending() -> Iterator[Callable[[], None]]:
    """Hold the signals back in this thread and in all that it starts; yield the wait for one.

    More of them meanwhile change nothing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield _wait
    finally:
        while signal.sigtimedwait(_SIGNALS, 0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait() -> None:
    signal.sigwait(_SIGNALS)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt the main thread as Ctrl-C does, by a KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
