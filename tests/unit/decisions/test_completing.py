"""Completing inline volumes: what is filled in, what is left alone, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.decisions.completing import complete, gaps, name_fault
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.resources import Json

DIGEST = "sha256:" + "12" * 32
ALONE = {"artifact": "tiny"}
WHOLE = {"artifact": "tiny", "artifactUID": "u-1", "manifestDigest": DIGEST}
HUB = {"huggingFace": {"repository": "acme/tiny"}}
PRIVATE = {"huggingFace": {"repository": "acme/tiny", "secretRef": {"name": "hub"}}}


def pod(*attributes: Json, **source: Any) -> Json:
    """Return a Pod with a volume of ours for each set of attributes, after one of another kind."""
    csi = {"driver": "model.csi.gpustack.ai", **source}
    volumes = [
        {"name": f"v{n}", "csi": csi | {"volumeAttributes": a}} for n, a in enumerate(attributes)
    ]
    return {"spec": {"volumes": [{"name": "own", "emptyDir": {}}, *volumes]}}


def artifact(source: Json = HUB, status: str = "True", reason: str = "Resolved") -> ModelArtifact:
    """Return an artifact that was resolved once."""
    return ModelArtifact.from_wire(
        {
            "metadata": {"name": "tiny", "namespace": "team-a", "uid": "u-1"},
            "spec": {"source": source},
            "status": {
                "resolved": {"manifestDigest": DIGEST, "resolvedTime": "2026-01-01T00:00:00Z"},
                "conditions": [{"type": "Resolved", "status": status, "reason": reason}],
            },
        }
    )


def patched(body: Json, found: ModelArtifact | None = None) -> Any:
    """Return what becomes of a Pod's only gap."""
    (gap,) = gaps(body)
    return complete(gap, found or artifact(), "team-a")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"spec": {}},
        {"spec": {"volumes": None}},
        pod(),
        pod(WHOLE),
        pod(WHOLE | {"artifactUID": "another", "manifestDigest": "another"}),
        pod(WHOLE | {"artifactUID": "", "manifestDigest": ""}),
        pod({}),
        pod({"artifactUID": "u-1"}),
        pod(ALONE, driver="another.example.io"),
        {"spec": {"volumes": [{"name": "v", "csi": {"driver": "model.csi.gpustack.ai"}}]}},
    ],
)
def test_other_volumes_are_left_alone(body: Json) -> None:
    """No volume, another driver's, one that names no artifact, and one with both are no gaps."""
    assert gaps(body) == ()


def test_a_volume_that_names_its_artifact_is_completed() -> None:
    """UID and digest are the artifact's; the path counts the volumes of every kind."""
    base = "/spec/volumes/1/csi"
    assert patched(pod(ALONE)) == [
        {"op": "add", "path": f"{base}/volumeAttributes/artifactUID", "value": "u-1"},
        {"op": "add", "path": f"{base}/volumeAttributes/manifestDigest", "value": DIGEST},
    ]
    assert [gap.index for gap in gaps(pod(WHOLE, ALONE, ALONE))] == [2, 3]


@pytest.mark.parametrize("missing", ["artifactUID", "manifestDigest"])
def test_the_missing_half_is_added_to_the_right_one(missing: str) -> None:
    """One that is there and the artifact's stays, and only the other is written."""
    half = {key: value for key, value in WHOLE.items() if key != missing}
    (step,) = patched(pod(half))
    assert (step["path"].rpartition("/")[2], step["value"]) == (missing, WHOLE[missing])


@pytest.mark.parametrize("given", ["artifactUID", "manifestDigest"])
def test_a_wrong_half_is_refused_and_never_changed(given: str) -> None:
    """What the artifact does not have is said with its field."""
    denial = patched(pod(ALONE | {given: "another"}))
    assert isinstance(denial, Denial)
    assert denial.field == f"spec.volumes[1].csi.volumeAttributes.{given}"


def test_a_private_artifact_brings_its_secret_unless_one_is_named() -> None:
    """The Secret that the artifact names is what a node needs to download it."""
    secret = {
        "op": "add",
        "path": "/spec/volumes/1/csi/nodePublishSecretRef",
        "value": {"name": "hub"},
    }
    assert secret in patched(pod(ALONE), artifact(PRIVATE))
    named = pod(ALONE, nodePublishSecretRef={"name": "mine"})
    assert len(patched(named, artifact(PRIVATE))) == 2


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (artifact(status="False", reason="AccessDenied"), "not resolved yet (AccessDenied)"),
        (artifact(status="Unknown", reason=""), "not resolved yet (Resolving)"),
        (artifact({"persistentVolumeClaim": {"claimName": "c"}}), "volume tiny -n team-a"),
        (artifact({"image": {"reference": f"x@{DIGEST}"}}), "volume tiny -n team-a"),
    ],
)
def test_an_artifact_that_cannot_be_mounted_is_refused_in_one_line(
    found: ModelArtifact, said: str
) -> None:
    """The line names the artifact, what it is, and what to do."""
    denial = patched(pod(ALONE), found)
    assert isinstance(denial, Denial)
    assert said in denial.message
    assert "\n" not in denial.message
    assert denial.field == "spec.volumes[1].csi.volumeAttributes.artifact"


def test_a_missing_artifact_is_refused_with_the_namespace_it_was_looked_for_in() -> None:
    """Nothing is said about other namespaces."""
    (gap,) = gaps(pod(ALONE))
    denial = complete(gap, None, "team-b")
    assert isinstance(denial, Denial)
    assert denial.message.startswith("there is no ModelArtifact tiny in the Pod's namespace team-b")


@pytest.mark.parametrize("name", ["", "team-a/tiny", "../secrets/hub", "Tiny", "tiny\n"])
def test_what_is_no_name_is_never_looked_up(name: str) -> None:
    """A path or an empty text in place of a name has a fault of its own."""
    (gap,) = gaps(pod({"artifact": name}))
    fault = name_fault(gap)
    assert fault is not None
    assert "without the namespace" in fault.message
    assert name_fault(gaps(pod(ALONE))[0]) is None
