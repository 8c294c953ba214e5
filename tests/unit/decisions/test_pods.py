"""Pods: the volume of an artifact, the Pod that warms a node, and how such a Pod is read back."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.decisions.pods import Rendering, Taint, WarmUp, volume, warm_up
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch
from tests.unit.decisions.warm import DIGEST, OTHER, artifact, claimed, prefetch, rendering

DEDICATED = Taint("dedicated", "gpu", "NoSchedule")


def rendered(name: str = "warm", node: str = "node-a", attempt: int = 1, **how: Any) -> Any:
    """Return a rendered Pod."""
    return warm_up(prefetch(name), node, attempt, rendering(**how))


def read(body: Any, **status: Any) -> WarmUp:
    """Return how a Pod reads back, with a status."""
    return WarmUp.from_wire({**body, "status": status})


def test_the_volume_is_read_only_and_names_the_artifact() -> None:
    """Three attributes, and the Secret only when there is one."""
    plain, secret = volume(artifact()), volume(artifact(secret="hub-token"), "weights")
    assert plain == {
        "name": "model",
        "csi": {
            "driver": "model.csi.gpustack.ai",
            "readOnly": True,
            "volumeAttributes": {
                "artifact": "model",
                "artifactUID": "uid-model",
                "manifestDigest": DIGEST,
            },
        },
    }
    assert secret["name"] == "weights"
    assert secret["csi"]["nodePublishSecretRef"] == {"name": "hub-token"}
    unresolved = volume(artifact(digest=""))["csi"]["volumeAttributes"]
    assert unresolved["manifestDigest"] == ""
    assert "nodePublishSecretRef" not in volume(claimed())["csi"]


def test_the_pod_bears_two_labels_and_its_owner() -> None:
    """Nothing of its prefetch's own labels comes along."""
    metadata = rendered()["metadata"]
    assert metadata["labels"] == {
        "worker.gpustack.ai/model-prefetch": "warm",
        "worker.gpustack.ai/model-prefetch-digest": DIGEST.removeprefix("sha256:")[:32],
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ModelPrefetch", "uid-warm", True)
    assert metadata["namespace"] == "team-a"


def test_names_are_bounded_and_tell_attempts_apart() -> None:
    """Long names differ still, and labels stay within their length."""
    long = "p" * 250
    pods = [rendered(long, node, attempt) for node in ("a" * 240, "a" * 241) for attempt in (1, 2)]
    names = [pod["metadata"]["name"] for pod in pods]
    assert len(set(names)) == 4
    assert all(len(name) <= 253 for name in names)
    labels = pods[0]["metadata"]["labels"]
    assert len(labels["worker.gpustack.ai/model-prefetch"]) <= 63
    assert rendered()["metadata"]["name"] == rendered()["metadata"]["name"]
    assert rendered()["metadata"]["name"].startswith("warm-warmup-node-a-")


def test_taints_are_tolerated_unless_they_say_that_the_node_is_unwell() -> None:
    """A dedicated node is warmed; a cordoned or unreachable one is waited for."""
    unwell = (Taint("node.kubernetes.io/unschedulable", effect="NoSchedule"),)
    keyed = Taint("spot", effect="NoExecute")
    body = warm_up(prefetch(), "node-a", 1, rendering("image", DEDICATED, keyed, *unwell))
    assert body["spec"]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Equal", "effect": "NoExecute"},
    ]
    assert Taint.from_wire({"key": "spot", "effect": "NoExecute"}) == keyed


def test_the_fingerprint_tells_what_would_be_rendered_differently() -> None:
    """Image, Secret and tolerated taints; a cordon changes nothing."""
    base = rendering()
    others = {
        rendering("other").fingerprint,
        rendering(secret="token").fingerprint,
        rendering("image", DEDICATED).fingerprint,
    }
    assert len(others | {base.fingerprint}) == 4
    cordon = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
    assert rendering("image", cordon).fingerprint == base.fingerprint
    assert base.digest == DIGEST
    assert Rendering(artifact(digest=""), "image").digest == ""


def test_a_rendered_pod_reads_back() -> None:
    """Node, digest, attempt and fingerprint, before and after it is bound."""
    body = rendered(attempt=3)
    pod = read(body)
    assert (pod.node, pod.digest, pod.attempt) == ("node-a", DIGEST, 3)
    assert (pod.phase, pod.finished_at) == ("Pending", None)
    assert pod.fingerprint == rendering().fingerprint
    assert pod.is_live
    body["spec"]["nodeName"] = "node-b"
    assert read(body).node == "node-b"


def test_a_stranger_with_our_label_reads_as_nobodys() -> None:
    """A Pod that names no node, no digest and no attempt is none of ours."""
    body: Any = {
        "metadata": {"name": "x", "namespace": "team-a"},
        "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]},
    }
    pod = read(body)
    assert (pod.node, pod.digest, pod.attempt) == ("", "", 1)
    assert not pod.belongs_to(prefetch())
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body["spec"]["affinity"] = {"nodeAffinity": required}
    assert read(body).node == ""


def test_only_its_controller_owns_it() -> None:
    """By UID: a prefetch of the same name made anew is another."""
    pod = read(rendered())
    assert pod.belongs_to(prefetch())
    assert not pod.belongs_to(prefetch("other"))
    again = ModelPrefetch.from_wire({"metadata": {"name": "warm", "uid": "another"}, "spec": {}})
    assert not pod.belongs_to(again)


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        (
            {
                "containerStatuses": [
                    {"state": {"terminated": {"finishedAt": "1970-01-01T00:01:00Z"}}}
                ]
            },
            60.0,
        ),
        ({"conditions": [{"lastTransitionTime": "1970-01-01T00:02:00Z"}]}, 120.0),
        ({"containerStatuses": [{}], "conditions": [{"lastTransitionTime": None}]}, 30.0),
    ],
)
def test_when_it_ended(status: dict[str, Any], finished: float) -> None:
    """By its container, by a condition such as an eviction's, or at worst since it was made."""
    body = rendered()
    body["metadata"]["creationTimestamp"] = "1970-01-01T00:00:30Z"
    pod = read(body, phase="Failed", **status)
    assert pod.finished_at == finished
    assert not pod.is_live


def test_the_digest_label_follows_the_digest() -> None:
    """Another digest makes another name and another label."""
    other = warm_up(prefetch(), "node-a", 1, Rendering(artifact(digest=OTHER), "image"))
    assert other["metadata"]["name"] != rendered()["metadata"]["name"]
    assert other["metadata"]["labels"] != rendered()["metadata"]["labels"]
