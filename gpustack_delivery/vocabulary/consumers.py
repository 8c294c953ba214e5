"""The objects that use artifacts: ModelDeployment, Instance and InstanceType, as far as a rule
names their fields.

They belong to others, and a cluster may not have them at all; this package reads them and never
writes them back. A Pod template among them is kept as it is.

Rules: AR-RES-08, MP-PLC-01, MP-PLC-03, NS-MNT-01.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import GROUP, STORED_VERSION, Json, Resource

MODEL_DEPLOYMENTS: Final = Resource(GROUP, STORED_VERSION, "modeldeployments", "ModelDeployment")
INSTANCES: Final = Resource(GROUP, STORED_VERSION, "instances", "Instance")
INSTANCE_TYPES: Final = Resource(
    GROUP, STORED_VERSION, "instancetypes", "InstanceType", namespaced=False
)


DEFAULT_MOUNT_PATH: Final = "/model"


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a deployment: so many Pods of a template, which is empty if none is given."""

    name: str
    replicas: int = 1
    template: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelVolume:
    """An artifact among a Pod's volumes."""

    name: str
    mount_path: str
    artifact_name: str


@dataclass(frozen=True, slots=True)
class ModelDeployment:
    """A deployment: the artifact it serves ("" for none), its roles and their InstanceTypes."""

    metadata: Metadata
    artifact_name: str = ""
    instance_types: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    mount_path: str = DEFAULT_MOUNT_PATH

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        spec = body.get("spec") or {}
        model, roles = spec.get("model") or {}, spec.get("roles") or ()
        names = (role.get("instanceType", "") for role in roles)
        return cls(
            Metadata.from_wire(body),
            _artifact_name(model),
            tuple(name for name in names if name),
            tuple(
                Role(role.get("name", ""), role.get("replicas", 1), role.get("template") or {})
                for role in roles
            ),
            model.get("mountPath") or DEFAULT_MOUNT_PATH,
        )

    def names_artifact(self, name: str) -> bool:
        """Say whether this deployment uses an artifact of its namespace."""
        return self.artifact_name == name


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance: the artifacts among its additional volumes, and its one Pod's template."""

    metadata: Metadata
    artifact_names: tuple[str, ...] = ()
    volumes: tuple[ModelVolume, ...] = ()
    template: Json = field(default_factory=dict)

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a whole object."""
        spec = body.get("spec") or {}
        volumes = tuple(
            ModelVolume(
                volume.get("name", ""), volume.get("mountPath") or DEFAULT_MOUNT_PATH, artifact
            )
            for volume in spec.get("additionalVolumes") or ()
            if (artifact := _artifact_name(volume.get("model")))
        )
        names = tuple(volume.artifact_name for volume in volumes)
        return cls(Metadata.from_wire(body), names, volumes, spec.get("template") or {})

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
