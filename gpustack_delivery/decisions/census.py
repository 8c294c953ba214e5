"""How many nodes hold a digest, in which state, and how far the downloading ones are.

Only numbers come out: they go into an artifact's status, across the border of its namespace.

Rule: AR-RES-07.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpustack_delivery.vocabulary.artifact import NodeCounts
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState

STEP_PERCENT: Final = 5


def count(entries: Iterable[ModelEntry]) -> NodeCounts:
    """Count the nodes' entries of one digest."""
    by_state: dict[ModelState, list[ModelEntry]] = {state: [] for state in ModelState}
    for entry in entries:
        by_state[entry.state].append(entry)
    downloading = by_state[ModelState.DOWNLOADING]
    percent = None
    if downloading:
        mean = sum(_percent(entry) for entry in downloading) / len(downloading)
        percent = int(mean) // STEP_PERCENT * STEP_PERCENT
    return NodeCounts(
        ready=len(by_state[ModelState.READY]),
        downloading=len(downloading),
        failed=len(by_state[ModelState.FAILED]),
        downloading_percent=percent,
    )


def progress_step(entry: ModelEntry) -> tuple[ModelState, int]:
    """Return all of an entry that counts can show: its state, and the last step it passed."""
    downloading = entry.state is ModelState.DOWNLOADING
    return entry.state, int(_percent(entry)) // STEP_PERCENT if downloading else 0


def _percent(entry: ModelEntry) -> float:
    """Return how far a download is; one whose size is not known yet is at its beginning."""
    if not entry.size_bytes:
        return 0.0
    return min(entry.downloaded_bytes * 100 / entry.size_bytes, 100.0)
