"""Small worlds for unit tests: a clock that moves when told, an API in memory, mounts and disk as
plain facts.

Each satisfies a Protocol of `gpustack_delivery.ports`. `eventually` is the only place of the unit
tests that looks at real time.
"""

from __future__ import annotations

import copy
import errno
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpustack_delivery.errors import ApiFault, Conflict, Gone, HostFault, NotFound
from gpustack_delivery.ports import Change, Mount, Page, Selection, Usage
from gpustack_delivery.vocabulary.resources import Json, Resource

DEADLINE_SECONDS = 20.0


def eventually(condition: Callable[[], object], what: object = "the condition") -> None:
    """Wait until a condition holds; fail with its name, or what a name is called for, if not."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        late = time.monotonic() >= deadline
        assert not late, f"{what() if callable(what) else what} did not come true"
        threading.Event().wait(0.002)


class ManualClock:
    """Time that stands still until `advance`."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._lock = threading.Lock()
        self._now = start
        self._start = start
        self._waiting: list[threading.Condition] = []

    def now(self) -> float:
        """Return the manual time."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._now - self._start

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait for a notification or an advance."""
        if seconds is not None and seconds <= 0:
            return
        with self._lock:
            self._waiting.append(condition)
        try:
            # The bound only guards the suite against a lost wake-up; callers loop on their
            # predicate.
            condition.wait(0.5)
        finally:
            with self._lock:
                self._waiting.remove(condition)

    def advance(self, seconds: float) -> None:
        """Move time and wake everyone who waits."""
        with self._lock:
            self._now += seconds
            waiting = list(self._waiting)
        for condition in waiting:
            with condition:
                condition.notify_all()


class FakeWatch:
    """One open watch of the fake API."""

    def __init__(self, changes: queue.Queue[Change | ApiFault | None]) -> None:
        self.changes = changes
        self.closed = False

    def __iter__(self) -> Iterator[Change]:
        while (change := self.changes.get()) is not None:
            if isinstance(change, ApiFault):
                raise change
            yield change
            self.changes.task_done()

    @property
    def heard(self) -> bool:
        """Whether the reader is done with every change that was told."""
        return self.changes.unfinished_tasks == 0

    def close(self) -> None:
        """End the iteration."""
        self.closed = True
        self.changes.put(None)


def _selects(selection: Selection, plural: str, namespace: str) -> bool:
    return plural == selection.resource.plural and selection.namespace in ("", namespace)


class FakeKube:
    """An API server in memory: versions, conflicts, pages and watches, and planned trouble."""

    def __init__(self, *, page_size: int = 500) -> None:
        self.lock = threading.RLock()
        self.page_size = page_size
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.watches: list[tuple[Selection, FakeWatch]] = []
        self._told: list[tuple[int, tuple[str, str, str], Change]] = []
        self.writes: list[Json] = []
        self.calls: list[str] = []
        self.trouble: list[ApiFault | None] = []
        self.version = 100

    def within(self, seconds: float) -> FakeKube:
        """Return the same: no answer takes any time."""
        return self

    def put(self, resource: Resource, body: Json) -> Json:
        """Create or replace an object as if another client had, keeping its status and uid."""
        with self.lock:
            metadata = body["metadata"]
            key = (resource.plural, metadata.get("namespace", ""), metadata["name"])
            before = self.objects.get(key)
            stored = copy.deepcopy(body)
            stored["metadata"].setdefault("uid", f"uid-{metadata['name']}")
            stored["metadata"].setdefault("generation", 1)
            self._store(key, stored, "MODIFIED" if before else "ADDED")
            return copy.deepcopy(stored)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete an object as if another client had."""
        with self.lock:
            key = (resource.plural, namespace, name)
            gone = self.objects.pop(key)
            self.version += 1
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._tell(key, "DELETED", gone)

    def break_watches(self, fault: ApiFault | None = None) -> None:
        """End every open watch, or make it fail."""
        with self.lock:
            open_watches, self.watches = self.watches, []
        for _, watch in open_watches:
            watch.changes.put(fault)

    def _store(self, key: tuple[str, str, str], body: Json, kind: str) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = body
        self._tell(key, kind, body)

    def _tell(self, key: tuple[str, str, str], kind: str, body: Json) -> None:
        change = Change(kind, copy.deepcopy(body))
        self._told.append((self.version, key, change))
        for selection, watch in self.watches:
            if _selects(selection, *key[:2]):
                watch.changes.put(copy.deepcopy(change))

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.trouble:
            fault = self.trouble.pop(0)
            if fault is not None:
                raise fault

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return an object."""
        with self.lock:
            self._called(f"get {resource.plural}/{name}")
            try:
                return copy.deepcopy(self.objects[resource.plural, namespace, name])
            except KeyError:
                raise NotFound("not there", code=404) from None

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return a page."""
        with self.lock:
            self._called(f"list {selection.resource.plural}")
            wanted = selection.field_selector.removeprefix("metadata.name=")
            items = [
                copy.deepcopy(body)
                for (plural, space, name), body in sorted(self.objects.items())
                if _selects(selection, plural, space) and wanted in ("", name)
            ]
            start = int(continue_token or 0)
            end = start + self.page_size
            more = str(end) if end < len(items) else ""
            return Page(items[start:end], str(self.version), more)

    def watch(self, selection: Selection, resource_version: str) -> FakeWatch:
        """Open a watch; it begins with what happened since that version."""
        with self.lock:
            self._called(f"watch {selection.resource.plural} {resource_version}")
            watch = FakeWatch(queue.Queue())
            for version, (plural, space, _), change in self._told:
                if version > int(resource_version) and _selects(selection, plural, space):
                    watch.changes.put(copy.deepcopy(change))
            self.watches.append((selection, watch))
            return watch

    def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Create an object."""
        with self.lock:
            self._called(f"create {resource.plural}")
            return self.put(resource, body)

    def update(self, resource: Resource, body: Json, *, subresource: str = "") -> Json:
        """Replace an object or its status; conflicts like the real one."""
        with self.lock:
            metadata = body["metadata"]
            self._called(f"update {resource.plural}/{metadata['name']}")
            key = (resource.plural, metadata.get("namespace", ""), metadata["name"])
            if key not in self.objects:
                raise NotFound("not there", code=404)
            stored = copy.deepcopy(self.objects[key])
            if metadata.get("resourceVersion") != stored["metadata"]["resourceVersion"]:
                raise Conflict("moved on", code=409)
            stored["status"] = copy.deepcopy(body["status"])
            self._store(key, stored, "MODIFIED")
            self.writes.append(copy.deepcopy(stored))
            return copy.deepcopy(stored)

    def apply(
        self, resource: Resource, body: Json, *, field_manager: str, subresource: str = ""
    ) -> Json:
        """Refuse: the node plugin applies nothing."""
        raise NotImplementedError

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Json:
        """Refuse: the node plugin patches nothing."""
        raise NotImplementedError

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object."""
        self.remove(resource, name, namespace)

    def get_raw(self, path: str, *, timeout_seconds: float) -> bytes:
        """Refuse: the node plugin has no such right."""
        raise NotImplementedError


def gone() -> Gone:
    """Return the fault of a version that the server forgot."""
    return Gone("too old", code=410)


class FakeMounts:
    """A mount table in memory, in front of a real directory tree."""

    def __init__(self, device: str = "8:1") -> None:
        self.lock = threading.Lock()
        self.mounts: list[Mount] = []
        self.device = device
        self.fail: str = ""

    def _check(self, call: str) -> None:
        if self.fail == call:
            raise HostFault(f"{call} failed")

    def table(self) -> tuple[Mount, ...]:
        """Return the mounts."""
        self._check("table")
        with self.lock:
            return tuple(self.mounts)

    def bind_read_only(self, source: Path, target: Path) -> None:
        """Bind, as a line of the table."""
        self._check("bind")
        assert source.is_dir()
        assert target.is_dir()
        with self.lock:
            self.mounts.append(Mount(target, str(source), self.device, read_only=True))

    def unmount(self, target: Path) -> None:
        """Take the topmost line of a target."""
        self._check("unmount")
        with self.lock:
            for index in reversed(range(len(self.mounts))):
                if self.mounts[index].target == target:
                    del self.mounts[index]
                    return

    def at(self, target: Path) -> list[Mount]:
        """Return the mounts of one target."""
        return [mount for mount in self.mounts if mount.target == target]


class FakeDisk:
    """A filesystem of a stated size; syncs are recorded in order."""

    def __init__(self, total_bytes: int = 1_000_000, used_bytes: int = 0) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = used_bytes
        self.devices: dict[Path, str] = {}
        self.synced: list[Path] = []
        self.fail_sync: Callable[[Path], bool] = lambda path: False
        self.fail_usage = self.direct_writes = False
        self.measure: Callable[[], int] | None = None

    def usage(self, path: Path) -> Usage:
        """Return the stated usage, plus what `measure` finds."""
        if self.fail_usage:
            raise HostFault("statfs failed")
        more = self.measure() if self.measure else 0
        return Usage(self.total_bytes, self.used_bytes + more)

    def device(self, path: Path) -> str:
        """Return the device of the longest known parent, 8:1 for any other."""
        known = [p for p in self.devices if p == path or p in path.parents]
        return self.devices[max(known, key=lambda p: len(p.parts))] if known else "8:1"

    def sync_file(self, path: Path) -> None:
        """Record the sync."""
        if self.fail_sync(path):
            raise HostFault("sync failed") from OSError(errno.EIO, "failed")
        assert path.is_file()
        self.synced.append(path)

    def sync_directory(self, path: Path) -> None:
        """Record the sync."""
        if self.fail_sync(path):
            raise HostFault("sync failed") from OSError(errno.EIO, "failed")
        assert path.is_dir()
        self.synced.append(path)
