"""What has to be asked before something can be judged: all of it at once, and all by one moment.

Whoever asks the webhooks waits for so long and no longer. A look-up that is slow by itself, or
drips, or comes after other slow ones, must not use up that time without a word: the inquiry ends
when its time is over, and says so. Look-ups under way then end by their own patience, on threads
of their own, of which there are only so many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias, TypeVar

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.ports import Clock, Kube

AT_ONCE: Final = 32
_TOO_MUCH: Final = "too much is asked of the Kubernetes API at once"
_LATE: Final = "the Kubernetes API did not answer in time"

Found = TypeVar("Found")
Answer: TypeAlias = Callable[[], Found]
"""Waits for what a look-up finds and returns it, or raises what it raised.

Raises Unreachable when the inquiry's time is over.
"""


class Inquiries:
    """Opens inquiries, which share threads; safe on any number of threads.

    Args:
        kube: what is asked; one that gives silence up soon, so that threads come back.
        at_once: how many look-ups there may be at any moment.
    """

    def __init__(self, kube: Kube, clock: Clock, at_once: int = AT_ONCE) -> None:
        self._kube = kube
        self._clock = clock
        self._changed = threading.Condition()
        self._free = at_once
        self._news = 0

    def open(self, seconds: float) -> Inquiry:
        """Begin an inquiry that is over after so many seconds."""
        return Inquiry(self, self._clock.monotonic() + seconds)

    def until(self, ready: Callable[[], bool], deadline: float, why: str) -> None:
        """Wait until something is ready, which is looked at whenever a look-up ends.

        Raises:
            Unreachable: it was not by the deadline.
        """
        with self._changed:
            self._until(ready, deadline, why)

    def begin(self, look: Callable[[Kube], None], deadline: float) -> None:
        """Run a look-up, which never raises, on a thread of its own as soon as one is free.

        Raises:
            Unreachable: none was by the deadline.
        """
        with self._changed:
            self._until(lambda: self._free > 0, deadline, _TOO_MUCH)
            self._free -= 1

        def run() -> None:
            look(self._kube)
            self._release()

        try:
            threading.Thread(target=run, name="look-up", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            self._release()
            raise Unreachable(_TOO_MUCH) from None

    @property
    def news(self) -> int:
        """How often something was heard of that a verdict may have waited for."""
        return self._news

    def stir(self) -> None:
        """Let whoever waits for news look again."""
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def pause(self, seconds: float, known: int, deadline: float, why: str) -> None:
        """Wait for so long, or for more news than were known.

        Raises:
            Unreachable: the deadline came first.
        """
        over = self._clock.monotonic() + seconds
        with self._changed:
            self._until(
                lambda: self._news != known or self._clock.monotonic() >= over,
                min(over, deadline),
                why,
            )

    def _release(self) -> None:
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def _until(self, ready: Callable[[], bool], deadline: float, why: str) -> None:
        while not ready():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise Unreachable(why)
            self._clock.wait(self._changed, left)


class Inquiry:
    """The look-ups for one verdict."""

    def __init__(self, inquiries: Inquiries, deadline: float) -> None:
        self._inquiries = inquiries
        self._deadline = deadline

    def ask(self, look: Callable[[Kube], Found]) -> Answer[Found]:
        """Begin a look-up."""
        found: list[Answer[Found]] = []

        def run(kube: Kube) -> None:
            try:
                result = look(kube)
            except Exception as error:  # noqa: BLE001 - whoever waits for it hears of it
                found.append(_raising(error))
            else:
                found.append(lambda: result)

        self._inquiries.begin(run, self._deadline)

        def answer() -> Found:
            self._inquiries.until(lambda: bool(found), self._deadline, _LATE)
            return found[0]()

        return answer

    @property
    def news(self) -> int:
        """How much had been heard of by now."""
        return self._inquiries.news

    def pause(self, seconds: float, known: int, why: str) -> None:
        """Wait for news, or so long, before something is asked again.

        Args:
            seconds: the longest wait.
            known: the news there were when it was last asked.
            why: what is said when the time is over.

        Raises:
            Unreachable: the time is over.
        """
        self._inquiries.pause(seconds, known, self._deadline, why)


def _raising(error: Exception) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise error

    return fail
