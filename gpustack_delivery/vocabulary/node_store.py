"""NodeModelStore: one node's effective configuration, and the facts its plugin reports.

The worker writes the spec, except `pinned`, which belongs to the prefetch controller; the plugin on
the node writes the status. Nothing in either names a tenant.

Rules: NS-RES-01 to 11, NS-RES-20, MP-PIN-02.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.conditions import Conditions, read_conditions, write_conditions
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import optional_time, present, write_optional_time

READY: Final = "Ready"
CAPACITY_LOW: Final = "CapacityLow"
CA_BUNDLE_KEY: Final = "ca.crt"
MAX_MODELS: Final = 256


class ModelState(StrEnum):
    """What a node has of a digest."""

    DOWNLOADING = "Downloading"
    READY = "Ready"
    FAILED = "Failed"


class ByteSource(StrEnum):
    """Where a tree's bytes came from, by majority."""

    HUB = "Hub"
    PEER = "Peer"


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Percentages of the cache filesystem's usage: above high, collection brings it down to low."""

    high_percent: int
    low_percent: int

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the watermarks."""
        return cls(wire.get("highPercent", 0), wire.get("lowPercent", 0))

    def to_wire(self) -> Json:
        """Write the watermarks; both are always there."""
        return {"highPercent": self.high_percent, "lowPercent": self.low_percent}


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """How many requests run at once on the node, and how fast; 0 bytes per second is unlimited."""

    concurrency: int
    bytes_per_second: int = 0

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the limits."""
        return cls(wire.get("concurrency", 0), wire.get("bytesPerSecond", 0))

    def to_wire(self) -> Json:
        """Write the limits."""
        return {"concurrency": self.concurrency} | present(
            {"bytesPerSecond": self.bytes_per_second}
        )


@dataclass(frozen=True, slots=True)
class HubAccess:
    """How the node reaches the hubs; an empty text means there is none."""

    hugging_face_endpoint: str
    model_scope_endpoint: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    ca_bundle_config_map: str = ""

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the access."""
        return cls(
            wire.get("huggingFaceEndpoint", ""),
            wire.get("modelScopeEndpoint", ""),
            wire.get("httpsProxy", ""),
            wire.get("noProxy", ""),
            wire.get("caBundleConfigMap", ""),
        )

    def to_wire(self) -> Json:
        """Write the access."""
        optional = {
            "modelScopeEndpoint": self.model_scope_endpoint,
            "httpsProxy": self.https_proxy,
            "noProxy": self.no_proxy,
            "caBundleConfigMap": self.ca_bundle_config_map,
        }
        return {"huggingFaceEndpoint": self.hugging_face_endpoint} | present(optional)


@dataclass(frozen=True, slots=True)
class KubeletThresholds:
    """The node's effective kubelet thresholds; empty or None where kubelet sets none.

    The two availabilities are `N%` or a quantity of bytes.
    """

    nodefs_available: str = ""
    imagefs_available: str = ""
    image_gc_high_percent: int | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the thresholds."""
        return cls(
            wire.get("nodefsAvailable", ""),
            wire.get("imagefsAvailable", ""),
            wire.get("imageGCHighThresholdPercent"),
        )

    def to_wire(self) -> Json:
        """Write the thresholds; an image threshold of 0 is a value."""
        percent = self.image_gc_high_percent
        available = {
            "nodefsAvailable": self.nodefs_available,
            "imagefsAvailable": self.imagefs_available,
        }
        return present(available) | (
            {} if percent is None else {"imageGCHighThresholdPercent": percent}
        )


@dataclass(frozen=True, slots=True)
class Spec:
    """A node's effective configuration.

    `kubelet` is None for a node whose kubelet was never read. `peer_sync_enabled` is None where
    nobody decided, which means on. `store` names the ModelStore that won the node. `pinned` has its
    own writer.
    """

    watermarks: Watermarks
    download: DownloadLimits
    hub: HubAccess
    kubelet: KubeletThresholds | None = None
    store: str = ""
    peer_sync_enabled: bool | None = None
    pinned: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a spec."""
        kubelet = wire.get("kubelet")
        return cls(
            watermarks=Watermarks.from_wire(wire.get("watermarks") or {}),
            download=DownloadLimits.from_wire(wire.get("download") or {}),
            hub=HubAccess.from_wire(wire.get("hub") or {}),
            kubelet=None if kubelet is None else KubeletThresholds.from_wire(kubelet),
            store=wire.get("store", ""),
            peer_sync_enabled=wire.get("peerSyncEnabled"),
            pinned=tuple(wire.get("pinned") or ()),
        )

    def to_wire(self) -> Json:
        """Write a spec."""
        fields: Json = {
            "watermarks": self.watermarks.to_wire(),
            "download": self.download.to_wire(),
            "hub": self.hub.to_wire(),
        }
        if self.kubelet is not None:
            fields["kubelet"] = self.kubelet.to_wire()
        if self.peer_sync_enabled is not None:
            fields["peerSyncEnabled"] = self.peer_sync_enabled
        return fields | present({"store": self.store, "pinned": list(self.pinned)})


@dataclass(frozen=True, slots=True)
class Capacity:
    """The filesystem's size, the cache's bytes in it, and its usage in steps of 5 percent."""

    total_bytes: int = 0
    stored_bytes: int = 0
    used_percent: int = 0

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the capacity."""
        return cls(
            wire.get("totalBytes", 0), wire.get("storedBytes", 0), wire.get("usedPercent", 0)
        )

    def to_wire(self) -> Json:
        """Write the capacity; all three are always there."""
        return {
            "totalBytes": self.total_bytes,
            "storedBytes": self.stored_bytes,
            "usedPercent": self.used_percent,
        }


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What the node has of one digest.

    `downloaded_bytes` belongs to Downloading; `reason`, `message` and `retry_time` to Failed.
    `last_used_time` is cut to the hour, `retry_time` to the second. `source` is None on trees older
    than the field.
    """

    digest: str
    state: ModelState
    size_bytes: int = 0
    downloaded_bytes: int = 0
    source: ByteSource | None = None
    referenced: bool = False
    last_used_time: float | None = None
    reason: str = ""
    message: str = ""
    retry_time: float | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read an entry."""
        source = wire.get("source")
        return cls(
            digest=wire["digest"],
            state=ModelState(wire["state"]),
            size_bytes=wire.get("sizeBytes", 0),
            downloaded_bytes=wire.get("downloadedBytes", 0),
            source=ByteSource(source) if source else None,
            referenced=wire.get("referenced", False),
            last_used_time=optional_time(wire.get("lastUsedTime")),
            reason=wire.get("reason", ""),
            message=wire.get("message", ""),
            retry_time=optional_time(wire.get("retryTime")),
        )

    def to_wire(self) -> Json:
        """Write an entry."""
        optional = {
            "sizeBytes": self.size_bytes,
            "downloadedBytes": self.downloaded_bytes,
            "source": self.source,
            "referenced": self.referenced,
            "lastUsedTime": write_optional_time(self.last_used_time),
            "reason": self.reason,
            "message": self.message,
            "retryTime": write_optional_time(self.retry_time),
        }
        return {"digest": self.digest, "state": self.state} | present(optional)


@dataclass(frozen=True, slots=True)
class Status:
    """The plugin's facts. The plugin replaces it whole, from its disk and mounts."""

    observed_generation: int = 0
    capacity: Capacity = Capacity()
    models: tuple[ModelEntry, ...] = ()
    conditions: Conditions = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a status."""
        return cls(
            observed_generation=wire.get("observedGeneration", 0),
            capacity=Capacity.from_wire(wire.get("capacity") or {}),
            models=tuple(ModelEntry.from_wire(entry) for entry in wire.get("models") or ()),
            conditions=read_conditions(wire),
        )

    def to_wire(self) -> Json:
        """Write a status."""
        fields: Json = {"capacity": self.capacity.to_wire()}
        return fields | present(
            {
                "observedGeneration": self.observed_generation,
                "models": [entry.to_wire() for entry in self.models],
                "conditions": write_conditions(self.conditions),
            }
        )


@dataclass(frozen=True, slots=True)
class NodeModelStore:
    """A NodeModelStore as the API server holds it."""

    metadata: Metadata
    spec: Spec
    status: Status = field(default_factory=Status)

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        return cls(
            Metadata.from_wire(body),
            Spec.from_wire(body.get("spec") or {}),
            Status.from_wire(body.get("status") or {}),
        )
