"""Room on the disk: reservations of running downloads, and collection when they or the usage need
it.

One lock serialises both, so that two downloads which fit singly and not together are never both
admitted. Usage is measured anew after every removal. When nothing is in force, or when the
references cannot be read, a collection removes nothing at all, because anything might be in use; it
says so instead.

Rules: NS-DL-06, NS-DL-07, NS-DL-08, NS-DL-09, NS-GC-01..09, NS-RES-24, NS-RES-25.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.decisions.capacity import Reservation, fits, outstanding_bytes
from gpustack_delivery.decisions.collection import (
    FailureRecord,
    Partial,
    StoredTree,
    choose_failures,
    choose_partials,
    choose_trees,
)
from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.cache import CacheRoot
from gpustack_delivery.node.configuration import NOT_YET, Configuration
from gpustack_delivery.node.ledger import Ledger, Memory
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.node.partials import Partials
from gpustack_delivery.node.references import References
from gpustack_delivery.node.trees import Trees
from gpustack_delivery.ports import Clock, Disk, Mounts, Usage
from gpustack_delivery.vocabulary.node_store import Watermarks
from gpustack_delivery.vocabulary.quantity import format_binary

INVALID: Final = "the configuration fails its check"
UNREADABLE: Final = "the references on this node cannot be read"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Collection:
    """What a collection found: why it was skipped, "" if it ran, and whether it left too much."""

    skipped: str = ""
    nothing_to_remove: bool = False


FAILED: Final = Collection(skipped="the filesystem failed")


@dataclass(frozen=True, slots=True)
class Store:
    """Everything that lies under the cache root, and what is known of it."""

    root: CacheRoot
    trees: Trees
    partials: Partials
    ledger: Ledger
    references: References


@dataclass(frozen=True, slots=True)
class _Claim:
    size_bytes: int
    written: Callable[[], int]

    def measure(self) -> Reservation:
        """Return the claim as it stands now."""
        return Reservation(self.size_bytes, self.written())


class Collector:
    """Admits downloads and removes what may go. Safe from any thread."""

    def __init__(
        self,
        store: Store,
        configuration: Configuration,
        world: tuple[Clock, Disk, Mounts],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._configuration = configuration
        self._clock, self._disk, self._mounts = world
        self._metrics = metrics
        self._lock = threading.RLock()
        self._claims: dict[str, _Claim] = {}
        self._running: set[str] = set()

    def begin(self, digest: str) -> None:
        """Protect a digest's partial and failure record while an attempt runs."""
        with self._lock:
            self._running.add(digest)

    def end(self, digest: str) -> None:
        """Give back an attempt's protection and its reservation."""
        with self._lock:
            self._running.discard(digest)
            self._claims.pop(digest, None)

    def reserve(self, digest: str, size_bytes: int, written: Callable[[], int]) -> None:
        """Reserve the rest of a download under the high watermark, collecting first if it does not
        fit.

        Args:
            digest: what is downloaded; `end` gives the reservation back.
            size_bytes: what it will hold in the end.
            written: returns what it holds already.

        Raises:
            AttemptFault: `InsufficientCapacity`, or `InvalidRequest` when nothing is in force.
        """
        with self._lock:
            claim = _Claim(size_bytes, written)
            others = self._reserved()
            need = claim.measure().unwritten_bytes
            usage = self._usage()
            effective = self._configuration.watermarks(usage)
            if effective is None:
                raise AttemptFault(Reason.INVALID_REQUEST, self._configuration.fault)
            high = effective.watermarks.high_percent
            possible = need * 100 <= high * usage.total_bytes
            if possible and not fits(usage, need + others, high):
                collection = self._collect(need)
                if collection.skipped:
                    message = f"collection skipped: {collection.skipped}"
                    raise AttemptFault(Reason.INSUFFICIENT_CAPACITY, message)
                usage = self._usage()
            if not fits(usage, need + others, high):
                raise AttemptFault(
                    Reason.INSUFFICIENT_CAPACITY,
                    f"{need} bytes more do not fit under {high}% of {usage.total_bytes} bytes, "
                    f"{usage.used_bytes} of them used and {others} reserved",
                )
            self._claims[digest] = claim

    def collect(self) -> Collection:
        """Remove what is too old, and down to the low watermark if usage is above the high one."""
        with self._lock:
            try:
                return self._collect(0)
            except HostFault as fault:
                _log.error("collection failed: %s detail=%s", fault, fault.detail)
                return FAILED

    def _collect(self, need_bytes: int) -> Collection:
        if trouble := self._configuration.fault:
            return Collection(skipped=trouble if trouble == NOT_YET else INVALID)
        if not self._store.references.rebuilt:
            return Collection(skipped=UNREADABLE)
        try:
            table = self._mounts.table()
        except HostFault as fault:
            _log.error("collection skipped: the mount table cannot be read: %s", fault.detail)
            return Collection(skipped=UNREADABLE)
        shown = {digest for mount in table if (digest := self._store.references.shown_by(mount))}
        self._store.trees.empty_trash(mount.root for mount in table)
        self._remove_aged()
        usage = self._usage()
        effective = self._configuration.watermarks(usage)
        if effective is None:  # the spec was withdrawn in this very moment
            return Collection(skipped=INVALID)
        wanted = need_bytes + self._reserved()
        if need_bytes or not fits(usage, wanted, effective.watermarks.high_percent):
            self._remove_trees(shown, effective.watermarks, wanted)
        full = not fits(self._usage(), 0, effective.watermarks.high_percent)
        return Collection(nothing_to_remove=full)

    def _remove_aged(self) -> None:
        """Remove partial downloads and failure records by age alone."""
        now = self._clock.now()
        store, memories = self._store, self._store.ledger.all()
        partials = (
            Partial(digest, memories.get(digest, Memory()).asked_at or 0.0)
            for digest in store.partials.digests()
        )
        stale = choose_partials(partials, downloading=self._running, now=now)
        sizes = store.partials.sizes() if stale else {}
        for digest in stale:
            _log.info("partial download removed, nobody asked for a day: digest=%s", digest)
            store.partials.discard(digest)
            self._metrics.removed(sizes.get(digest, 0))
        published = {marker.digest for marker in store.trees.markers()}
        present = published | store.partials.digests() | self._running
        records = (
            FailureRecord(digest, memory.failed_at or memory.asked_at or memory.used_at or 0.0)
            for digest, memory in memories.items()
        )
        for digest in choose_failures(records, present=present, now=now):
            store.ledger.forget(digest)

    def _remove_trees(self, shown: set[str], watermarks: Watermarks, wanted_bytes: int) -> None:
        """Remove trees, oldest use first, until usage and want are down to the low watermark."""
        store, spec = self._store, self._configuration.spec
        memories = store.ledger.all()
        trees = (
            StoredTree(
                marker.digest,
                marker.size_bytes,
                memories.get(marker.digest, Memory()).used_at or marker.published_at,
            )
            for marker in store.trees.markers()
        )
        chosen = choose_trees(
            trees,
            referenced=shown | store.references.digests(),
            pinned=frozenset(spec.pinned if spec else ()),
            downloading=self._running,
            now=self._clock.now(),
        )
        for tree in chosen:
            if fits(self._usage(), wanted_bytes, watermarks.low_percent):
                return
            if store.trees.remove(tree.digest, in_use=store.references.names):
                self._metrics.removed(tree.size_bytes)
                store.ledger.forget(tree.digest)
                size = format_binary(tree.size_bytes)
                _log.info("collected: digest=%s size=%s", tree.digest, size)

    def _reserved(self) -> int:
        return outstanding_bytes(claim.measure() for claim in self._claims.values())

    def _usage(self) -> Usage:
        return self._disk.usage(self._store.root.path)
