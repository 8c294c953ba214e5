"""The plugin's side of its NodeModelStore: it applies the spec and writes the status.

One thread does both, whenever something has changed, every ten seconds while a download runs, and
every five minutes. A round reads the object from a mirror, puts its spec in force, collects,
gathers what is on the disk and what is mounted, and writes the status if that is due. The status is
never made from an earlier one.

The plugin's own writes start no round: only a new generation, a new object or a changed ConfigMap
does. A write that fails is tried again with a growing pause; mounts go on without it.

Rules: NS-RES-04..10, NS-RES-15..25, NS-OWN-11, NS-GC-01, NS-GC-08.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from gpustack_delivery.decisions.capacity import used_percent
from gpustack_delivery.decisions.reporting import Facts, content, worth_writing
from gpustack_delivery.errors import ApiFault, Conflict, HostFault, NotFound, Reason
from gpustack_delivery.mirror import Key, Mirror
from gpustack_delivery.node.attempts import Attempts
from gpustack_delivery.node.collector import FAILED, Collection, Collector, Store
from gpustack_delivery.node.configuration import Configuration
from gpustack_delivery.node.health import Health
from gpustack_delivery.node.ledger import Memory
from gpustack_delivery.node.markers import Marker
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.ports import Clock, Disk, Kube, Mounts, Selection
from gpustack_delivery.vocabulary.node_store import (
    Capacity,
    ModelEntry,
    ModelState,
    NodeModelStore,
    Status,
)
from gpustack_delivery.vocabulary.resources import (
    CONFIG_MAPS,
    NODE_MODEL_STORES,
    Json,
)

ROUND_SECONDS: Final = 300.0
# Ten rounds may follow each other at once and then five a second: what clients of the API hold to.
APART_SECONDS: Final = 0.2
AT_ONCE: Final = 10
DOWNLOADING_SECONDS: Final = 10.0
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 60.0
_CONFLICTS: Final = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a report is made from."""

    store: Store
    health: Health
    collector: Collector
    configuration: Configuration
    attempts: Attempts
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class World:
    """What the plugin needs of the world; see `ports`."""

    clock: Clock
    kube: Kube
    mounts: Mounts
    disk: Disk


class Reporter:
    """Applies the spec of a node's store and writes its status.

    Args:
        node_name: which NodeModelStore is ours.
        namespace: where CA ConfigMaps live.
        world: clock, API, mounts and disk.
    """

    def __init__(self, node_name: str, namespace: str, world: World) -> None:
        self._node_name = node_name
        self._world = world
        own = Selection(NODE_MODEL_STORES, field_selector=f"metadata.name={node_name}")
        self._stores: Mirror[Json] = Mirror(world.kube, world.clock, own, _own)
        self._bundles: Mirror[dict[str, str]] = Mirror(
            world.kube, world.clock, Selection(CONFIG_MAPS, namespace), _data_of
        )
        self._namespace = namespace
        self._stores.subscribe(self._store_changed)
        self._bundles.subscribe(lambda key, old, new: self.changed())
        self._stores.when_synced(self.changed)
        self._bundles.when_synced(self.changed)
        self._condition = threading.Condition()
        self._due = True
        self._stopping = False
        self._said_absent_at: float | None = None
        self._capacity = Capacity()
        self._written: Json | None = None
        self._written_at = -inf
        self._next_turn = -inf
        self._sources: Sources | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self, sources: Sources) -> None:
        """Begin to report."""
        self._sources = sources
        self._stores.start()
        self._bundles.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop after the round that runs; safe twice, and before `start`."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._stores.stop()
        self._bundles.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def changed(self) -> None:
        """Make a round soon: something a report would say has changed."""
        with self._condition:
            if not self._due:
                self._due = True
                self._condition.notify_all()

    def _store_changed(self, key: Key, old: Json | None, new: Json | None) -> None:
        if old is None or new is None or _identity(old) != _identity(new):
            self.changed()

    def _run(self) -> None:
        assert self._sources is not None  # noqa: S101 - `start` sets it before the thread exists
        retry = FIRST_RETRY_SECONDS
        while not self._stopping:
            with self._condition:
                self._due = False
            try:
                self._round(self._sources)
                retry, pause = FIRST_RETRY_SECONDS, self._pause_after(self._sources)
            except (ApiFault, HostFault) as fault:
                _log.warning("report failed: %s detail=%s", fault, fault.detail)
                pause, retry = retry, min(2 * retry, LONGEST_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - the last door: a node must not fall silent
                stack = "".join(traceback.format_tb(error.__traceback__))
                _log.error(
                    "report failed by a mistake of ours: %s at\n%s", type(error).__name__, stack
                )
                pause, retry = retry, min(2 * retry, LONGEST_RETRY_SECONDS)
            self._wait(pause)
            self._take_turn()

    def _pause_after(self, sources: Sources) -> float:
        soon = sources.attempts.running() or sources.health.trouble
        return DOWNLOADING_SECONDS if soon else ROUND_SECONDS

    def _wait(self, seconds: float) -> None:
        clock = self._world.clock
        deadline = clock.monotonic() + seconds
        with self._condition:
            while not (self._due or self._stopping) and (left := deadline - clock.monotonic()) > 0:
                clock.wait(self._condition, left)

    def _take_turn(self) -> None:
        """Let changes gather: a hundred mounts in a second are not to be a hundred rounds."""
        clock = self._world.clock
        soonest = clock.monotonic() - AT_ONCE * APART_SECONDS
        self._next_turn = max(self._next_turn, soonest) + APART_SECONDS
        with self._condition:
            while not self._stopping and (left := self._next_turn - clock.monotonic()) > 0:
                clock.wait(self._condition, left)

    def _round(self, sources: Sources) -> None:
        sources.health.look()
        body = self._current()
        if body is None and self._stores.synced:
            self._say_absent()
        if body is not None and self._bundles.synced:
            spec = NodeModelStore.from_wire(body | {"status": {}}).spec
            sources.configuration.apply(spec, self._bundle_of)
            # While the cache fails a removal would too, and say so in every round.
            hindered = sources.health.trouble and sources.store.references.rebuilt
            self._report(sources, body, FAILED if hindered else sources.collector.collect())

    def _say_absent(self) -> None:
        """Say what the plugin waits for: at first that is usual, after a while it is a mistake."""
        now, before = self._world.clock.monotonic(), self._said_absent_at
        if before is not None and now - before < ROUND_SECONDS:
            return  # a change woke the reporter, and the wait is no longer by that
        self._said_absent_at = now
        level = logging.INFO if before is None else logging.WARNING
        _log.log(
            level,
            "no NodeModelStore %s yet, and with it no configuration: the worker makes it for a "
            "Node of that name that has this driver; is --node-name right?",
            self._node_name,
        )

    def _bundle_of(self, name: str) -> dict[str, str] | None:
        return self._bundles.get(name, self._namespace)

    def _current(self) -> Json | None:
        """Return our object as last seen: by the mirror, or in the answer to our own last write."""
        seen, written = self._stores.get(self._node_name), self._written
        if seen is None or written is None:
            return seen
        if _identity(seen)[0] != _identity(written)[0] or _version(seen) >= _version(written):
            return seen
        return written

    def _report(self, sources: Sources, body: Json, collection: Collection) -> None:
        """Write the status if it is due; take the object afresh when somebody else was faster."""
        for _ in range(_CONFLICTS):
            stored = _stored_status(body)
            facts = self._facts(sources, body, collection)
            status = content(facts, stored.conditions, now=self._world.clock.now())
            since = self._world.clock.monotonic() - self._written_at
            if not worth_writing(stored, status, seconds_since_write=since):
                return
            try:
                self._written = self._world.kube.update(
                    NODE_MODEL_STORES, body | {"status": status.to_wire()}, subresource="status"
                )
                self._written_at = self._world.clock.monotonic()
                return
            except Conflict:
                body = self._world.kube.get(NODE_MODEL_STORES, self._node_name)
            except NotFound:
                return  # it was deleted; its successor will be seen
        self.changed()

    def _facts(self, sources: Sources, body: Json, collection: Collection) -> Facts:
        markers, trouble = sources.store.trees.markers(), sources.health.trouble
        cap_note = ""
        try:
            cap_note = self._measure(sources, markers)
        except HostFault:
            if not trouble:
                raise
        return Facts(
            generation=body["metadata"].get("generation", 0),
            capacity=self._capacity,
            models=tuple(_entries(sources, markers)),
            trouble=trouble,
            invalid=sources.configuration.fault,
            cap_note=cap_note,
            skipped=collection.skipped,
            nothing_to_remove=collection.nothing_to_remove,
        )

    def _measure(self, sources: Sources, markers: Iterable[Marker]) -> str:
        """Learn the capacity, which stays where it cannot be measured; return the cap's note."""
        store = sources.store
        usage = self._world.disk.usage(store.root.path)
        stored_bytes = sum(marker.size_bytes for marker in markers)
        stored_bytes += sum(store.partials.sizes().values())
        sources.metrics.measured(stored_bytes, usage.total_bytes)
        self._capacity = Capacity(usage.total_bytes, stored_bytes, used_percent(usage))
        effective = sources.configuration.watermarks(usage)
        return effective.note if effective else ""


def _entries(sources: Sources, markers: Iterable[Marker]) -> Iterator[ModelEntry]:
    """Yield what the node has of each digest: published, else running, else failed."""
    store = sources.store
    memories, referenced = store.ledger.all(), store.references.digests()
    listed = set()
    for marker in markers:
        listed.add(marker.digest)
        yield ModelEntry(
            marker.digest,
            ModelState.READY,
            size_bytes=marker.size_bytes,
            source=marker.source,
            referenced=marker.digest in referenced,
            last_used_time=memories.get(marker.digest, Memory()).used_at,
        )
    for progress in sources.attempts.running():
        if progress.digest not in listed:
            listed.add(progress.digest)
            yield ModelEntry(
                progress.digest,
                ModelState.DOWNLOADING,
                size_bytes=progress.size_bytes or 0,
                downloaded_bytes=progress.downloaded_bytes,
                source=progress.source,
            )
    for digest, memory in memories.items():
        if digest not in listed and memory.reason not in (None, Reason.CANCELED):
            yield ModelEntry(
                digest,
                ModelState.FAILED,
                reason=str(memory.reason),
                message=memory.message,
                retry_time=memory.retry_at,
            )


def _stored_status(body: Json) -> Status:
    """Return the status the API server holds; one that cannot be read is as good as none."""
    try:
        return Status.from_wire(body.get("status") or {})
    except (KeyError, TypeError, ValueError, AttributeError):
        return Status()


def _own(body: Json) -> Json:
    """Check that the spec can be read, and keep the whole object: a write needs all of it."""
    NodeModelStore.from_wire(body | {"status": {}})
    return body


def _data_of(body: Json) -> dict[str, str]:
    return dict(body.get("data") or {})


def _identity(body: Json) -> tuple[str, int]:
    metadata = body["metadata"]
    return metadata.get("uid", ""), metadata.get("generation", 0)


def _version(body: Json) -> int:
    """Return an object's version as a number; 0 for a server whose versions are no numbers."""
    text = body["metadata"].get("resourceVersion", "")
    return int(text) if text.isdecimal() else 0
