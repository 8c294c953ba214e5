"""The plugin's metrics, in a registry of its own, so that two plugins in one process never share a
number.

No label carries a namespace, an artifact, a repository or a Pod.

Rules: NS-MET-02..08.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gpustack_delivery.errors import Reason
from gpustack_delivery.vocabulary.node_store import ByteSource

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOUNT_RESULTS: Final = ("hit", "materialized", "denied", "pending")
_BUCKETS: Final = tuple(float(2**power) for power in range(16))


class Metrics:
    """What one plugin counts. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        prefix = "gpustack_model_manager"
        self._received = Counter(
            f"{prefix}_download_bytes", "Bytes received.", ["source"], registry=self._registry
        )
        self._mounts = Counter(
            f"{prefix}_mounts", "Mount calls.", ["result"], registry=self._registry
        )
        self._attempts = Counter(
            f"{prefix}_materializations", "Finished attempts.", ["result"], registry=self._registry
        )
        self._published = Histogram(
            f"{prefix}_publish_duration_seconds",
            "From an attempt's start to its publication.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._removed = Counter(
            f"{prefix}_gc_removed_bytes", "Bytes collection removed.", registry=self._registry
        )
        self._stored = Gauge(
            f"{prefix}_stored_bytes", "The cache's bytes.", registry=self._registry
        )
        self._capacity = Gauge(
            f"{prefix}_capacity_bytes", "The filesystem's size.", registry=self._registry
        )
        # Every series is there from the start, at zero: a rate over a missing series is no rate.
        for source in ByteSource:
            self._received.labels(source=source.value.lower())
        for result in MOUNT_RESULTS:
            self._mounts.labels(result=result)
        for outcome in ("published", *(reason.value for reason in Reason)):
            self._attempts.labels(result=outcome)

    def received(self, source: ByteSource, size_bytes: int) -> None:
        """Count bytes that arrived."""
        self._received.labels(source=source.value.lower()).inc(size_bytes)

    def mounted(self, result: str) -> None:
        """Count a mount call by its result, one of `MOUNT_RESULTS`."""
        self._mounts.labels(result=result).inc()

    def published(self, seconds: float) -> None:
        """Count an attempt that published, and how long it took."""
        self._attempts.labels(result="published").inc()
        self._published.observe(seconds)

    def failed(self, reason: Reason) -> None:
        """Count an attempt that ended without publishing."""
        self._attempts.labels(result=reason.value).inc()

    def removed(self, size_bytes: int) -> None:
        """Count what collection removed."""
        self._removed.inc(size_bytes)

    def measured(self, stored_bytes: int, capacity_bytes: int) -> None:
        """Set what the cache holds and what its filesystem could."""
        self._stored.set(stored_bytes)
        self._capacity.set(capacity_bytes)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)
