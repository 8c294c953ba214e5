"""Being told to stop, by SIGTERM or SIGINT, and never missing it.

Python runs its signal handlers on the main thread alone, and the kernel may hand a process's signal
to another: to one that is just being started, for instance. A main thread that waits on a lock then
sleeps on, with the handler due and nothing to wake it; on a busy machine one stop in some dozens
was lost that way. So there is no handler. Every thread holds the signals back, and one waits for
them by name.

The commands that run until they are told to stop use `ending`. A command that ends by itself, and
waits in short steps alone, cannot sleep on for long: `interruptible` gives it a handler.

A program that was told has a grace before it is killed. What it has begun may come to its end for
the first seconds of it; then `Ending.hurry` is called, to end whatever still waits for somebody.

A program that crashes instead leaves no core file: what it held in memory, credentials above all,
is written nowhere.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpustack_delivery.adapters.host import SystemClock

ORDERLY_SECONDS: Final = 5.0
_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_clock: Final = SystemClock()  # whoever kills us counts real seconds


def _nothing() -> None:
    """Do nothing."""


class Ending:
    """The end of a program: what it waits for, and what happens when it comes.

    Attributes:
        come: whether the program was told to stop.
        told: called at once when the program is told to stop, from another thread; set it early.
        hurry: called some seconds later, if the program has not ended by then.
    """

    def __init__(self) -> None:
        self.told: Callable[[], None] = _nothing
        self.hurry: Callable[[], None] = _nothing
        self._changed = threading.Condition()
        self.come = self._over = False
        self._thread = threading.Thread(target=self._listen, name="ending", daemon=True)

    def start(self) -> None:
        """Listen for the signals, which every thread holds back."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until the program is told to stop."""
        with self._changed:
            while not self.come:
                _clock.wait(self._changed, None)

    def close(self) -> None:
        """Listen no more: the program has ended."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            if not self.come:  # then it still listens, and cannot end before this block does
                signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)
        self._thread.join()

    def _listen(self) -> None:
        signal.sigwait(_SIGNALS)
        with self._changed:
            if self._over:
                return
            self.come = True
            self._changed.notify_all()
        self.told()
        deadline = _clock.monotonic() + ORDERLY_SECONDS
        with self._changed:
            while not self._over and (left := deadline - _clock.monotonic()) > 0:
                _clock.wait(self._changed, left)
            if self._over:
                return
        self.hurry()


@contextmanager
def ending() -> Iterator[Ending]:
    """Hold the signals back in this thread and in all that it starts; yield the end to wait for.

    More of them meanwhile change nothing. A crash meanwhile leaves no core file.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    core, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    end = Ending()
    end.start()
    try:
        yield end
    finally:
        end.close()
        while signal.sigtimedwait(_SIGNALS, 0):
            pass
        resource.setrlimit(resource.RLIMIT_CORE, (core, most))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt the main thread as Ctrl-C does, by a KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
