"""ModelStore and ModelStoreBinding: a pool's cache policy, and what a namespace may take of it.

Both belong to the administrator; the worker writes their status.

Rules: MP-RES-01 to 07, MP-BUD-03, MP-BUD-04.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.conditions import Conditions, read_conditions, write_conditions
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.node_store import Watermarks
from gpustack_delivery.vocabulary.quantity import format_binary, parse_bytes
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.selector import Selector
from gpustack_delivery.vocabulary.wire import overlay, present

READY: Final = "Ready"
SELECTOR_OVERLAP: Final = "SelectorOverlap"
OVER_QUOTA: Final = "OverQuota"


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A pool's overrides, field by field; None keeps the cluster default.

    `bytes_per_second` 0 is an override too: unlimited on this pool.
    """

    node_selector: Selector
    watermarks: Watermarks | None = None
    concurrency: int | None = None
    bytes_per_second: int | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a spec."""
        watermarks = wire.get("watermarks")
        download = wire.get("download") or {}
        return cls(
            Selector.from_wire(wire.get("nodeSelector") or {}),
            None if watermarks is None else Watermarks.from_wire(watermarks),
            download.get("concurrency"),
            download.get("bytesPerSecond"),
        )

    def to_wire(self) -> Json:
        """Write a spec."""
        stated = {"concurrency": self.concurrency, "bytesPerSecond": self.bytes_per_second}
        optional = {
            "watermarks": self.watermarks.to_wire() if self.watermarks else None,
            "download": {key: value for key, value in stated.items() if value is not None},
        }
        return {"nodeSelector": self.node_selector.to_wire()} | present(optional)


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How many nodes the pool has and what their caches hold; None until a node reported."""

    nodes: int = 0
    total_bytes: int | None = None
    stored_bytes: int | None = None
    conditions: Conditions = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a status."""
        capacity = wire.get("capacity") or {}
        return cls(
            wire.get("nodes", 0),
            capacity.get("totalBytes"),
            capacity.get("storedBytes"),
            read_conditions(wire),
        )

    def to_wire(self, stored: Mapping[str, Any] | None = None) -> Json:
        """Write a status over the stored one."""
        capacity = (
            None
            if self.total_bytes is None
            else {"totalBytes": self.total_bytes, "storedBytes": self.stored_bytes or 0}
        )
        fields = {
            "nodes": self.nodes,
            "capacity": capacity,
            "conditions": write_conditions(self.conditions),
        }
        return overlay(stored or {}, fields)


@dataclass(frozen=True, slots=True)
class ModelStore:
    """A ModelStore as the API server holds it."""

    metadata: Metadata
    spec: StoreSpec
    status: StoreStatus = field(default_factory=StoreStatus)

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        return cls(
            Metadata.from_wire(body),
            StoreSpec.from_wire(body.get("spec") or {}),
            StoreStatus.from_wire(body.get("status") or {}),
        )


class BindingPhase(StrEnum):
    """A binding in one word."""

    READY = "Ready"
    OVER_QUOTA = "OverQuota"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class BindingSpec:
    """The grant: the stores it covers, its budget in bytes, and the right to pin."""

    store_names: tuple[str, ...]
    quota_bytes: int
    allow_pinned: bool = False

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a spec.

        Raises:
            ValueError: the quota is no quantity.
        """
        return cls(
            tuple(ref.get("name", "") for ref in wire.get("storeRefs") or ()),
            parse_bytes((wire.get("quota") or {}).get("bytes", 0)),
            bool(wire.get("allowPinned")),
        )

    def to_wire(self) -> Json:
        """Write a spec."""
        return {
            "storeRefs": [{"name": name} for name in self.store_names],
            "quota": {"bytes": format_binary(self.quota_bytes)},
        } | present({"allowPinned": self.allow_pinned})


@dataclass(frozen=True, slots=True)
class BindingStatus:
    """The measured footprint: `used_bytes` None was not measured, 0 is a measurement."""

    phase: BindingPhase | None = None
    phase_message: str = ""
    used_bytes: int | None = None
    conditions: Conditions = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a status."""
        phase = wire.get("phase")
        used = wire.get("usedBytes")
        return cls(
            BindingPhase(phase) if phase else None,
            wire.get("phaseMessage", ""),
            None if used is None else parse_bytes(used),
            read_conditions(wire),
        )

    def to_wire(self, stored: Mapping[str, Any] | None = None) -> Json:
        """Write a status over the stored one."""
        fields = {
            "phase": self.phase,
            "phaseMessage": self.phase_message,
            "usedBytes": None if self.used_bytes is None else format_binary(self.used_bytes),
            "conditions": write_conditions(self.conditions),
        }
        return overlay(stored or {}, fields)


@dataclass(frozen=True, slots=True)
class ModelStoreBinding:
    """A ModelStoreBinding as the API server holds it."""

    metadata: Metadata
    spec: BindingSpec
    status: BindingStatus = field(default_factory=BindingStatus)

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        return cls(
            Metadata.from_wire(body),
            BindingSpec.from_wire(body.get("spec") or {}),
            BindingStatus.from_wire(body.get("status") or {}),
        )
