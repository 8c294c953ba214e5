"""Broken mounts and references: each breaks one seam, in the way its name says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from emulator.chart import render
from gpustack_delivery import embedded
from gpustack_delivery.decisions import authorization
from gpustack_delivery.errors import HostFault, Refused
from gpustack_delivery.node import mounting, trees
from gpustack_delivery.node.mounting import Mounting
from gpustack_delivery.node.partials import Partials
from gpustack_delivery.node.references import References, _read
from tests.mutants.seams import Around, Patch, breaks, change_world, idle


@breaks("NS-MNT-05")
def mounts_writable(patch: Patch) -> None:
    """Bind without a thought for read-only."""

    def changed(mounts: Any) -> Any:
        def bind(source: Path, target: Path) -> None:
            mounts.bind(source, target, read_only=False)

        return Around(mounts, bind_read_only=bind)

    change_world(patch, mounts=changed)


@breaks("NS-REF-07")
def stacks_mounts(patch: Patch) -> None:
    """Bind at every publish, whatever is mounted there."""
    mount = mounting.Mounting._mount

    def mounted(self: Any, *args: Any) -> None:
        self._clear = idle
        try:
            mount(self, *args)
        finally:
            del self._clear

    patch.setattr(mounting.Mounting, "_mount", mounted)
    patch.setattr(mounting.Mounting, "_shows", lambda *_: False)


@breaks("NS-MNT-03")
def serves_its_own_pods_alone(patch: Patch) -> None:
    """Refuse a Pod that the worker has not rendered."""
    judge = authorization.judge

    def judged(request: Any, *rest: Any) -> Any:
        if not request.pod_name.startswith("gpustack-"):
            raise Refused("the Pod must be one of the operator's")
        return judge(request, *rest)

    patch.setattr(mounting, "judge", judged)


@breaks("NS-MNT-04")
def lets_kubelet_change_the_owner(patch: Patch) -> None:
    """Register a driver whose volumes follow a Pod's fsGroup."""

    def rendered(*given: Any, **more: Any) -> Any:
        objects = render(*given, **more)
        for found in objects:
            if found["kind"] == "CSIDriver":
                found["spec"]["fsGroupPolicy"] = "File"
        return objects

    patch.setattr(embedded, "render", rendered)


@breaks("NS-REF-01")
def forgets_a_digest_with_its_first_target(patch: Patch) -> None:
    """Take the first unmount of a digest for the last."""
    drop = References.drop

    def dropped(self: Any, target: str) -> Any:
        gone = drop(self, target)
        others = [r.target for r in self._by_target.values() if gone and r.digest == gone.digest]
        for other in others:
            drop(self, other)
        return gone

    patch.setattr(References, "drop", dropped)


@breaks("NS-REF-02")
def records_after_the_bind(patch: Patch) -> None:
    """Hold no tree while it is being mounted, and name it only when it is."""

    @contextmanager
    def look(self: Any, digest: str) -> Iterator[Path | None]:
        yield self._sound_tree(digest)

    made = Mounting.__init__

    def late(self: Any, around: Any, *rest: Any) -> None:
        references = around.store.references
        waiting: list[Any] = []

        def bind(tree: Path, target: Path) -> None:
            around.mounts.bind_read_only(tree, target)
            references.record(waiting.pop())

        store = Around(around.store, references=Around(references, record=waiting.append))
        mounts = Around(around.mounts, bind_read_only=bind)
        made(self, replace(around, store=store, mounts=mounts), *rest)

    patch.setattr(trees.Trees, "hold", look)
    patch.setattr(Mounting, "__init__", late)


@breaks("NS-REF-03")
def mounts_without_a_record(patch: Patch) -> None:
    """Mount although nobody will know of it after a restart."""
    record = References.record

    def recorded(self: Any, reference: Any) -> None:
        with suppress(HostFault):
            record(self, reference)

    patch.setattr(References, "record", recorded)


@breaks("NS-REF-04")
def unmounts_only_what_it_mounted(patch: Patch) -> None:
    """Fail for a target without a reference."""
    unpublish = Mounting.unpublish

    def unpublished(self: Any, volume_id: str, target: str) -> None:
        if target not in self._around.store.references._by_target:
            raise HostFault("the volume is not mounted")
        unpublish(self, volume_id, target)

    patch.setattr(Mounting, "unpublish", unpublished)


@breaks("NS-REF-05")
def believes_its_records(patch: Patch) -> None:
    """Rebuild the references from what was written down, whatever is mounted."""

    def rebuilt(self: Any, _table: Any) -> frozenset[str]:
        found = (_read(path) for path in self._root.references.glob("*.json"))
        self._by_target = {each.target: each for each in found if each}
        self._rebuilt = True
        return frozenset()

    patch.setattr(References, "rebuild", rebuilt)


@breaks("NS-REF-06")
def keeps_what_no_attempt_owns(patch: Patch) -> None:
    """Leave every partial directory where it lies."""
    patch.setattr(Partials, "discard_orphans", idle)


@breaks("NS-REF-06")
def clears_every_partial_at_the_start(patch: Patch) -> None:
    """Take what was interrupted for what nobody owns."""
    discard = Partials.discard_orphans
    patch.setattr(Partials, "discard_orphans", lambda self, _: discard(self, frozenset()))
