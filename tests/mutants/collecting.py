"""Broken collections and capacities: each breaks one seam, in the way its name says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions import capacity, collection
from gpustack_delivery.node import collector, reporter, trees
from gpustack_delivery.node.collector import Collector
from gpustack_delivery.node.configuration import Configuration
from gpustack_delivery.node.ledger import Ledger
from gpustack_delivery.node.reporter import Reporter
from tests.mutants.seams import Around, Patch, breaks, change_world, never


@breaks("NS-GC-03")
def evicts_what_is_mounted(patch: Patch) -> None:
    """Collect without asking who uses a tree."""
    remove = trees.Trees.remove
    _choose(patch, referenced=frozenset())
    patch.setattr(
        trees.Trees, "remove", lambda self, digest, in_use: remove(self, digest, in_use=never)
    )


@breaks("NS-GC-07")
def evicts_what_is_pinned(patch: Patch) -> None:
    """Collect without looking at the pins."""
    _choose(patch, pinned=frozenset())


@breaks("NS-GC-02")
def evicts_the_newest(patch: Patch) -> None:
    """Collect what was used last."""
    choose = collection.choose_trees
    patch.setattr(collector, "choose_trees", lambda *a, **k: tuple(reversed(choose(*a, **k))))


@breaks("NS-GC-06")
def knows_no_grace(patch: Patch) -> None:
    """Collect a tree the moment nobody uses it."""
    patch.setattr(collection, "GRACE_SECONDS", 0.0)


def _choose(patch: Patch, **said: Any) -> None:
    """Let the choice of trees hear something else than the truth."""
    choose = collection.choose_trees
    patch.setattr(
        collector, "choose_trees", lambda trees, **facts: choose(trees, **{**facts, **said})
    )


@breaks("NS-GC-01")
def looks_once_an_hour(patch: Patch) -> None:
    """Let a full disk wait."""
    patch.setattr(reporter, "ROUND_SECONDS", 3600.0)


@breaks("NS-GC-04")
def ages_partials_from_the_first_ask(patch: Patch) -> None:
    """Note when a digest was first asked for, and no later mount."""
    asked = Ledger.asked
    patch.setattr(
        Ledger,
        "asked",
        lambda self, digest, now: asked(self, digest, self.get(digest).asked_at or now),
    )


@breaks("NS-GC-05")
def ages_failures_from_the_first(patch: Patch) -> None:
    """Note when a digest first failed, and no later failure."""
    remember = Ledger.remember

    def remembered(self: Any, digest: str, **changes: Any) -> Any:
        if changes.get("failed_at"):
            changes["failed_at"] = self.get(digest).failed_at or changes["failed_at"]
        return remember(self, digest, **changes)

    patch.setattr(Ledger, "remember", remembered)


@breaks("NS-GC-08")
def removes_what_is_stale_all_the_same(patch: Patch) -> None:
    """Clear old partial downloads whatever the configuration is."""
    collect = Collector._collect

    def collected(self: Any, need_bytes: int) -> Any:
        self._remove_aged()
        return collect(self, need_bytes)

    patch.setattr(Collector, "_collect", collected)


@breaks("NS-GC-09", "NS-RES-22")
def goes_on_by_the_earlier_spec(patch: Patch) -> None:
    """Say that a spec fails its check, and keep the last good one in force."""
    apply, facts = Configuration.apply, Reporter._facts
    faults: dict[int, str] = {}

    def applied(self: Any, spec: Any, bundle_of: Any) -> None:
        before = self._state
        apply(self, spec, bundle_of)
        faults[id(self)] = self._state.fault
        if self._state.fault and before.spec is not None:
            self._state = before

    def told(self: Any, sources: Any, *rest: Any) -> Any:
        return replace(facts(self, sources, *rest), invalid=faults[id(sources.configuration)])

    patch.setattr(Configuration, "apply", applied)
    patch.setattr(Reporter, "_facts", told)


@breaks("NS-GC-10")
def keeps_the_low_watermark(patch: Patch) -> None:
    """Cap the high watermark alone."""
    effective = capacity.effective

    def capped(configured: Any, *rest: Any) -> Any:
        found = effective(configured, *rest)
        low = configured.low_percent
        return replace(found, watermarks=replace(found.watermarks, low_percent=low))

    patch.setattr(capacity, "effective", capped)


@breaks("NS-GC-10")
def forgets_the_filesystem_of_images(patch: Patch) -> None:
    """Leave imagefs.available out of the cap."""
    share = capacity._share

    def shared(name: str, *rest: Any) -> Any:
        return (0, "") if name == "imagefs.available" else share(name, *rest)

    patch.setattr(capacity, "_share", shared)


@breaks("OP-CAP-01")
def counts_what_it_stored_alone(patch: Patch) -> None:
    """Take the cache's own files for the usage of its filesystem."""

    def changed(disk: Any) -> Any:
        def usage(path: Any) -> Any:
            own = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
            return replace(disk.usage(path), used_bytes=own)

        return Around(disk, usage=usage)

    change_world(patch, disk=changed)


@breaks("OP-CAP-02")
def keeps_kubelets_first_thresholds(patch: Patch) -> None:
    """Read kubelet's thresholds once, at the start."""
    effective = capacity.effective
    first: list[Any] = []

    def capped(configured: Any, thresholds: Any, total_bytes: int) -> Any:
        first.append(thresholds)
        return effective(configured, first[0], total_bytes)

    patch.setattr(capacity, "effective", capped)


@breaks("NS-REQ-03")
def assumes_in_silence(patch: Patch) -> None:
    """Assume kubelet's defaults and say nothing of it."""
    cap = capacity._cap
    patch.setattr(
        capacity,
        "_cap",
        lambda thresholds, total_bytes: (cap(thresholds, total_bytes)[0], []),
    )


@breaks("NS-RES-24")
def blames_others_for_a_full_disk(patch: Patch) -> None:
    """Say nothing of a full disk as long as the cache holds a tree."""
    collect = Collector._collect

    def collected(self: Any, need_bytes: int) -> Any:
        found = collect(self, need_bytes)
        full = found.nothing_to_remove and not self._store.trees.markers()
        return replace(found, nothing_to_remove=full)

    patch.setattr(Collector, "_collect", collected)


@breaks("NS-RES-25")
def complains_above_the_low_watermark(patch: Patch) -> None:
    """Take usage between the watermarks for too much."""
    collect = Collector._collect

    def collected(self: Any, need_bytes: int) -> Any:
        found = collect(self, need_bytes)
        if found.skipped:
            return found
        usage = self._usage()
        low = self._configuration.watermarks(usage).watermarks.low_percent
        return replace(found, nothing_to_remove=not capacity.fits(usage, 0, low))

    patch.setattr(Collector, "_collect", collected)
