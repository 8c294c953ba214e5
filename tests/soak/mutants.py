"""Broken plugins that the soak must notice: each breaks one order that a kill or a cut relies on.

A mutant is broken in the forks of the launcher alone, in the middle of the real plugin. `proving`
leads each one through the life or race that shows its fault, and wants the very invariant that the
fault breaks: a soak that would pass a broken plugin proves nothing about ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gpustack_delivery.adapters.host import KernelDisk, KernelMounts
from gpustack_delivery.node import markers, mounting, references, trees
from gpustack_delivery.node.downloading import keeping, ledger
from tests.soak.steps import Plan

Patch = pytest.MonkeyPatch
_DAWDLE_SECONDS: Final = 0.05
_DAWDLES: Final = 40


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken plugin, and what shows it.

    Args:
        attack: `crash`, `power` or `race`.
        says: a part of what the broken invariant's message says.
        plans: where the plugin dies.
    """

    name: str
    breaks: Callable[[Patch], None]
    attack: str
    says: str
    plans: tuple[Plan, ...] = ()


def _idle(*_: Any, **__: Any) -> None:
    """Do nothing."""


def _seals_after_the_rename(patch: Patch) -> None:
    """Publish first, and make the tree's files and directories durable afterwards."""
    seal = trees.Trees._seal

    def moved_in(self: Any, workspace: Path, marker: Any) -> None:
        target = self._root.published / workspace.parent.name
        if target.exists():
            self._discard(target)
        workspace.rename(target)
        self._disk.sync_directory(target.parent)
        listing = markers.read_listing(target, marker.digest)
        assert listing is not None
        seal(self, target / "tree", listing)
        self._markers[marker.digest] = marker

    patch.setattr(trees.Trees, "_seal", _idle)
    patch.setattr(trees.Trees, "_move_in", moved_in)


def _marker_not_synced(patch: Patch) -> None:
    """Write the marker, and leave it to the page cache."""
    sync_file = KernelDisk.sync_file

    def synced(self: Any, path: Path) -> None:
        if not path.name.startswith("marker"):
            sync_file(self, path)

    patch.setattr(KernelDisk, "sync_file", synced)


def _publication_not_synced(patch: Patch) -> None:
    """Rename the tree to its place, and leave that name to the page cache."""
    sync_directory = KernelDisk.sync_directory

    def synced(self: Any, path: Path) -> None:
        if path.name != "published":
            sync_directory(self, path)

    patch.setattr(KernelDisk, "sync_directory", synced)


def _checkpoint_ahead_of_bytes(patch: Patch) -> None:
    """Note how far a file is before its bytes are on the disk."""
    patch.setattr(keeping.Keeper, "_sync", lambda self, file: True)


def _checkpoints_ignored(patch: Patch) -> None:
    """Begin every file again."""
    patch.setattr(ledger.Ledger, "checkpoint", _idle)


def _reference_after_bind(patch: Patch) -> None:
    """Mount, and write the reference down afterwards."""
    record, bind = references.References.record, KernelMounts.bind_read_only
    late: list[Callable[[], None]] = []

    def bound(self: Any, source: Path, target: Path) -> None:
        bind(self, source, target)
        late.pop()()

    patch.setattr(
        references.References,
        "record",
        lambda self, reference: late.append(lambda: record(self, reference)),
    )
    patch.setattr(KernelMounts, "bind_read_only", bound)


def _reference_dropped_before_unmount(patch: Patch) -> None:
    """Forget the reference, and unmount afterwards."""
    unpublish = mounting.Mounting.unpublish

    def unpublished(self: Any, volume_id: str, target: str) -> None:
        self._around.store.references.drop(target)
        unpublish(self, volume_id, target)

    patch.setattr(mounting.Mounting, "unpublish", unpublished)


def _mounts_without_looking(patch: Patch) -> None:
    """Bind at every call, whatever is at the target already."""
    patch.setattr(mounting.Mounting, "_shows", lambda *_: False)
    patch.setattr(mounting.Mounting, "_clear", _idle)


def _removes_what_was_just_bound(patch: Patch) -> None:
    """Choose a tree to remove, dawdle until somebody mounts it, and do not look again."""
    remove = trees.Trees.remove

    def removed(self: Any, digest: str, *, in_use: Callable[[str], bool]) -> bool:
        for _ in range(_DAWDLES):
            threading.Event().wait(_DAWDLE_SECONDS)
            if in_use(digest):
                threading.Event().wait(_DAWDLE_SECONDS)  # the bind follows the record
                break
        self._held.clear()
        return remove(self, digest, in_use=lambda _: False)

    patch.setattr(trees.Trees, "remove", removed)


def _trash_kept(patch: Patch) -> None:
    """Start without clearing what a removal that was cut had left."""
    patch.setattr(trees.Trees, "empty_trash", _idle)


def _records_believed(patch: Patch) -> None:
    """Take the records for what is mounted, and do not ask the mount table."""

    def rebuilt(self: Any, _: Iterable[Any]) -> frozenset[str]:
        found = [references._read(path) for path in self._root.references.glob("*.json")]
        self._by_target = {reference.target: reference for reference in found if reference}
        self._rebuilt = True
        return frozenset()

    patch.setattr(references.References, "rebuild", rebuilt)


MUTANTS: Final = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "seals-after-the-rename",
            _seals_after_the_rename,
            "power",
            "is not whole",
            (Plan("after fsync published"),),
        ),
        Mutant(
            "marker-not-synced",
            _marker_not_synced,
            "power",
            "not published after it",
            (Plan("before unmount target"),),
        ),
        Mutant(
            "publication-not-synced",
            _publication_not_synced,
            "power",
            "not published after it",
            (Plan("before unmount target"),),
        ),
        Mutant(
            "checkpoint-ahead-of-bytes",
            _checkpoint_ahead_of_bytes,
            "power",
            "is not whole",
            (Plan("after replace partial/H/N/state/X.json", 3),),
        ),
        Mutant(
            "checkpoints-ignored",
            _checkpoints_ignored,
            "crash",
            "bytes where",
            (Plan("after replace partial/H/N/state/X.json", 3),),
        ),
        Mutant(
            "reference-after-bind",
            _reference_after_bind,
            "crash",
            "without its record",
            (Plan("after bind target"),),
        ),
        Mutant(
            "reference-dropped-before-unmount",
            _reference_dropped_before_unmount,
            "crash",
            "without its record",
            (Plan("before unmount target"),),
        ),
        Mutant(
            "mounts-without-looking",
            _mounts_without_looking,
            "crash",
            "2 mounts at",
            (Plan("after bind target"),),
        ),
        Mutant(
            "records-believed",
            _records_believed,
            "crash",
            "of mounts",
            (Plan("before bind target"),),
        ),
        Mutant(
            "removes-what-was-just-bound",
            _removes_what_was_just_bound,
            "race",
            "is not whole",
        ),
        Mutant(
            "trash-kept",
            _trash_kept,
            "crash",
            "left in the trash",
            (Plan("after rename trash/H"),),
        ),
    )
}
