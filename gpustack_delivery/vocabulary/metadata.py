"""The part every Kubernetes object has: who it is, and which state of it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import present


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """Whose object this is: it goes when its owners are gone."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read an owner reference."""
        return cls(
            wire.get("apiVersion", ""),
            wire.get("kind", ""),
            wire.get("name", ""),
            wire.get("uid", ""),
            bool(wire.get("controller")),
        )

    def to_wire(self) -> Json:
        """Write an owner reference."""
        named = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name}
        return named | {"uid": self.uid} | present({"controller": self.controller})


@dataclass(frozen=True, slots=True)
class Metadata:
    """An object's identity and the few facts of its metadata that rules speak of."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    terminating: bool = False
    finalizers: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[OwnerReference, ...] = ()

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read the metadata of a whole object."""
        metadata = body.get("metadata") or {}
        return cls(
            name=metadata.get("name", ""),
            namespace=metadata.get("namespace", ""),
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
            generation=metadata.get("generation", 0),
            terminating=bool(metadata.get("deletionTimestamp")),
            finalizers=tuple(metadata.get("finalizers") or ()),
            labels=dict(metadata.get("labels") or {}),
            owners=tuple(
                OwnerReference.from_wire(owner) for owner in metadata.get("ownerReferences") or ()
            ),
        )

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name; the namespace is empty for a cluster-scoped object."""
        return self.namespace, self.name
