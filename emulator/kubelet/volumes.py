"""One CSI volume of one Pod: wanted or not, there or not, and who works on the difference.

Each volume has a thread while there is something to do for it. It sets the volume up until that
works or nobody wants it any more, and takes it down until that works. What one failed operation
makes it wait for does not hold back the other. A volume whose last call may or may not have done
something counts as uncertain: it is taken down although it never was reported as published.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from emulator.contracts import Clock, Json
from emulator.kubelet.calls import HungUp
from emulator.kubelet.publishing import After, Place, VolumeFailure
from emulator.kubelet.retries import Retries

_TICK_SECONDS = 0.1
_REPUBLISH_SECONDS = (0.7, 0.9, 62.3, 70.1)
"""After how long a driver that asks for it is called again; the last one repeats."""


class State(Enum):
    """What is known of a volume on the node."""

    ABSENT = "absent"
    UNCERTAIN = "uncertain"
    PUBLISHED = "published"


class Source(Protocol):
    """What a volume comes from."""

    def set_up(self, pod: Json, volume: Json, place: Place, *, mounted: bool) -> None:
        """Make a volume of a Pod ready, also when it is already. Raises VolumeFailure."""

    def tear_down(self, place: Place) -> None:
        """Take a volume away, also when it is not there. Raises VolumeFailure."""

    def republishes(self, volume: Json) -> bool:
        """Say whether the volume is to be made ready again from time to time."""


class Volume:
    """A volume and its thread. `changed` is called, without any lock, when its state has."""

    def __init__(
        self,
        source: Source,
        place: Place,
        clock: Clock,
        changed: Callable[[], None],
        *,
        state: State = State.ABSENT,
    ) -> None:
        """Take charge of a volume; nothing happens before `want` or `release`."""
        self.place = place
        self._source = source
        self._clock = clock
        self._notify = changed
        self._condition = threading.Condition()
        self._state = state
        self._wanted: tuple[Json, Json, Callable[[str], None]] | None = None
        self._retries = Retries(_TICK_SECONDS, clock.monotonic())
        self._republish_at: float | None = None
        self._republished = 0
        self._calling = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> State:
        """Return what is known of the volume."""
        with self._condition:
            return self._state

    @property
    def absent(self) -> bool:
        """Say whether the volume is not there, and no call that could still bring it."""
        with self._condition:
            return self._state is State.ABSENT and not self._calling

    def want(self, pod: Json, volume: Json, failed: Callable[[str], None]) -> None:
        """Have the volume published for a Pod; `failed` hears of each attempt that fails."""
        with self._condition:
            self._wanted = (pod, volume, failed)
            self._work()

    def release(self) -> None:
        """Have the volume taken down."""
        with self._condition:
            self._wanted = None
            self._work()

    def stop(self) -> None:
        """End the thread where it stands, as with a kubelet that ends."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        """Wake the thread, or start one. The condition is held."""
        self._condition.notify_all()
        if self._thread is None and not self._stopped:
            name = f"volume:{self.place.pod_uid}/{self.place.volume}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while operation := self._next():
                self._attempt(operation)
        except HungUp:
            return

    def _next(self) -> str:
        """Wait for the next thing to do; an empty text ends the thread."""
        with self._condition:
            while not self._stopped:
                operation, seconds = self._due()
                if operation and seconds <= 0:
                    self._calling = True
                    return operation
                if not operation:
                    self._thread = None
                    return ""
                self._clock.wait(self._condition, seconds)
            return ""

    def _due(self) -> tuple[str, float]:
        """Return what is to be done, and in how many seconds; nothing to do is an empty text."""
        now = self._clock.monotonic()
        operation = "set up" if self._wanted is not None else "take down"
        wait = self._retries.seconds_left(operation, now)
        if self._wanted is None:
            return ("", 0.0) if self._state is State.ABSENT else (operation, wait)
        if self._state is not State.PUBLISHED:
            return operation, wait
        if self._republish_at is None:
            return "", 0.0
        return operation, max(wait, self._republish_at - now)

    def _attempt(self, operation: str) -> None:
        with self._condition:
            wanted, before = self._wanted, self._state
        failure: VolumeFailure | None = None
        try:
            if operation == "take down":
                self._source.tear_down(self.place)
            elif wanted is not None:
                mounted = before is State.PUBLISHED
                self._source.set_up(wanted[0], wanted[1], self.place, mounted=mounted)
        except VolumeFailure as error:
            failure = error
        if failure is not None and operation == "set up" and wanted is not None:
            wanted[2](str(failure))
        with self._condition:
            self._conclude(operation, failure)
        self._notify()

    def _conclude(self, operation: str, failure: VolumeFailure | None) -> None:
        """Note what an attempt has led to. The condition is held."""
        self._calling = False
        now = self._clock.monotonic()
        if failure is not None:
            self._retries.failed(operation, now)
            if failure.after is After.UNCERTAIN and self._state is State.ABSENT:
                self._state = State.UNCERTAIN
            elif failure.after is After.NOTHING and self._state is State.UNCERTAIN:
                self._state = State.ABSENT
            return
        self._retries.succeeded()
        self._state = State.PUBLISHED if operation == "set up" else State.ABSENT
        self._republish_at = None
        if self._wanted is not None and self._source.republishes(self._wanted[1]):
            gap = _REPUBLISH_SECONDS[min(self._republished, len(_REPUBLISH_SECONDS) - 1)]
            self._republish_at = now + gap
            self._republished += 1
