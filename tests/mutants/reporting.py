"""Broken statuses and metrics of nodes: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions import reporting
from gpustack_delivery.node import reporter
from gpustack_delivery.node.metrics import Metrics
from tests.mutants.seams import Patch, breaks


@breaks("NS-RES-15")
def trusts_the_old_status(patch: Patch) -> None:
    """Leave a status alone that says something already."""
    worth_writing = reporting.worth_writing

    def worth(stored: Any, new: Any, **facts: Any) -> bool:
        return not stored.models and worth_writing(stored, new, **facts)

    patch.setattr(reporter, "worth_writing", worth)


@breaks("NS-RES-06")
def tells_usage_exactly(patch: Patch) -> None:
    """Say the usage to the percent."""
    patch.setattr(
        reporter, "used_percent", lambda usage: 100 * usage.used_bytes // usage.total_bytes
    )


@breaks("NS-MET-02")
def counts_downloads_twice(patch: Patch) -> None:
    """Count every received byte twice."""
    received = Metrics.received
    patch.setattr(Metrics, "received", lambda self, source, size: received(self, source, 2 * size))
