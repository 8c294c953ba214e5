"""One thread that hears every change and lets the controllers act on it, in order.

The controllers are plain objects that note what a change concerns, and look at it later. All of
them run on this thread, so they need no locks and what they do happens in one order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from emulator.controllers.worklist import Worklist
from emulator.objects import Change
from emulator.state import State

RETRY_SECONDS = 5.0
_PATIENCE = 1024  # changes that may wait unheard until one comes that a controller acts on


class Controller(Protocol):
    """Reacts to changes."""

    @property
    def work(self) -> Worklist:
        """Return what is to be looked at."""

    def hear(self, change: Change) -> None:
        """Note a change; called in order, for every change there is."""

    def look(self, key: str) -> None:
        """Do what one key of the work calls for. Raises ApiError, which puts it off."""


class Loop:
    """The thread. `start` it once; `close` it to end it."""

    def __init__(self, state: State, controllers: Sequence[Controller]) -> None:
        self._state = state
        self._controllers = controllers
        self._wake = threading.Condition()
        self._changes: deque[Change] = deque()
        self._due = False  # a change waits that a controller acts on
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="emulator-controllers", daemon=True)
        state.store.taps.append(self._tap)

    def start(self) -> None:
        """Begin to act."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current round."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def idle(self) -> bool:
        """Say whether every change that calls for something has been acted on."""
        with self._wake:
            return not self._due and not self._busy

    def settle(self) -> None:
        """Wait until every change so far, and what came of it, has been acted on."""
        with self._wake:
            while (self._due or self._busy) and not self._closed:
                self._state.clock.wait(self._wake, None)

    def _tap(self, change: Change) -> None:
        with self._wake:
            self._changes.append(change)
            if not self._due and (_matters(change) or len(self._changes) > _PATIENCE):
                self._due = True
                self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._await_work()
                if self._closed:
                    return
                batch = list(self._changes)
                self._changes.clear()
                self._due, self._busy = False, True
            for controller in self._controllers:
                for change in batch:
                    controller.hear(change)
            for controller in self._controllers:
                controller.work.drain(controller.look)
            with self._wake:
                self._busy = False
                self._wake.notify_all()

    def _await_work(self) -> None:
        """Wait for a change that matters, or until what was refused may be tried again."""
        refused = [one.work for one in self._controllers if one.work.refused]
        deadline = self._state.clock.monotonic() + RETRY_SECONDS
        while not self._due and not self._closed:
            left = deadline - self._state.clock.monotonic() if refused else None
            if left is not None and left <= 0:
                break
            self._state.clock.wait(self._wake, left)
        for work in refused:
            work.revive()


def _matters(change: Change) -> bool:
    """Say whether a change can call for something: an end, or an owner."""
    metadata = change.object["metadata"]
    return (
        change.type == "DELETED" or "deletionTimestamp" in metadata or "ownerReferences" in metadata
    )
