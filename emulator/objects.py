"""The store: what etcd and the watch cache are to a real server.

Every write takes the next version of one counter. A stored object is never changed again;
whoever reads gets the very dict, so reads cost nothing. Writers compare and swap: they say which
dict they started from. Each collection keeps its last changes, out of which watches are served,
older lists are rebuilt, and whose end is the 410.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import msgspec

from emulator.contracts import Json

CollectionKey = tuple[str, str]  # group, plural
HISTORY = 4096


class Event:
    """One event of a watch; one instance serves every watch that sees the same."""

    __slots__ = ("_line", "object", "type")

    def __init__(self, type_: str, object_: Json) -> None:
        self.type = type_
        self.object = object_
        self._line = b""

    def line(self) -> bytes:
        """Return the event as one JSON line; encoded at the first call."""
        if not self._line:
            self._line = encoded_event(self.type, self.object)
        return self._line


class Change:
    """One write as watches see it.

    `object` is the state after it; for DELETED the last state, at the new version. `fields` caches
    the selectable fields of both states by apiVersion, and `events` what watches show of it, so
    that many watches compute and encode once.
    """

    __slots__ = (
        "collection",
        "events",
        "fields",
        "key",
        "namespace",
        "object",
        "previous",
        "type",
        "version",
    )

    def __init__(
        self,
        type_: str,
        collection: CollectionKey,
        key: str,
        version: int,
        states: tuple[Json | None, Json],
    ) -> None:
        self.type = type_
        self.collection = collection
        self.key = key
        self.namespace = key.partition("/")[0]
        self.version = version
        self.previous, self.object = states
        self.fields: dict[str, tuple[Mapping[str, str] | None, Mapping[str, str]]] = {}
        self.events: dict[tuple[str, str], Event] = {}

    def departed(self) -> Json:
        """Return what a watch that loses the object shows: the state before, at this version."""
        if self.type == "DELETED" or self.previous is None:
            return self.object
        return versioned(self.previous, self.version)


Listener = Callable[[Change | None], None]
Interest = tuple[str, str]  # a field that listeners select by, and its value
EVERYTHING: Interest = ("", "")
SELECTED_BY = ("metadata.name", "spec.nodeName")
"""Fields that many watches select by: a kubelet watches the Pods of one node of thousands."""


def _interests(change: Change) -> Iterator[Interest]:
    for field in SELECTED_BY:
        part, name = field.split(".")
        for state in (change.object, change.previous):
            if state is not None:
                yield (field, str((state.get(part) or {}).get(name, "")))


def encoded_event(type_: str, object_: Json) -> bytes:
    """Return one line of a watch stream."""
    return msgspec.json.encode({"type": type_, "object": object_}) + b"\n"


def versioned(object_: Json, version: int) -> Json:
    """Return a shallow copy at another version."""
    return {**object_, "metadata": {**object_["metadata"], "resourceVersion": str(version)}}


class Collection:
    """All objects of one resource, ordered as etcd orders their keys, and their latest changes."""

    def __init__(self, key: CollectionKey, version: int, history: int) -> None:
        self.key = key
        self.oldest = version  # a watch or list from before this version is too old
        self.keys: list[str] = []
        self.objects: dict[str, Json] = {}
        self.changes: deque[Change] = deque()
        self.history = history
        self.moved = False  # whether anything was written since the server began
        self._listeners: dict[Interest, list[Listener]] = {}

    def listen(self, interest: Interest, listener: Listener) -> None:
        """Tell a listener of changes; only of those that its interest meets before or after."""
        self._listeners.setdefault(interest, []).append(listener)

    def unlisten(self, interest: Interest, listener: Listener) -> None:
        """Tell a listener no more; one that is not told is no error."""
        told = self._listeners.get(interest, [])
        if listener in told:
            told.remove(listener)
            if not told:
                del self._listeners[interest]

    @property
    def listener_count(self) -> int:
        """Return how many listen."""
        return sum(map(len, self._listeners.values()))

    def note(self, change: Change) -> None:
        """Keep a change and tell the listeners."""
        self.moved = True
        self.changes.append(change)
        if len(self.changes) > self.history:
            self.oldest = self.changes.popleft().version
        for interest in dict.fromkeys((EVERYTHING, *_interests(change))):
            for listener in tuple(self._listeners.get(interest, ())):
                listener(change)

    def end(self) -> None:
        """Tell every listener that the collection is gone."""
        for told in tuple(self._listeners.values()):
            for listener in tuple(told):
                listener(None)

    def span(self, namespace: str, start: str = "") -> range:
        """Return the index range of a namespace's keys ("" for all), from `start` on."""
        low = bisect_left(self.keys, f"{namespace}/") if namespace else 0
        # "0" is the character after "/".
        high = bisect_left(self.keys, f"{namespace}0") if namespace else len(self.keys)
        return range(max(low, bisect_left(self.keys, start)) if start else low, high)

    def since(self, version: int) -> Iterator[Change]:
        """Yield the kept changes after a version, in order."""
        start = bisect_right(self.changes, version, key=lambda change: change.version)
        for index in range(start, len(self.changes)):
            yield self.changes[index]

    def at(self, version: int) -> dict[str, Json]:
        """Return the objects as they were at a version, by undoing the changes since."""
        objects = dict(self.objects)
        for change in reversed(tuple(self.since(version))):
            if change.previous is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.previous
        return objects


class Store:
    """Collections under one version counter. Thread-safe; listeners must not block."""

    def __init__(self, history: int = HISTORY) -> None:
        self.lock = threading.RLock()
        self.moved = threading.Condition(self.lock)  # notified at each new version
        self.version = 1
        self.taps: list[Callable[[Change], None]] = []  # hear every change, as controllers must
        self._history = history
        self._collections: dict[CollectionKey, Collection] = {}

    def open(self, key: CollectionKey) -> None:
        """Begin a collection; one that is there stays as it is."""
        with self.lock:
            if key not in self._collections:
                self._collections[key] = Collection(key, self.version, self._history)

    def drop(self, key: CollectionKey) -> None:
        """End a collection; its listeners hear None."""
        with self.lock:
            collection = self._collections.pop(key, None)
            if collection is not None:
                collection.end()

    def collection(self, key: CollectionKey) -> Collection | None:
        """Return a collection; hold `lock` while looking into it."""
        return self._collections.get(key)

    def get(self, key: CollectionKey, namespace: str, name: str) -> Json | None:
        """Return a stored object."""
        collection = self._collections.get(key)
        return collection.objects.get(f"{namespace}/{name}") if collection else None

    def all(self, key: CollectionKey, namespace: str = "") -> list[Json]:
        """Return every object of a collection, or of one namespace in it, in order."""
        with self.lock:
            collection = self._collections.get(key)
            if collection is None:
                return []
            return [collection.objects[collection.keys[i]] for i in collection.span(namespace)]

    def put(self, key: CollectionKey, object_: Json, expected: Json | None) -> Json | None:
        """Store an object; return it at its new version, None when another write came first.

        Args:
            key: the collection.
            object_: taken over; only its resourceVersion is set.
            expected: the very dict that is stored now; None when nothing may be.
        """
        metadata = object_["metadata"]
        place = f"{metadata.get('namespace', '')}/{metadata['name']}"
        with self.lock:
            collection = self._collections.get(key)
            if collection is None or collection.objects.get(place) is not expected:
                return None
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            collection.objects[place] = object_
            if expected is None:
                insort(collection.keys, place)
            type_ = "ADDED" if expected is None else "MODIFIED"
            self._publish(collection, Change(type_, key, place, self.version, (expected, object_)))
            return object_

    def remove(self, key: CollectionKey, expected: Json) -> Json | None:
        """Delete an object; return its last state at the new version, None as in `put`."""
        metadata = expected["metadata"]
        place = f"{metadata.get('namespace', '')}/{metadata['name']}"
        with self.lock:
            collection = self._collections.get(key)
            if collection is None or collection.objects.get(place) is not expected:
                return None
            self.version += 1
            del collection.objects[place]
            del collection.keys[bisect_left(collection.keys, place)]
            gone = versioned(expected, self.version)
            self._publish(collection, Change("DELETED", key, place, self.version, (expected, gone)))
            return gone

    def rewrite(self, key: CollectionKey, change: Callable[[Json], Json]) -> None:
        """Show every object of a collection otherwise, at the version it has: nobody wrote."""
        with self.lock:
            collection = self._collections.get(key)
            if collection is not None:
                collection.objects = {
                    place: change(object_) for place, object_ in collection.objects.items()
                }

    def compact(self) -> None:
        """Forget every change: whoever is not up to date gets 410 Expired."""
        with self.lock:
            for collection in self._collections.values():
                collection.changes.clear()
                collection.oldest = self.version

    def begin_anew(self) -> None:
        """Take every collection for one at rest, as a server does that has just started."""
        with self.lock:
            for collection in self._collections.values():
                collection.moved = False

    def _publish(self, collection: Collection, change: Change) -> None:
        collection.note(change)
        for tap in self.taps:
            tap(change)
        self.moved.notify_all()
