"""What records say of objects beyond their fields."""

from __future__ import annotations

import pytest

from gpustack_delivery.vocabulary import artifact, grants, node_store, prefetch

DIGEST = "sha256:" + "a" * 64


def resolved_wire(status: str = "True") -> dict[str, object]:
    """Return an artifact status with a resolution and its condition."""
    return {
        "resolved": {"manifestDigest": DIGEST, "resolvedTime": "2026-09-25T06:00:00Z"},
        "conditions": [{"type": "Resolved", "status": status, "reason": "Resolved"}],
    }


def test_is_resolved_needs_condition_and_facts() -> None:
    """An artifact may be mounted only while the condition holds and the facts are there."""
    assert artifact.Status.from_wire(resolved_wire()).is_resolved
    assert not artifact.Status.from_wire(resolved_wire("False")).is_resolved
    assert not artifact.Status.from_wire(resolved_wire() | {"resolved": None}).is_resolved


def test_a_digest_without_source_came_from_a_hub() -> None:
    """A resolution older than digestSource was made by a hub; a claim's has neither."""
    status = artifact.Status.from_wire(resolved_wire())
    assert status.resolved is not None
    assert status.resolved.digest_source is artifact.DigestSource.HUB
    claim = artifact.Resolved.from_wire({"resolvedTime": "2026-09-25T06:00:00Z"})
    assert claim.digest_source is None


def test_unknown_status_members_survive() -> None:
    """A newer schema's members stay where a status is written back, nested ones too."""
    stored = {**resolved_wire(), "newer": 1}
    stored["resolved"] = {**resolved_wire()["resolved"], "newer": {"x": 0}}  # type: ignore[dict-item]
    back = artifact.Status.from_wire(stored).to_wire(stored)
    assert back["newer"] == 1
    assert back["resolved"]["newer"] == {"x": 0}


def test_unknown_source_reads_as_none() -> None:
    """A source of a newer version is nothing this version resolves."""
    assert artifact.Spec.from_wire({"source": {"ftp": {}}}).source is None
    assert artifact.Spec(None).to_wire() == {}


def test_default_revisions() -> None:
    """Each hub has its own default branch."""
    assert artifact.HubKind.HUGGING_FACE.default_revision == "main"
    assert artifact.HubKind.MODEL_SCOPE.default_revision == "master"


def test_zero_percent_is_a_measurement() -> None:
    """A download that has just begun is at 0 percent; no download has no percentage."""
    assert artifact.NodeCounts(downloading=1, downloading_percent=0).to_wire() == {
        "downloading": 1,
        "downloadingPercent": 0,
    }
    assert artifact.NodeCounts(ready=2).to_wire() == {"ready": 2}


def test_explicit_zero_is_an_override() -> None:
    """A pool's written 0 bytes per second differs from saying nothing."""
    wire = {"nodeSelector": {}, "download": {"bytesPerSecond": 0}}
    assert grants.StoreSpec.from_wire(wire).to_wire() == wire
    assert grants.StoreSpec.from_wire({"nodeSelector": {}}).bytes_per_second is None


def test_zero_used_bytes_is_a_measurement() -> None:
    """A measured zero is written; an unmeasured footprint is absent."""
    assert grants.BindingStatus(used_bytes=0).to_wire() == {"usedBytes": "0"}
    assert grants.BindingStatus().to_wire() == {}


def test_kubelet_absent_or_empty() -> None:
    """A kubelet that was never read is absent; one that sets nothing is empty."""
    base = node_store.Spec(
        node_store.Watermarks(80, 70), node_store.DownloadLimits(8), node_store.HubAccess("h")
    )
    assert "kubelet" not in base.to_wire()
    read = node_store.Spec.from_wire(base.to_wire() | {"kubelet": {}})
    assert read.kubelet == node_store.KubeletThresholds()
    assert read.to_wire()["kubelet"] == {}


@pytest.mark.parametrize(
    "record",
    [
        artifact.ModelArtifact,
        node_store.NodeModelStore,
        grants.ModelStore,
        grants.ModelStoreBinding,
        prefetch.ModelPrefetch,
    ],
)
def test_whole_objects_read(record: type[artifact.ModelArtifact]) -> None:
    """Every kind reads from an object that has nothing but a name."""
    assert record.from_wire({"metadata": {"name": "x"}}).metadata.name == "x"
