"""ModelPrefetch: a tenant's wish that some nodes hold an artifact before anybody mounts it.

Rules: MP-RES-08, MP-PLC-01 to 04, MP-PIN-01, MP-PIN-03, MP-STA-01 to 05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.conditions import Conditions, read_conditions, write_conditions
from gpustack_delivery.vocabulary.duration import format_duration, parse_duration
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.selector import Selector
from gpustack_delivery.vocabulary.wire import overlay, present

PROGRESSING: Final = "Progressing"
AVAILABLE: Final = "Available"
DEGRADED: Final = "Degraded"
LAPSED: Final = "Lapsed"
LABEL_PREFETCH: Final = "worker.gpustack.ai/model-prefetch"
LABEL_DIGEST: Final = "worker.gpustack.ai/model-prefetch-digest"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where: by InstanceTypes, by node labels, or, with neither, by who uses the artifact."""

    instance_types: tuple[str, ...] = ()
    node_selector: Selector | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a placement."""
        selector = wire.get("nodeSelector")
        return cls(
            tuple(wire.get("instanceTypes") or ()),
            None if selector is None else Selector.from_wire(selector),
        )

    def to_wire(self) -> Json:
        """Write a placement; an empty selector selects every node and stays."""
        selector = self.node_selector
        return present({"instanceTypes": list(self.instance_types)}) | (
            {} if selector is None else {"nodeSelector": selector.to_wire()}
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """How long: pinned against collection, and for how long after the last use (None: no end)."""

    pinned: bool = False
    ttl_seconds: float | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a retention.

        Raises:
            ValueError: the time to live is no duration.
        """
        ttl = wire.get("ttlAfterLastUse")
        return cls(bool(wire.get("pinned")), parse_duration(ttl) if ttl else None)

    def to_wire(self) -> Json:
        """Write a retention."""
        ttl = None if self.ttl_seconds is None else format_duration(self.ttl_seconds)
        return present({"pinned": self.pinned, "ttlAfterLastUse": ttl})


@dataclass(frozen=True, slots=True)
class Spec:
    """What to warm, under which grant, where, how much of it counts as available, and for how long.

    `min_ready` 0 means every target.
    """

    artifact_name: str
    binding_name: str
    placement: Placement = Placement()
    min_ready: int = 0
    retention: Retention = Retention()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a spec."""
        return cls(
            (wire.get("artifactRef") or {}).get("name", ""),
            (wire.get("bindingRef") or {}).get("name", ""),
            Placement.from_wire(wire.get("placement") or {}),
            wire.get("minReady", 0),
            Retention.from_wire(wire.get("retention") or {}),
        )

    def to_wire(self) -> Json:
        """Write a spec."""
        required = {
            "artifactRef": {"name": self.artifact_name},
            "bindingRef": {"name": self.binding_name},
        }
        return required | present(
            {
                "placement": self.placement.to_wire(),
                "minReady": self.min_ready,
                "retention": self.retention.to_wire(),
            }
        )


@dataclass(frozen=True, slots=True)
class Status:
    """How far: target nodes, those that hold the content, those still at it.

    `lapsed_nodes` is the memory of copies whose time ran out: once collection has taken one, its
    node's report no longer tells. It holds for the generation observed.
    """

    desired_nodes: int = 0
    ready_nodes: int = 0
    downloading_nodes: int = 0
    lapsed_nodes: tuple[str, ...] = ()
    observed_generation: int = 0
    conditions: Conditions = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a status."""
        return cls(
            wire.get("desiredNodes", 0),
            wire.get("readyNodes", 0),
            wire.get("downloadingNodes", 0),
            tuple(wire.get("lapsedNodes") or ()),
            wire.get("observedGeneration", 0),
            read_conditions(wire),
        )

    def to_wire(self, stored: Mapping[str, Any] | None = None) -> Json:
        """Write a status over the stored one."""
        fields = {
            "desiredNodes": self.desired_nodes,
            "readyNodes": self.ready_nodes,
            "downloadingNodes": self.downloading_nodes,
            "lapsedNodes": list(self.lapsed_nodes),
            "observedGeneration": self.observed_generation,
            "conditions": write_conditions(self.conditions),
        }
        return overlay(stored or {}, fields)


@dataclass(frozen=True, slots=True)
class ModelPrefetch:
    """A ModelPrefetch as the API server holds it."""

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
