"""Admission: what is refused, by which field, and how the messages begin."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.decisions.admission import (
    BOUND_TOKEN,
    IDENTITY,
    OWN_NODE,
    PLUGIN_ONLY,
    WORKER_ONLY,
    BoundPod,
    PodFacts,
    Requester,
    default_revision,
    judge_artifact,
    judge_artifact_status,
    judge_artifact_update,
    judge_bound_pod,
    judge_store_status,
)

PLUGIN = "system:serviceaccount:gpustack-system:model-manager"
POD = {
    "authentication.kubernetes.io/pod-name": ("plugin-x",),
    "authentication.kubernetes.io/pod-uid": ("uid-1",),
}
NODE_A = {"authentication.kubernetes.io/node-name": ("node-a",)}
DIGEST = "sha256:" + "0" * 64
HUB = {"repository": "Qwen/Qwen2.5-0.5B", "revision": "main"}


def fields(spec: dict[str, Any]) -> list[str]:
    """Return the fields a new artifact is refused by, on a cluster that mounts images."""
    return [denial.field for denial in judge_artifact(spec, image_volumes=True)]


@pytest.mark.parametrize(
    "spec",
    [
        {"source": {"huggingFace": HUB}},
        {"source": {"modelScope": HUB | {"secretRef": {"name": "hf-token"}}}},
        {
            "source": {"huggingFace": HUB},
            "allowPatterns": ["*.json", "é" * 256],
            "ignorePatterns": ["original/"],
            "expectedDigest": DIGEST,
        },
        {"source": {"persistentVolumeClaim": {"claimName": "weights"}}},
        {"source": {"persistentVolumeClaim": {"claimName": "weights", "path": "a/..b"}}},
        {"source": {"image": {"reference": f"registry:5000/a/b@{DIGEST}"}}},
    ],
)
def test_good_artifacts_pass(spec: dict[str, Any]) -> None:
    """Every kind of source has a form that passes."""
    assert fields(spec) == []


@pytest.mark.parametrize(
    "source", [{}, {"huggingFace": HUB, "image": {"reference": "x"}}, {"ftp": {}}, None]
)
def test_exactly_one_source(source: Any) -> None:
    """None, two, and one this version does not know are refused together."""
    assert fields({"source": source}) == ["spec.source"]


@pytest.mark.parametrize(
    "repository",
    [
        "",
        "/",
        "a/",
        "a/b/c",
        "-a",
        "a-",
        ".a",
        "a.",
        "a--b",
        "a..b",
        "a b",
        "a\n",
        "é/b",
        "a" * 97,
        "https://huggingface.co/a/b",
    ],
)
def test_repositories_refused(repository: str) -> None:
    """A repository is one or two plain names."""
    spec = {"source": {"huggingFace": HUB | {"repository": repository}}}
    assert fields(spec) == ["spec.source.huggingFace.repository"]


@pytest.mark.parametrize("repository", ["gpt2", "_a_/b.c-d", "a" * 96 + "/b", "A1/_"])
def test_repositories_taken(repository: str) -> None:
    """Letters, digits, underscores, dashes and dots make a repository's name."""
    assert fields({"source": {"modelScope": HUB | {"repository": repository}}}) == []


@pytest.mark.parametrize("revision", ["", "a b", "a\tb", "a\x7f", "a\u00a0b", "r" * 256])
def test_revisions_refused(revision: str) -> None:
    """A revision is one word; after defaulting it is never empty."""
    spec = {"source": {"modelScope": HUB | {"revision": revision}}}
    assert fields(spec) == ["spec.source.modelScope.revision"]


def test_revisions_taken() -> None:
    """Slashes and other scripts may name a branch."""
    assert fields({"source": {"huggingFace": HUB | {"revision": "refs/pr/1-ünïcode"}}}) == []


def test_secret_name_is_an_objects_name() -> None:
    """A Secret that cannot exist is refused though the Secret itself is not read."""
    spec = {"source": {"huggingFace": HUB | {"secretRef": {"name": "My_Token"}}}}
    assert fields(spec) == ["spec.source.huggingFace.secretRef.name"]


@pytest.mark.parametrize(
    ("claim", "field"),
    [
        ({"claimName": ""}, "claimName"),
        ({"claimName": "w", "path": "/abs"}, "path"),
        ({"claimName": "w", "path": "a/../b"}, "path"),
        ({"claimName": "w", "path": "a" * 1025}, "path"),
    ],
)
def test_claims_refused(claim: dict[str, str], field: str) -> None:
    """A claim's path stays below its root."""
    spec = {"source": {"persistentVolumeClaim": claim}}
    assert fields(spec) == [f"spec.source.persistentVolumeClaim.{field}"]


@pytest.mark.parametrize(
    "reference", ["a:latest", "a", f"a b@{DIGEST}", "a@sha256:" + "A" * 64, f"@{DIGEST}"]
)
def test_images_must_be_pinned(reference: str) -> None:
    """Tags, spaces and malformed digests are refused."""
    spec = {"source": {"image": {"reference": reference}}}
    assert fields(spec) == ["spec.source.image.reference"]


def test_images_need_a_cluster_that_mounts_them() -> None:
    """On an older or unknown cluster an image source is refused with what to do instead."""
    (denial,) = judge_artifact(
        {"source": {"image": {"reference": f"a@{DIGEST}"}}}, image_volumes=False
    )
    assert (denial.field, "1.35" in denial.message) == ("spec.source.image", True)


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"allowPatterns": ["a\nb"]}, "spec.allowPatterns[0]"),
        ({"ignorePatterns": ["a", ""]}, "spec.ignorePatterns[1]"),
        ({"allowPatterns": ["a" * 257]}, "spec.allowPatterns[0]"),
        ({"allowPatterns": ["a"] * 33}, "spec.allowPatterns"),
        ({"expectedDigest": "sha256:" + "A" * 64}, "spec.expectedDigest"),
    ],
)
def test_patterns_and_anchors_refused(extra: dict[str, Any], field: str) -> None:
    """Patterns are short plain lines, and an expected digest is one."""
    assert fields({"source": {"huggingFace": HUB}, **extra}) == [field]


def test_hub_only_fields() -> None:
    """Patterns and an expected digest are refused beside a claim."""
    spec = {
        "source": {"persistentVolumeClaim": {"claimName": "w"}},
        "allowPatterns": ["*"],
        "expectedDigest": DIGEST,
    }
    denials = judge_artifact(spec, image_volumes=True)
    assert [denial.field for denial in denials] == ["spec.allowPatterns", "spec.expectedDigest"]
    assert denials[0].message.startswith("patterns select files of a hub source")


def test_default_revision() -> None:
    """An absent or empty revision gets its hub's default; a given one and other sources none."""
    patch = default_revision({"source": {"modelScope": {"repository": "a"}}})
    assert patch == [{"op": "add", "path": "/spec/source/modelScope/revision", "value": "master"}]
    patch = default_revision({"source": {"huggingFace": {"repository": "a", "revision": ""}}})
    assert patch[0]["value"] == "main"
    assert default_revision({"source": {"huggingFace": HUB}}) == []
    assert default_revision({"source": {"image": {}}}) == []
    assert default_revision({}) == []


def test_an_artifact_is_an_identity() -> None:
    """A changed spec is refused as a whole; an unchanged one is not judged, even a bad one."""
    bad: dict[str, Any] = {"source": {}}
    assert judge_artifact_update(bad, bad) == ()
    (denial,) = judge_artifact_update({"source": {"huggingFace": HUB}}, bad)
    assert denial.field == "spec"
    assert denial.message.startswith(IDENTITY)
    assert IDENTITY == "a ModelArtifact is an identity"


def test_only_the_worker_writes_artifact_status() -> None:
    """Anyone but the worker itself is refused, cluster administrators included."""
    assert judge_artifact_status(Requester("worker"), "worker") == ()
    (denial,) = judge_artifact_status(Requester("admin\n" * 99), "worker")
    assert denial.message.startswith("only the worker writes a ModelArtifact's status")
    assert WORKER_ONLY in denial.message
    assert "\n" not in denial.message


def test_token_with_node_needs_no_lookup() -> None:
    """From 1.30 on the token names its node, and that decides at once."""
    assert judge_store_status(Requester(PLUGIN, POD | NODE_A), "node-a", PLUGIN) == ()
    verdict = judge_store_status(Requester(PLUGIN, POD | NODE_A), "node-b", PLUGIN)
    assert isinstance(verdict, tuple)
    assert verdict[0].message.startswith(OWN_NODE)
    assert OWN_NODE == "the plugin writes only the status of the node its Pod runs on"


def test_token_without_node_needs_its_pod() -> None:
    """On 1.29 the Pod is looked up; an ambiguous node is as good as none."""
    assert judge_store_status(Requester(PLUGIN, POD), "node-a", PLUGIN) == BoundPod(
        "plugin-x", "uid-1"
    )
    twice = POD | {"authentication.kubernetes.io/node-name": ("node-a", "node-b")}
    assert isinstance(judge_store_status(Requester(PLUGIN, twice), "node-a", PLUGIN), BoundPod)


@pytest.mark.parametrize(
    ("requester", "begins"),
    [
        (Requester("system:admin", POD | NODE_A), PLUGIN_ONLY),
        (Requester(PLUGIN + "x", POD | NODE_A), PLUGIN_ONLY),
        (Requester(""), PLUGIN_ONLY),
        (Requester(PLUGIN), BOUND_TOKEN),
        (Requester(PLUGIN, NODE_A), BOUND_TOKEN),
        (Requester(PLUGIN, {"authentication.kubernetes.io/pod-name": ("p",)}), BOUND_TOKEN),
        (
            Requester(PLUGIN, POD | {"authentication.kubernetes.io/pod-uid": ("a", "b")}),
            BOUND_TOKEN,
        ),
    ],
)
def test_strangers_and_unbound_tokens(requester: Requester, begins: str) -> None:
    """The username comes first, then the binding to a Pod, whatever the node says."""
    verdict = judge_store_status(requester, "node-a", PLUGIN)
    assert isinstance(verdict, tuple)
    (denial,) = verdict
    assert (denial.field, denial.message.startswith(begins)) == ("status", True)


def test_message_beginnings() -> None:
    """The documented beginnings, word for word."""
    assert PLUGIN_ONLY == "only the model-manager plugin writes a NodeModelStore's status"
    assert BOUND_TOKEN == "the plugin's token must be bound to its Pod"


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (PodFacts("uid-1", "node-a"), True),
        (None, False),
        (PodFacts("uid-2", "node-a"), False),
        (PodFacts("uid-1", "node-b"), False),
        (PodFacts("uid-1", ""), False),
    ],
)
def test_bound_pod(found: PodFacts | None, *, allowed: bool) -> None:
    """The Pod exists, is that very one, and runs on the object's node."""
    denials = judge_bound_pod(BoundPod("plugin-x", "uid-1"), found, "node-a")
    assert (denials == ()) is allowed
    assert all(denial.message.startswith(OWN_NODE) for denial in denials)
