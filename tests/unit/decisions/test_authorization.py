"""Mount authorization: every rule refuses alone, and the request that keeps them all is granted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from gpustack_delivery.decisions.authorization import (
    Access,
    KubeletDirectory,
    MountRequest,
    check_form,
    judge,
    lies_in,
)
from gpustack_delivery.errors import Malformed, Refused
from gpustack_delivery.vocabulary.artifact import (
    ClaimSource,
    DigestSource,
    HubKind,
    HubSource,
    ImageSource,
    ModelArtifact,
    Resolved,
    Source,
    Spec,
    Status,
)
from gpustack_delivery.vocabulary.conditions import Condition
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.patterns import Patterns

DIGEST = "sha256:" + "ab" * 32
TARGET = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/v/mount"
KUBELET = KubeletDirectory(PurePosixPath("/var/lib/kubelet"), PurePosixPath("/var/lib/kubelet"))
HUB = HubSource(HubKind.HUGGING_FACE, "org/name", "main")

REQUEST = MountRequest(
    volume_id="csi-1",
    target=TARGET,
    resolved_target=TARGET,
    access=Access.MOUNT,
    ephemeral=True,
    pod_namespace="team-a",
    artifact="qwen",
    artifact_uid="uid-1",
    manifest_digest=DIGEST,
)


def artifact(
    *,
    uid: str = "uid-1",
    source: Source | None = HUB,
    digest: str = DIGEST,
    status: str = "True",
    resolved: bool = True,
) -> ModelArtifact:
    """Return a resolved artifact, bent where a test wants it bent."""
    facts = Resolved(0.0, digest, DigestSource.HUB, "c" * 40) if resolved else None
    return ModelArtifact(
        Metadata("qwen", "team-a", uid),
        Spec(source, Patterns(allow=("*.json",))),
        Status(resolved=facts, conditions=(Condition("Resolved", status, "x"),)),
    )


def test_a_request_that_keeps_every_rule_is_granted() -> None:
    """The grant carries what the attempt needs and takes the digest from the API, not the Pod."""
    grant = judge(REQUEST, KUBELET, artifact())
    assert (grant.digest, grant.artifact_uid, grant.source) == (DIGEST, "uid-1", HUB)
    assert grant.patterns == Patterns(allow=("*.json",))
    assert grant.resolved.revision == "c" * 40


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"volume_id": ""}, "volume id"),
        ({"target": ""}, "target path"),
        ({"access": Access.ABSENT}, "volume capability"),
    ],
)
def test_a_request_without_its_parts_is_malformed(change: dict[str, object], missing: str) -> None:
    """The CSI specification's required fields are told apart from our own rules."""
    with pytest.raises(Malformed, match=missing):
        check_form(replace(REQUEST, **change))  # type: ignore[arg-type]


def test_a_whole_request_is_well_formed() -> None:
    """A request with all its parts passes the first door, whatever the rules say later."""
    check_form(replace(REQUEST, ephemeral=False))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"ephemeral": False}, "inline ephemeral"),
        ({"access": Access.BLOCK}, "mount capability"),
        ({"access": Access.UNSTATED}, "mount capability"),
        ({"target": "/etc"}, "kubelet directory"),
        ({"target": "var/lib/kubelet/pods/x"}, "kubelet directory"),
        ({"target": "/var/lib/kubelet"}, "kubelet directory"),
        ({"target": "/var/lib/kubelet/../../../etc"}, "kubelet directory"),
        ({"target": "/var/lib/kubelet-evil/pods"}, "kubelet directory"),
        ({"resolved_target": "/etc/passwd"}, "kubelet directory"),
        ({"artifact_uid": "uid-0"}, "UID must equal"),
        ({"manifest_digest": "sha256:" + "00" * 32}, "manifestDigest"),
        ({"manifest_digest": ""}, "manifestDigest"),
    ],
)
def test_each_rule_of_the_volume_refuses_alone(change: dict[str, object], rule: str) -> None:
    """Everything else is in order, and the message names the one rule that is not."""
    with pytest.raises(Refused, match=rule):
        judge(replace(REQUEST, **change), KUBELET, artifact())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (None, "must exist in the Pod's namespace"),
        (artifact(uid="another"), "UID must equal"),
        (artifact(source=ClaimSource("claim")), "Hugging Face or ModelScope"),
        (artifact(source=ImageSource("image")), "Hugging Face or ModelScope"),
        (artifact(source=None), "Hugging Face or ModelScope"),
        (artifact(status="False"), "Resolved=True"),
        (artifact(status="Unknown"), "Resolved=True"),
        (artifact(resolved=False), "Resolved=True"),
        (artifact(digest=""), "manifestDigest"),
    ],
)
def test_each_rule_of_the_artifact_refuses_alone(found: ModelArtifact | None, rule: str) -> None:
    """The artifact is judged as the API server holds it."""
    with pytest.raises(Refused, match=rule):
        judge(REQUEST, KUBELET, found)


def test_an_empty_digest_never_matches_an_empty_digest() -> None:
    """An artifact without a digest grants nothing to a Pod that names none."""
    with pytest.raises(Refused, match="manifestDigest"):
        judge(replace(REQUEST, manifest_digest=""), KUBELET, artifact(digest=""))


def test_a_model_scope_source_is_served() -> None:
    """Both hubs are hub sources."""
    source = HubSource(HubKind.MODEL_SCOPE, "org/name", "master")
    assert judge(REQUEST, KUBELET, artifact(source=source)).source is source


def test_a_symlinked_kubelet_directory_is_accepted() -> None:
    """The root may be a link as long as target and root are followed alike."""
    linked = KubeletDirectory(PurePosixPath("/var/lib/kubelet"), PurePosixPath("/data/kubelet"))
    moved = TARGET.replace("/var/lib", "/data")
    assert judge(replace(REQUEST, resolved_target=moved), linked, artifact()).digest == DIGEST


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/a/b/c", True),
        ("//a/b/c", True),
        ("/a/b/./c/../d", True),
        ("/a/b", False),
        ("/a/b/..", False),
        ("/a/b/c/../..", False),
        ("a/b/c", False),
        ("/a/b/c\0", False),
        ("", False),
    ],
)
def test_lies_in_works_dots_out(path: str, *, inside: bool) -> None:
    """Strictly below the directory, and absolute."""
    assert lies_in(path, PurePosixPath("/a/b")) is inside
