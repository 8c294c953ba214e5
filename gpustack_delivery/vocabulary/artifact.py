"""ModelArtifact: which files a namespace means, and what they turned out to be.

The spec is an identity and never changes. The worker writes the status; the node plugin reads both
to authorize a mount and to find the files. A source this version does not know reads as None.

Rules: AR-RES-01 to 08, AR-HF-01, AR-ANC-02, AR-CLM-01.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias

from gpustack_delivery.vocabulary.conditions import (
    Conditions,
    holds,
    read_conditions,
    write_conditions,
)
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.patterns import Patterns
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import (
    optional_time,
    overlay,
    present,
    write_optional_time,
)

FINALIZER: Final = "worker.gpustack.ai/model-artifact-protection"
RESOLVED: Final = "Resolved"
DEGRADED: Final = "Degraded"
TOKEN_KEY: Final = "token"  # noqa: S105 - the key's name in a Secret, not a secret

# The attributes of the inline volume that mounts an artifact.
ATTRIBUTE_ARTIFACT: Final = "artifact"
ATTRIBUTE_UID: Final = "artifactUID"
ATTRIBUTE_DIGEST: Final = "manifestDigest"


class HubKind(StrEnum):
    """The hubs, by the name of their member in `spec.source`."""

    HUGGING_FACE = "huggingFace"
    MODEL_SCOPE = "modelScope"

    @property
    def default_revision(self) -> str:
        """Return the branch a repository of this hub is read at when none is named."""
        return "main" if self is HubKind.HUGGING_FACE else "master"


class DigestSource(StrEnum):
    """Who said what the digest is: the hub's listing, or the artifact's own expectedDigest."""

    HUB = "Hub"
    EXPECTED = "Expected"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository at a revision; `secret_name` is empty for public access."""

    hub: HubKind
    repository: str
    revision: str = ""
    secret_name: str = ""

    def to_wire(self) -> Json:
        """Write the source's only member."""
        fields = {
            "repository": self.repository,
            "revision": self.revision,
            "secretRef": present({"name": self.secret_name}),
        }
        return {self.hub.value: present(fields)}


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A folder of a claim in the same namespace; an empty path is its root."""

    claim_name: str
    path: str = ""

    def to_wire(self) -> Json:
        """Write the source's only member."""
        return {"persistentVolumeClaim": present({"claimName": self.claim_name, "path": self.path})}


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image volume, pinned by digest."""

    reference: str

    def to_wire(self) -> Json:
        """Write the source's only member."""
        return {"image": {"reference": self.reference}}


Source: TypeAlias = HubSource | ClaimSource | ImageSource


def read_source(wire: Mapping[str, Any]) -> Source | None:
    """Read `spec.source`; None if it has no member this version knows."""
    for hub in HubKind:
        if (member := wire.get(hub.value)) is not None:
            return HubSource(
                hub,
                member.get("repository", ""),
                member.get("revision", ""),
                (member.get("secretRef") or {}).get("name", ""),
            )
    if (claim := wire.get("persistentVolumeClaim")) is not None:
        return ClaimSource(claim.get("claimName", ""), claim.get("path", ""))
    if (image := wire.get("image")) is not None:
        return ImageSource(image.get("reference", ""))
    return None


@dataclass(frozen=True, slots=True)
class Spec:
    """What the artifact is; `expected_digest` is empty when the author named none."""

    source: Source | None
    patterns: Patterns = field(default_factory=Patterns)
    expected_digest: str = ""

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a spec."""
        patterns = Patterns(
            tuple(wire.get("allowPatterns") or ()), tuple(wire.get("ignorePatterns") or ())
        )
        return cls(read_source(wire.get("source") or {}), patterns, wire.get("expectedDigest", ""))

    def to_wire(self) -> Json:
        """Write a spec."""
        fields = {
            "source": self.source.to_wire() if self.source else None,
            "allowPatterns": list(self.patterns.allow),
            "ignorePatterns": list(self.patterns.ignore),
            "expectedDigest": self.expected_digest,
        }
        return present(fields)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the artifact was resolved to, written once; only `last_validated_time` moves afterwards.

    A claim or an image has a `resolved_time` alone. Under `DigestSource.EXPECTED` there is a digest
    and no revision, file count or size.
    """

    resolved_time: float
    manifest_digest: str = ""
    digest_source: DigestSource | None = None
    revision: str = ""
    file_count: int = 0
    size_bytes: int = 0
    last_validated_time: float | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the facts of a resolution; a digest without a source came from a hub."""
        digest = wire.get("manifestDigest", "")
        source = wire.get("digestSource") or (DigestSource.HUB if digest else "")
        return cls(
            resolved_time=optional_time(wire.get("resolvedTime")) or 0.0,
            manifest_digest=digest,
            digest_source=DigestSource(source) if source else None,
            revision=wire.get("revision", ""),
            file_count=wire.get("fileCount", 0),
            size_bytes=wire.get("sizeBytes", 0),
            last_validated_time=optional_time(wire.get("lastValidatedTime")),
        )

    def to_wire(self, stored: Mapping[str, Any] | None = None) -> Json:
        """Write the facts of a resolution over the stored ones."""
        fields = {
            "revision": self.revision,
            "manifestDigest": self.manifest_digest,
            "digestSource": self.digest_source,
            "fileCount": self.file_count,
            "sizeBytes": self.size_bytes,
            "resolvedTime": write_optional_time(self.resolved_time),
            "lastValidatedTime": write_optional_time(self.last_validated_time),
        }
        return overlay(stored or {}, fields)


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """How many nodes hold the digest in which state; the percentage is None when none downloads."""

    ready: int = 0
    downloading: int = 0
    failed: int = 0
    downloading_percent: int | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the counts."""
        return cls(
            wire.get("ready", 0),
            wire.get("downloading", 0),
            wire.get("failed", 0),
            wire.get("downloadingPercent"),
        )

    def to_wire(self) -> Json:
        """Write the counts; a percentage of 0 is a measurement and stays."""
        counts = {"ready": self.ready, "downloading": self.downloading, "failed": self.failed}
        percent = self.downloading_percent
        return present(counts) | ({} if percent is None else {"downloadingPercent": percent})


@dataclass(frozen=True, slots=True)
class Status:
    """What the worker knows of the artifact."""

    observed_generation: int = 0
    resolved: Resolved | None = None
    nodes: NodeCounts = NodeCounts()
    conditions: Conditions = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a status."""
        resolved = wire.get("resolved")
        return cls(
            observed_generation=wire.get("observedGeneration", 0),
            resolved=Resolved.from_wire(resolved) if resolved else None,
            nodes=NodeCounts.from_wire(wire.get("nodes") or {}),
            conditions=read_conditions(wire),
        )

    def to_wire(self, stored: Mapping[str, Any] | None = None) -> Json:
        """Write a status over the stored one, whose unknown members survive."""
        stored = stored or {}
        fields = {
            "observedGeneration": self.observed_generation,
            "resolved": self.resolved.to_wire(stored.get("resolved")) if self.resolved else None,
            "nodes": self.nodes.to_wire(),
            "conditions": write_conditions(self.conditions),
        }
        return overlay(stored, fields)

    @property
    def is_resolved(self) -> bool:
        """Say whether the artifact may be mounted: Resolved=True, and resolved facts are there."""
        return self.resolved is not None and holds(self.conditions, RESOLVED)


@dataclass(frozen=True, slots=True)
class ModelArtifact:
    """A ModelArtifact as the API server holds it."""

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
