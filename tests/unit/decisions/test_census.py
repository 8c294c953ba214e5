"""Counting nodes: states, the mean, and its steps."""

from __future__ import annotations

import pytest

from gpustack_delivery.decisions.census import count
from gpustack_delivery.vocabulary.artifact import NodeCounts
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState


def downloading(downloaded: int, size: int = 100) -> ModelEntry:
    """Return a running download."""
    return ModelEntry("d", ModelState.DOWNLOADING, size, downloaded)


def test_states_are_counted() -> None:
    """Each state has its number, and none downloading has no percentage."""
    ready, failed = ModelEntry("d", ModelState.READY), ModelEntry("d", ModelState.FAILED)
    assert count([ready, failed, ready]) == NodeCounts(2, 0, 1, None)
    assert count([]) == NodeCounts()


@pytest.mark.parametrize(
    ("entries", "percent"),
    [
        ([downloading(0)], 0),
        ([downloading(54)], 50),
        ([downloading(55)], 55),
        ([downloading(99), downloading(10)], 50),
        ([downloading(500)], 100),
        ([downloading(7, 0), downloading(100)], 50),
    ],
)
def test_percentage(entries: list[ModelEntry], percent: int) -> None:
    """The mean goes down to a step of five; more than all is all; no size is nothing yet."""
    assert count(entries).downloading_percent == percent
