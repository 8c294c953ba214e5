"""What a collection may remove, and in which order.

The order is oldest use first. A tree is a candidate when no Pod references it, it is not pinned,
nothing downloads it, and it has been unreferenced for ten minutes. Partial downloads and failure
records go by age alone, whatever the usage is. How much to remove is no question of this room: the
collector removes one candidate at a time and measures again.

Rules: NS-GC-02..07.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final

GRACE_SECONDS: Final = 600.0
STALE_SECONDS: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A published tree: its size by its marker; its last use, or its publication if never used."""

    digest: str
    size_bytes: int
    last_used: float


@dataclass(frozen=True, slots=True)
class Partial:
    """The unfinished download of a digest, and when a mount last asked for it."""

    digest: str
    last_asked: float


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """A digest that failed, and when it failed last."""

    digest: str
    failed_at: float


def choose_trees(
    trees: Iterable[StoredTree],
    *,
    referenced: Set[str],
    pinned: Set[str],
    downloading: Set[str],
    now: float,
) -> tuple[StoredTree, ...]:
    """Return the trees that may go, oldest use first, equals by digest."""
    kept = referenced | pinned | downloading
    candidates = (
        tree
        for tree in trees
        if tree.digest not in kept and _age(tree.last_used, now) >= GRACE_SECONDS
    )
    return tuple(sorted(candidates, key=lambda tree: (tree.last_used, tree.digest)))


def choose_partials(
    partials: Iterable[Partial], *, downloading: Set[str], now: float
) -> tuple[str, ...]:
    """Return the digests whose partial no attempt writes and no mount has asked for in 24 hours."""
    return tuple(
        partial.digest
        for partial in partials
        if partial.digest not in downloading and _age(partial.last_asked, now) >= STALE_SECONDS
    )


def choose_failures(
    failures: Iterable[FailureRecord], *, present: Set[str], now: float
) -> tuple[str, ...]:
    """Return the digests whose failure record goes, 24 hours after the last failure.

    `present` names every digest that is published, partly on disk or being materialized: those keep
    theirs.
    """
    return tuple(
        failure.digest
        for failure in failures
        if failure.digest not in present and _age(failure.failed_at, now) >= STALE_SECONDS
    )


def _age(noted: float, now: float) -> float:
    """Return how long ago something was noted.

    A time ahead of the clock was written before the clock was set back. Nobody knows how long ago
    that was, and it must not keep anything until its date: how far ahead it lies is as good an age
    as any.
    """
    return abs(now - noted)
