"""The worker's numbers, as Prometheus reads them. No label names a tenant, an object or a node.

This is the worker's only importer of `prometheus_client`.

Rule: NS-MET-08.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """One worker's numbers; each worker has a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._leader = Gauge(
            "gpustack_worker_leader", "1 while this replica leads.", registry=self._registry
        )
        self._passes = Counter(
            "gpustack_worker_reconciles",
            "Passes over one object, by controller and result.",
            ["controller", "result"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "gpustack_worker_reconcile_duration_seconds",
            "How long a pass takes.",
            ["controller"],
            registry=self._registry,
        )
        self._reviews = Counter(
            "gpustack_worker_admission_reviews",
            "Admission reviews, by resource and result.",
            ["resource", "result"],
            registry=self._registry,
        )

    def reconciled(self, controller: str, seconds: float, *, failed: bool) -> None:
        """Note one pass of a controller."""
        self._passes.labels(controller, "failed" if failed else "done").inc()
        self._seconds.labels(controller).observe(seconds)

    def reviewed(self, resource: str, result: str) -> None:
        """Note one admission review; the result is allowed, denied or failed."""
        self._reviews.labels(resource, result).inc()

    def led(self, *, leading: bool) -> None:
        """Note whether this replica leads."""
        self._leader.set(1 if leading else 0)

    def render(self) -> bytes:
        """Return everything in Prometheus' text form."""
        return generate_latest(self._registry)
