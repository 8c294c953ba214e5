"""A local copy of one kind, kept by listing it once and watching it from there.

The copy answers at once and never asks the network, which is what a mount call needs. It is
`synced` from its first complete list on, and stays so through every disconnection: an old copy
beats none. A watch that ends is taken up from the last version seen, bookmarks included; a version
that the server has forgotten (410, as an answer or as an event) means listing again, and what
vanished meanwhile is told as a deletion. Failures are retried with a jittered, doubling pause.

Objects are decoded once on entry. One that cannot be decoded is logged and treated as absent, so
that a single odd object never stops the others.
"""

from __future__ import annotations

import logging
import random
import threading
import traceback
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from gpustack_delivery.errors import ApiFault, Gone
from gpustack_delivery.ports import Change, Clock, Page, Selection, Watch
from gpustack_delivery.vocabulary.resources import Json

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0

Key: TypeAlias = tuple[str, str]
"""Namespace and name; the namespace is empty for a cluster-scoped object."""

Record = TypeVar("Record")
Listener: TypeAlias = Callable[[Key, Record | None, Record | None], None]
"""Hears of a change on the mirror's own thread: key, old record, new record.

There is no old one when it was added, no new one when it was deleted. It is quick and never raises.
"""

_log = logging.getLogger(__name__)


class Source(Protocol):
    """The two calls of `ports.Kube` that a mirror makes."""

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return one page of a collection."""

    def watch(self, selection: Selection, resource_version: str) -> Watch:
        """Open a watch with bookmarks."""


class Mirror(Generic[Record]):
    """The copy of one selection, followed from `start` to `stop`; read it from any thread."""

    def __init__(
        self, kube: Source, clock: Clock, selection: Selection, decode: Callable[[Json], Record]
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._selection = selection
        self._decode = decode
        self._changed = threading.Condition()
        self._records: dict[Key, Record] = {}
        self._listeners: list[Listener[Record]] = []
        self._when_synced: list[Callable[[], None]] = []
        self._synced = False
        self._stopping = False
        self._watch: Watch | None = None
        self._version = ""  # touched by the mirror's own thread alone, like the trouble told of
        self._trouble: type[ApiFault] | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"mirror:{selection.resource.plural}", daemon=True
        )

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and wait for the thread; safe twice, and before `start`."""
        with self._changed:
            self._stopping = True
            watch = self._watch
            self._changed.notify_all()
        if watch is not None:
            watch.close()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def synced(self) -> bool:
        """Say whether one complete list was read since `start`."""
        return self._synced

    def get(self, name: str, namespace: str = "") -> Record | None:
        """Return a record, or None."""
        with self._changed:
            return self._records.get((namespace, name))

    def items(self) -> dict[Key, Record]:
        """Return every record by its key."""
        with self._changed:
            return dict(self._records)

    def subscribe(self, listener: Listener[Record]) -> None:
        """Tell a listener of every change from now on; before `start`, of every object."""
        with self._changed:
            self._listeners.append(listener)

    def when_synced(self, call: Callable[[], None]) -> None:
        """Have a function called once, on the mirror's thread, when the first list is complete."""
        with self._changed:
            self._when_synced.append(call)

    def wait_synced(self, seconds: float) -> bool:
        """Wait for the first complete list; False if it did not come in time, or `stop` did."""
        deadline = self._clock.monotonic() + seconds
        with self._changed:
            while not self._synced and not self._stopping:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._changed, left)
            return self._synced

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping:
            fresh, began, wish = not self._version, self._clock.monotonic(), 0.0
            try:
                if fresh:
                    self._list()
                good = self._follow()
            except Gone:
                # Listing again comes at once, unless the server forgets what it has just listed.
                self._version, good = "", not fresh
            except ApiFault as fault:
                self._tell_of(fault)
                good, wish = False, fault.retry_after_seconds
            except Exception as error:  # noqa: BLE001 - the last door: a copy must not grow stale
                stack = "".join(traceback.format_tb(error.__traceback__))
                _log.error(
                    "mirror failed by a mistake of ours: %s at\n%s", type(error).__name__, stack
                )
                self._version, good = "", False
            if good or (not wish and self._clock.monotonic() - began >= LONGEST_PAUSE_SECONDS):
                pause = FIRST_PAUSE_SECONDS
                continue
            # A watch that ended at once waits too: a server that hangs up is not to be hammered.
            self._pause(max(pause, wish))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _tell_of(self, fault: ApiFault) -> None:
        """Log a trouble when it begins: an outage lasts for many tries of many mirrors."""
        level = logging.DEBUG if self._trouble is type(fault) else logging.WARNING
        kind, self._trouble = self._selection.resource.plural, type(fault)
        _log.log(level, "mirror of %s lost: %s (%s)", kind, fault, fault.detail)

    def _list(self) -> None:
        """Read every page, then replace the copy in one step."""
        found: dict[Key, Record] = {}
        token = version = ""
        while True:
            page = self._kube.list_page(self._selection, token)
            for item in page.items:
                record = self._read(item)
                if record is not None:
                    found[_key(item)] = record
            token, version = page.continue_token, page.resource_version
            if not token:
                break
        with self._changed:
            before, self._records = self._records, found
        for key in before.keys() - found.keys():
            self._tell(key, before[key], None)
        for key, record in found.items():
            old = before.get(key)
            if old != record:
                self._tell(key, old, record)
        self._version = version
        with self._changed:
            self._synced = True
            self._changed.notify_all()
            calls, self._when_synced = self._when_synced, []
        for call in calls:
            call()

    def _follow(self) -> bool:
        """Apply a watch's changes until it ends; say whether it brought any."""
        watch = self._kube.watch(self._selection, self._version)
        if self._trouble is not None:
            _log.info("mirror of %s follows again", self._selection.resource.plural)
            self._trouble = None
        with self._changed:
            self._watch = watch
            stopping = self._stopping
        brought = False
        try:
            if not stopping:
                for change in watch:
                    self._apply(change)
                    brought = True
        finally:
            watch.close()
            with self._changed:
                self._watch = None
        return brought

    def _apply(self, change: Change) -> None:
        if change.type != "BOOKMARK":
            key = _key(change.object)
            record = None if change.type == "DELETED" else self._read(change.object)
            with self._changed:
                old = self._records.pop(key, None)
                if record is not None:
                    self._records[key] = record
            if old != record:
                self._tell(key, old, record)
        self._version = change.object["metadata"]["resourceVersion"]

    def _read(self, item: Json) -> Record | None:
        try:
            return self._decode(item)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # The message may quote the object, and the object may hold anything: its kind is
            # enough.
            kind = type(error).__name__
            _log.error("an object of %s cannot be read: %s", self._selection.resource.plural, kind)
            return None

    def _tell(self, key: Key, old: Record | None, new: Record | None) -> None:
        for listener in tuple(self._listeners):
            listener(key, old, new)

    def _pause(self, seconds: float) -> None:
        wait = seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        deadline = self._clock.monotonic() + wait
        with self._changed:
            while not self._stopping and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._changed, left)


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
