"""How Pods are rendered: the volume that mounts an artifact, and the Pod that warms one node.

A warm-up Pod mounts what a consumer would mount, reads every file back and exits; the node's plugin
does the delivery. The scheduler binds it, to the one node that its affinity names, so that quota
and the kubelet's admission treat it as any other Pod. It tolerates what its node is tainted with,
except the taints that say that the node is unwell or being emptied: then it waits, as others do. It
bears the two labels below and no label of its prefetch, and so never one that puts it into a queue.

Its name tells prefetch, node and attempt apart: asking twice for one attempt is refused by the
server instead of making two Pods.

Rules: MP-POD-01..07, NS-MNT-01, NS-MNT-02.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.artifact import (
    ATTRIBUTE_ARTIFACT,
    ATTRIBUTE_DIGEST,
    ATTRIBUTE_UID,
    HubSource,
    ModelArtifact,
)
from gpustack_delivery.vocabulary.metadata import Metadata, OwnerReference
from gpustack_delivery.vocabulary.prefetch import LABEL_DIGEST, LABEL_PREFETCH, ModelPrefetch
from gpustack_delivery.vocabulary.resources import (
    DRIVER_NAME,
    MODEL_PREFETCHES,
    PODS,
    Json,
)
from gpustack_delivery.vocabulary.wire import optional_time, present

ATTEMPT: Final = "worker.gpustack.ai/model-prefetch-attempt"
RENDERING: Final = "worker.gpustack.ai/model-prefetch-rendering"
_VOLUME: Final = "model"
_MOUNT_PATH: Final = "/model"
_SCRIPT: Final = f"cd {_MOUNT_PATH} && find . -type f -exec sha256sum {{}} +"
_NOBODY: Final = 65534
_MAX_NAME: Final = 253
_MAX_LABEL: Final = 63
_LIFECYCLE_PREFIXES: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps Pods from a node unless they tolerate it."""

    key: str
    value: str = ""
    effect: str = ""

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a taint."""
        return cls(wire.get("key", ""), wire.get("value", ""), wire.get("effect", ""))


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a warm-up Pod is made from, apart from its prefetch: all that may change beneath it."""

    artifact: ModelArtifact
    image: str
    taints: tuple[Taint, ...] = ()

    @property
    def digest(self) -> str:
        """Return the digest to be warmed."""
        resolved = self.artifact.status.resolved
        return resolved.manifest_digest if resolved else ""

    @property
    def fingerprint(self) -> str:
        """Return a text that differs when a Pod rendered now would differ."""
        parts = (self.image, _secret_name(self.artifact), *map(repr, _tolerated(self.taints)))
        return _short("\n".join(parts))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm-up Pod as it is; `finished_at` is None while it has not ended."""

    metadata: Metadata
    node: str
    digest: str
    attempt: int
    phase: str
    fingerprint: str = ""
    finished_at: float | None = None

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a Pod that bears our label."""
        spec, status = body.get("spec") or {}, body.get("status") or {}
        annotations = (body.get("metadata") or {}).get("annotations") or {}
        phase = status.get("phase", "Pending")
        attempt = annotations.get(ATTEMPT, "")
        return cls(
            Metadata.from_wire(body),
            spec.get("nodeName") or _wanted_node(spec),
            _mounted_digest(spec),
            int(attempt) if attempt.isascii() and attempt.isdigit() else 1,
            phase,
            annotations.get(RENDERING, ""),
            _finished_at(body) if phase in _FINISHED else None,
        )

    @property
    def is_live(self) -> bool:
        """Say whether it works, or is about to."""
        return self.phase not in _FINISHED and not self.metadata.terminating

    def belongs_to(self, prefetch: ModelPrefetch) -> bool:
        """Say whether a prefetch controls it."""
        return any(
            owner.controller and owner.uid == prefetch.metadata.uid
            for owner in self.metadata.owners
        )


def volume(artifact: ModelArtifact, name: str = _VOLUME) -> Json:
    """Return the inline volume that mounts a resolved hub artifact read-only."""
    resolved = artifact.status.resolved
    csi: Json = {
        "driver": DRIVER_NAME,
        "readOnly": True,
        "volumeAttributes": {
            ATTRIBUTE_ARTIFACT: artifact.metadata.name,
            ATTRIBUTE_UID: artifact.metadata.uid,
            ATTRIBUTE_DIGEST: resolved.manifest_digest if resolved else "",
        },
    }
    if secret := _secret_name(artifact):
        csi["nodePublishSecretRef"] = {"name": secret}
    return {"name": name, "csi": csi}


def warm_up(prefetch: ModelPrefetch, node: str, attempt: int, rendering: Rendering) -> Json:
    """Return the Pod of one attempt to warm one node."""
    owner = OwnerReference(
        MODEL_PREFETCHES.api_version,
        MODEL_PREFETCHES.kind,
        prefetch.metadata.name,
        prefetch.metadata.uid,
        controller=True,
    )
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": _name(prefetch, node, rendering.digest, attempt),
            "namespace": prefetch.metadata.namespace,
            "labels": {
                LABEL_PREFETCH: _bounded(prefetch.metadata.name, _MAX_LABEL),
                LABEL_DIGEST: rendering.digest.removeprefix("sha256:")[:32],
            },
            "annotations": {ATTEMPT: str(attempt), RENDERING: rendering.fingerprint},
            "ownerReferences": [owner.to_wire()],
        },
        "spec": _spec(node, rendering),
    }


def _spec(node: str, rendering: Rendering) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "affinity": {"nodeAffinity": required},
        "tolerations": [
            {"key": taint.key, "operator": "Equal"}
            | present({"value": taint.value, "effect": taint.effect})
            for taint in _tolerated(rendering.taints)
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "warmup",
                "image": rendering.image,
                "command": ["/bin/sh", "-ec", _SCRIPT],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
                # Small enough to fit anywhere, and stated, for namespaces whose quota demands it.
                "resources": {
                    "requests": {"cpu": "10m", "memory": "32Mi"},
                    "limits": {"cpu": "1", "memory": "128Mi"},
                },
                "volumeMounts": [
                    {"name": _VOLUME, "mountPath": _MOUNT_PATH, "readOnly": True},
                ],
            }
        ],
        "volumes": [volume(rendering.artifact)],
    }


def _name(prefetch: ModelPrefetch, node: str, digest: str, attempt: int) -> str:
    identity = "\n".join((prefetch.metadata.uid, node, digest, str(attempt)))
    suffix = f"-{_short(identity)}"
    return _cut(f"{prefetch.metadata.name}-warmup-{node}", _MAX_NAME - len(suffix)) + suffix


def _bounded(text: str, length: int) -> str:
    """Return a text, cut and made unmistakable if it is too long."""
    suffix = f"-{_short(text)}"
    return text if len(text) <= length else _cut(text, length - len(suffix)) + suffix


def _cut(text: str, length: int) -> str:
    return text[:length].rstrip("-.")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _tolerated(taints: Iterable[Taint]) -> list[Taint]:
    return [taint for taint in taints if not taint.key.startswith(_LIFECYCLE_PREFIXES)]


def _secret_name(artifact: ModelArtifact) -> str:
    source = artifact.spec.source
    return source.secret_name if isinstance(source, HubSource) else ""


def _wanted_node(spec: Mapping[str, Any]) -> str:
    """Return the node that a Pod's affinity names, "" if it names none or several."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    names = [
        name
        for term in required.get("nodeSelectorTerms") or ()
        for field in term.get("matchFields") or ()
        for name in field.get("values") or ()
    ]
    return names[0] if len(names) == 1 else ""


def _mounted_digest(spec: Mapping[str, Any]) -> str:
    attributes = ((item.get("csi") or {}).get("volumeAttributes") for item in spec["volumes"])
    return next((found[ATTRIBUTE_DIGEST] for found in attributes if found), "")


def _finished_at(body: Mapping[str, Any]) -> float:
    """Return when a Pod ended: the latest that any part of it says."""
    status = body["status"]
    stages = [
        ((container.get("state") or {}).get("terminated") or {}).get("finishedAt")
        for container in status.get("containerStatuses") or ()
    ]
    stages += [item.get("lastTransitionTime") for item in status.get("conditions") or ()]
    stages.append((body.get("metadata") or {}).get("creationTimestamp"))
    return max((optional_time(stage) or 0.0 for stage in stages), default=0.0)
