"""watch: events from the collection's changes, bookmarks, the streaming list, and the ends of a
watch.

A watch listens under the store's lock and does no more there than to sort the change into its
own queue; its reader encodes and sends. The encoded line is kept with the change, so a hundred
watches encode it once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from emulator.contracts import Json, ListOptions, Target
from emulator.errors import expired
from emulator.kinds.kind import Kind
from emulator.objects import Change, Collection, Event
from emulator.reads import check_list_options, parsed_version
from emulator.selectors import Selection, selectable_fields, selection
from emulator.state import State, collection_of

DEFAULT_TIMEOUT_SECONDS = 3600.0
BOOKMARK_SECONDS = 60.0
BOOKMARK_BEFORE_END_SECONDS = 2.0
INITIAL_END = "k8s.io/initial-events-end"


class Watch:
    """An open watch: iterate it on one thread, close it from any."""

    def __init__(
        self,
        state: State,
        target: Target,
        options: ListOptions,
        on_close: Callable[[Watch], None] = lambda _: None,
    ) -> None:
        check_list_options(options, watch=True)
        self._state, self._target, self._options = state, target, options
        self._kind = state.kind(target.resource)
        self._selection = selection(self._kind, options.label_selector, options.field_selector)
        self._interest = self._selection.interest
        self._on_close = on_close
        self._wake = threading.Condition()
        self._queue: deque[Event] = deque()
        self._over = False
        self._after = 0
        self._collection: Collection | None = None
        timeout = options.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        self._deadline = state.clock.monotonic() + timeout
        version = parsed_version(options.resource_version, "resourceVersion")
        with state.store.lock:
            self._open(version)

    def _open(self, version: int) -> None:
        """Fill the queue with what is past, and listen for what comes. Holds the store's lock."""
        store = self._state.store
        collection = store.collection(collection_of(self._target.resource))
        if collection is None:
            raise self._state.registry.missing(
                self._target.resource.group, self._target.resource.version
            )
        initial = self._options.send_initial_events
        if initial or (initial is None and not version):
            self._after = store.version
            self._snapshot(collection)
            if initial and self._options.allow_watch_bookmarks:
                self._queue.append(self._bookmark({INITIAL_END: "true"}))
        elif version and version < collection.oldest:
            text = f"too old resource version: {version} ({collection.oldest})"
            self._queue.append(Event("ERROR", expired(text).status))
            self._over = True
            return
        else:
            self._after = version or store.version
            for change in collection.since(self._after):
                self._sort(change)
        self._collection = collection
        collection.listen(self._interest, self._hear)

    def _snapshot(self, collection: Collection) -> None:
        for index in collection.span(self._target.namespace):
            object_ = self._kind.convert(collection.objects[collection.keys[index]])
            if not self._selection or self._selection.matches(object_):
                self._queue.append(Event("ADDED", object_))

    def _hear(self, change: Change | None) -> None:
        """Take a change in; called under the store's lock. None means the collection is gone."""
        with self._wake:
            if change is None:
                self._over = True
            elif change.version > self._after:
                self._sort(change)
            if self._over or self._queue:
                self._wake.notify_all()

    def _sort(self, change: Change) -> None:
        if self._target.namespace and change.namespace != self._target.namespace:
            return
        if not self._selection:
            type_, departed = change.type, False
        else:
            now, before = _selected(self._selection, self._kind, change)
            if not now and not before:
                return
            departed = not now
            type_ = "DELETED" if departed else "MODIFIED" if before else "ADDED"
        key = (type_ + ("!" if departed else ""), self._target.resource.api_version)
        event = change.events.get(key)
        if event is None:
            object_ = self._kind.convert(change.departed() if departed else change.object)
            event = change.events[key] = Event(type_, object_)
        self._queue.append(event)

    def _bookmark(self, annotations: Mapping[str, str]) -> Event:
        resource = self._target.resource
        metadata: Json = {"resourceVersion": str(self._state.store.version)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return Event("BOOKMARK", body)

    def __iter__(self) -> Iterator[Event]:
        """Yield events until the watch times out, is closed, or its resource goes away."""
        clock = self._state.clock
        bookmark_at = self._next_bookmark()
        try:
            while True:
                with self._wake:
                    while not self._queue and not self._over:
                        now = clock.monotonic()
                        if now >= min(self._deadline, bookmark_at):
                            break
                        clock.wait(self._wake, min(self._deadline, bookmark_at) - now)
                    if self._queue:
                        event = self._queue.popleft()
                    elif self._over or clock.monotonic() >= self._deadline:
                        return
                    else:
                        event = None
                if event is None:
                    bookmark_at = self._next_bookmark()
                    event = self._due_bookmark()
                if event is not None:
                    yield event
        finally:
            self.close()

    def _next_bookmark(self) -> float:
        if not self._options.allow_watch_bookmarks:
            return self._deadline
        now = self._state.clock.monotonic()
        last = self._deadline - BOOKMARK_BEFORE_END_SECONDS
        return min(now + BOOKMARK_SECONDS, last if last > now else self._deadline)

    def _due_bookmark(self) -> Event | None:
        """Return a bookmark at the current version, unless a change came in the meantime."""
        with self._state.store.lock, self._wake:
            if self._queue or self._over or not self._speaks():
                return None
            return self._bookmark({})

    def _speaks(self) -> bool:
        """Say whether there are bookmarks of this collection; an old server knows none at rest."""
        if self._state.bookmarks_at_rest:
            return True
        return self._collection is not None and self._collection.moved

    def close(self) -> None:
        """End the watch; safe from any thread, and twice."""
        with self._state.store.lock:
            if self._collection is not None:
                self._collection.unlisten(self._interest, self._hear)
        with self._wake:
            self._over = True
            self._wake.notify_all()
        self._on_close(self)


def _selected(chosen: Selection, kind: Kind, change: Change) -> tuple[bool, bool]:
    """Say whether the state after a change, and the state before it, are selected."""
    api_version = kind.resource.api_version
    fields = change.fields.get(api_version)
    if fields is None:
        before = change.previous and selectable_fields(kind, kind.convert(change.previous))
        fields = (before or None, selectable_fields(kind, kind.convert(change.object)))
        change.fields[api_version] = fields
    now = change.type != "DELETED" and chosen.matches(change.object, fields[1])
    before_matches = change.previous is not None and chosen.matches(change.previous, fields[0])
    return now, before_matches
