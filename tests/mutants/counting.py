"""Broken metrics: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter

from gpustack_delivery.errors import Reason
from gpustack_delivery.node.attempt import Attempt
from gpustack_delivery.node.endpoints import Endpoints
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.node.mounting import Mounting
from tests.mutants.seams import Patch, breaks


@breaks("NS-MET-01")
def names_liveness_otherwise(patch: Patch) -> None:
    """Serve health under another path."""
    made = Endpoints.__init__

    def renamed(self: Any, *given: Any) -> None:
        made(self, *given)
        self._answers["/healthz"] = self._answers.pop("/livez")

    patch.setattr(Endpoints, "__init__", renamed)


@breaks("NS-MET-02")
def counts_downloads_twice(patch: Patch) -> None:
    """Count every received byte twice."""
    received = Metrics.received
    patch.setattr(Metrics, "received", lambda self, source, size: received(self, source, 2 * size))


@breaks("NS-MET-03")
def takes_every_mount_for_a_hit(patch: Patch) -> None:
    """Forget that a mount was told to wait."""
    mounted = Metrics.mounted
    patch.setattr(
        Metrics,
        "mounted",
        lambda self, result: mounted(self, "hit" if result == "materialized" else result),
    )


@breaks("NS-MET-04")
def lumps_failures_together(patch: Patch) -> None:
    """Count every failure under one reason."""
    failed = Metrics.failed
    patch.setattr(Metrics, "failed", lambda self, _reason: failed(self, Reason.SOURCE_UNAVAILABLE))


@breaks("NS-MET-05")
def times_from_the_last_mount(patch: Patch) -> None:
    """Measure from the latest question to the publication."""
    join = Attempt.join

    def joined(self: Any, grant: Any, token: Any, now: float) -> None:
        join(self, grant, token, now)
        self.started = now

    patch.setattr(Attempt, "join", joined)


@breaks("NS-MET-06")
def counts_removals_and_not_bytes(patch: Patch) -> None:
    """Count one for each tree that was removed."""
    removed = Metrics.removed
    patch.setattr(Metrics, "removed", lambda self, _size: removed(self, 1))


@breaks("NS-MET-07")
def measures_once(patch: Patch) -> None:
    """Keep the figures of the start."""
    measured = Metrics.measured
    done: set[int] = set()

    def once(self: Any, *figures: int) -> None:
        if id(self) not in done:
            measured(self, *figures)
        done.add(id(self))

    patch.setattr(Metrics, "measured", once)


@breaks("NS-MET-08")
def counts_by_pod(patch: Patch) -> None:
    """Break mount calls down by who made them."""
    publish = Mounting.publish
    counters: dict[int, Counter] = {}

    def published(self: Any, request: Any, token: Any) -> None:
        metrics = self._around.metrics
        if id(metrics) not in counters:
            counters[id(metrics)] = Counter(
                "gpustack_model_manager_calls", "Calls.", ["pod"], registry=metrics._registry
            )
        counters[id(metrics)].labels(pod=request.pod_name).inc()
        publish(self, request, token)

    patch.setattr(Mounting, "publish", published)
