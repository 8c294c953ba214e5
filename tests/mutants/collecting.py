"""Broken collections: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions import collection
from gpustack_delivery.node import collector, trees
from tests.mutants.seams import Patch, breaks, never


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
