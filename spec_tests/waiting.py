"""The one place where the suite waits in real time.

A manual clock stands still while a test looks, but sockets, threads and processes do not: what they
bring about is waited for here, by asking again, and never by sleeping for as long as something is
hoped to take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_SECONDS: Final = 20.0
"""How long anything may take in real time; it has no meaning for conformance."""

_PAUSE_SECONDS: Final = 0.005

Found = TypeVar("Found")


def pause(seconds: float) -> None:
    """Let real time pass, for targets whose clock nobody moves."""
    threading.Event().wait(seconds)


class TooLate(AssertionError):
    """What a test waited for did not come; the message says what there was instead."""


def eventually(
    ask: Callable[[], Found | None],
    what: str,
    *,
    instead: Callable[[], object] = lambda: "nothing",
    patience_seconds: float = PATIENCE_SECONDS,
) -> Found:
    """Ask until the answer is something, neither None nor nothing nor False, and return it.

    Raises:
        TooLate: patience ran out.
    """
    give_up = time.monotonic() + patience_seconds
    pause = threading.Event()
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > give_up:
            raise TooLate(f"{what}: not within {patience_seconds:g} s; there was {instead()}")
        pause.wait(_PAUSE_SECONDS)
