"""The counts of a delivery."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.decisions.progress import measure, uncountable
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState

DIGEST = "sha256:" + "12" * 32


def artifact(source: dict[str, Any], **resolved: Any) -> ModelArtifact:
    """Return an artifact; without facts it is not resolved."""
    facts = {"resolvedTime": "2026-01-01T00:00:00Z", **resolved} if resolved else None
    body = {
        "metadata": {"name": "m", "namespace": "n", "uid": "u"},
        "spec": {"source": source},
        "status": {"resolved": facts} if facts else {},
    }
    return ModelArtifact.from_wire(body)


HUB = {"huggingFace": {"repository": "a/b"}}


def entry(state: ModelState, size: int = 0, received: int = 0, reason: str = "") -> ModelEntry:
    """Return a node's entry."""
    return ModelEntry(DIGEST, state, size, received, reason=reason)


@pytest.mark.parametrize(
    "found",
    [
        artifact({"persistentVolumeClaim": {"claimName": "c"}}, sizeBytes=1),
        artifact({"image": {"reference": "r"}}, sizeBytes=1),
        artifact(HUB),
    ],
)
def test_nothing_to_count_says_why(found: ModelArtifact) -> None:
    """Zeros stay in the answer, a percentage does not, and the reason does."""
    wire = measure(found, {}, {}).to_wire("n", "m", 0.0)
    assert wire["reason"] == uncountable(found) != ""
    assert (wire["ready"], wire["downloadingBytes"], wire["manifestDigest"]) == (0, 0, "")
    assert "downloadingPercent" not in wire


def test_counts_by_state_and_reason() -> None:
    """Percent is whole and cut, bytes beyond the size count once, reasons are sorted."""
    entries = {
        "a": entry(ModelState.READY),
        "b": entry(ModelState.DOWNLOADING, received=999),
        "c": entry(ModelState.DOWNLOADING, received=2000),
        "d": entry(ModelState.FAILED, reason="SourceUnavailable"),
        "e": entry(ModelState.FAILED, reason="AccessDenied"),
    }
    found = artifact(HUB, manifestDigest=DIGEST, sizeBytes=1000)
    wire = measure(found, entries, {"b": 500, "z": 1}).to_wire("n", "m", 0.0)
    assert (wire["ready"], wire["downloading"], wire["failed"], wire["live"]) == (1, 2, 2, 1)
    assert (wire["downloadingPercent"], wire["downloadingBytes"]) == (99, 2999)
    assert [each["reason"] for each in wire["failureReasons"]] == [
        "AccessDenied",
        "SourceUnavailable",
    ]
    assert "reason" not in wire


def test_a_size_may_come_from_the_nodes() -> None:
    """An expected digest has none of its own; while nobody knows it, nothing has begun."""
    found = artifact(HUB, manifestDigest=DIGEST)
    unknown = measure(found, {"a": entry(ModelState.DOWNLOADING, received=5)}, {})
    assert (unknown.size_bytes, unknown.percent) == (0, 0)
    known = measure(found, {"a": entry(ModelState.DOWNLOADING, 10, 5)}, {})
    assert (known.size_bytes, known.percent) == (10, 50)
