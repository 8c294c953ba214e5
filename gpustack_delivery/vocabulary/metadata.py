"""The part every Kubernetes object has: who it is, and which state of it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


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
        )

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name; the namespace is empty for a cluster-scoped object."""
        return self.namespace, self.name
