"""One thread that hears every change and lets the controllers act on it, in order.

The controllers are plain objects with two questions each: does this change concern you, and what
is to be done. All of them run on this thread, so they need no locks and what they do happens in
one order.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from emulator.errors import ApiError
from emulator.objects import Change
from emulator.state import State

_LOG = logging.getLogger(__name__)


class Controller(Protocol):
    """Reacts to changes."""

    def hear(self, change: Change) -> None:
        """Note a change; called in order, for every change there is."""

    def act(self) -> None:
        """Do everything that what was heard calls for. May raise ApiError, which ends only this
        round.
        """


class Loop:
    """The thread. `start` it once; `close` it to end it."""

    def __init__(self, state: State, controllers: Sequence[Controller]) -> None:
        self._state = state
        self._controllers = controllers
        self._wake = threading.Condition()
        self._changes: deque[Change] = deque()
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
        """Say whether every change so far has been acted on."""
        with self._wake:
            return not self._changes and not self._busy

    def settle(self) -> None:
        """Wait until every change so far, and what came of it, has been acted on."""
        with self._wake:
            while (self._changes or self._busy) and not self._closed:
                self._state.clock.wait(self._wake, None)

    def _tap(self, change: Change) -> None:
        with self._wake:
            self._changes.append(change)
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._changes and not self._closed:
                    self._state.clock.wait(self._wake, None)
                if self._closed:
                    return
                batch = list(self._changes)
                self._changes.clear()
                self._busy = True
            for controller in self._controllers:
                for change in batch:
                    controller.hear(change)
            for controller in self._controllers:
                try:
                    controller.act()
                except ApiError as error:
                    # Refused, as by a webhook: it is tried again when something changes.
                    _LOG.info("controller=%s refused=%s", type(controller).__name__, error.message)
            with self._wake:
                self._busy = False
                self._wake.notify_all()
