"""Prefetches, artifacts, entries and Pods in one line each, for the tests of what warms nodes."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions.pods import Rendering, Taint, WarmUp
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch

DIGEST = "sha256:" + "a1" * 32
OTHER = "sha256:" + "b2" * 32
SIZE = 1000
NOW = 1_000_000.0
HOUR = 3600.0


def artifact(
    name: str = "model",
    *,
    digest: str = DIGEST,
    status: str = "True",
    secret: str = "",
    size: int = SIZE,
    digest_source: str = "Hub",
) -> ModelArtifact:
    """Return a hub artifact; one without a digest has not resolved."""
    hub: dict[str, Any] = {"repository": "org/model", "revision": "main"}
    if secret:
        hub["secretRef"] = {"name": secret}
    resolved = {
        "manifestDigest": digest,
        "digestSource": digest_source,
        "sizeBytes": size,
        "resolvedTime": "2026-09-25T06:00:00Z",
    }
    condition = {"type": "Resolved", "status": status, "reason": "Why"}
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}"},
        "spec": {"source": {"huggingFace": hub}},
        "status": {"conditions": [condition]},
    }
    if digest:
        body["status"]["resolved"] = resolved
    return ModelArtifact.from_wire(body)


def claimed() -> ModelArtifact:
    """Return an artifact of a claim, which nothing delivers to nodes."""
    return ModelArtifact.from_wire(
        {
            "metadata": {"name": "model", "namespace": "team-a"},
            "spec": {"source": {"persistentVolumeClaim": {"claimName": "data"}}},
            "status": {"resolved": {"resolvedTime": "2026-09-25T06:00:00Z"}},
        }
    )


def prefetch(
    name: str = "warm", *, status: dict[str, Any] | None = None, **spec: Any
) -> ModelPrefetch:
    """Return a prefetch of generation 1."""
    wanted = {"artifactRef": {"name": "model"}, "bindingRef": {"name": "grant"}, **spec}
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "generation": 1}
    return ModelPrefetch.from_wire(
        {"metadata": metadata, "spec": wanted, "status": status or {"observedGeneration": 1}}
    )


def entry(state: ModelState = ModelState.READY, **facts: Any) -> ModelEntry:
    """Return what a node lists of the digest."""
    return ModelEntry(**{"digest": DIGEST, "state": state, "size_bytes": SIZE, **facts})


def pod(node: str, phase: str = "Running", *, attempt: int = 1, **facts: Any) -> WarmUp:
    """Return a warm-up Pod rendered as one would be now."""
    name = f"pod-{node}-{attempt}"
    terminating = facts.pop("terminating", False)
    metadata = Metadata(name, "team-a", f"uid-{name}", terminating=terminating)
    usual = {"digest": DIGEST, "fingerprint": "now"}
    return WarmUp(metadata, node, attempt=attempt, phase=phase, **{**usual, **facts})


def rendering(image: str = "image", *taints: Taint, secret: str = "") -> Rendering:
    """Return what Pods are rendered from."""
    return Rendering(artifact(secret=secret), image, taints)
