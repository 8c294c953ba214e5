"""The objects that use artifacts: ModelDeployment, Instance and InstanceType, as far as a rule
names their fields.

They belong to others, and a cluster may not have them at all; this package reads them and never
writes them back.

Rules: AR-RES-08, MP-PLC-01, MP-PLC-03.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import GROUP, STORED_VERSION, Resource

MODEL_DEPLOYMENTS: Final = Resource(GROUP, STORED_VERSION, "modeldeployments", "ModelDeployment")
INSTANCES: Final = Resource(GROUP, STORED_VERSION, "instances", "Instance")
INSTANCE_TYPES: Final = Resource(
    GROUP, STORED_VERSION, "instancetypes", "InstanceType", namespaced=False
)


@dataclass(frozen=True, slots=True)
class ModelDeployment:
    """A deployment: the artifact it serves ("" for none) and the InstanceTypes of its roles."""

    metadata: Metadata
    artifact_name: str = ""
    instance_types: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        spec = body.get("spec") or {}
        roles = (role.get("instanceType", "") for role in spec.get("roles") or ())
        return cls(
            Metadata.from_wire(body),
            _artifact_name(spec.get("model")),
            tuple(name for name in roles if name),
        )

    def names_artifact(self, name: str) -> bool:
        """Say whether this deployment uses an artifact of its namespace."""
        return self.artifact_name == name


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance: the artifacts among its additional volumes."""

    metadata: Metadata
    artifact_names: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        volumes = (body.get("spec") or {}).get("additionalVolumes") or ()
        names = (_artifact_name(volume.get("model")) for volume in volumes)
        return cls(Metadata.from_wire(body), tuple(name for name in names if name))

    def names_artifact(self, name: str) -> bool:
        """Say whether this instance uses an artifact of its namespace."""
        return name in self.artifact_names


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of node: accelerated ones by accelerator group, others by general group."""

    metadata: Metadata
    acceleratable: bool = False
    accelerator_group: str = ""
    general_group: str = ""
    os: str = ""
    arch: str = ""

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        spec = body.get("spec") or {}
        return cls(
            Metadata.from_wire(body),
            bool(spec.get("acceleratable")),
            spec.get("acceleratorGroup", ""),
            spec.get("generalGroup", ""),
            spec.get("os", ""),
            spec.get("arch", ""),
        )


def _artifact_name(model: Mapping[str, Any] | None) -> str:
    reference = (model or {}).get("artifactRef") or {}
    return str(reference.get("name", ""))
