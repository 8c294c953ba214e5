"""Prefetches at work: Pods come and go, pins are a union, and a cluster at rest is not written."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.errors import Forbidden
from gpustack_delivery.vocabulary import settings
from gpustack_delivery.vocabulary.consumers import INSTANCE_TYPES, MODEL_DEPLOYMENTS
from gpustack_delivery.vocabulary.resources import (
    EVENTS,
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    NODE_MODEL_STORES,
    NODES,
    PODS,
)
from tests.unit.decisions.warm import DIGEST, OTHER
from tests.unit.worker.node_stores_run import set_setting
from tests.unit.worker.warming_run import (
    add,
    add_artifact,
    add_prefetch,
    add_report,
    cluster,
    held,
    node_of,
    pinned,
    pods,
    reason,
    running,
    status,
)
from tests.unit.worker.world import ClusterKube, add_node

PINNED = {"pinned": True}


def finish(kube: ClusterKube, phase: str) -> None:
    """End every Pod."""
    for pod in kube.all(PODS):
        kube.put(PODS, pod | {"status": {"phase": phase}})


def test_a_prefetch_from_its_creation_to_its_end() -> None:
    """Pods for waiting nodes, counts as they report, no Pod when they are done, none afterwards."""
    kube = cluster("node-a", "node-b")
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: pods(kube) == ["node-a", "node-b"])
        assert status(kube, MODEL_PREFETCHES, "warm")["downloadingNodes"] == 2
        add_report(kube, "node-a", held())
        finish(kube, "Succeeded")
        run.advance(1)
        assert status(kube, MODEL_PREFETCHES, "warm")["readyNodes"] == 1
        assert pods(kube) == ["node-b"], "the other node does not hold the content yet"
        add_report(kube, "node-b", held())
        finish(kube, "Succeeded")
        run.advance(1)
        assert pods(kube) == []
        assert reason(kube, MODEL_PREFETCHES, "warm", "Available") == "MinReadyReached"
        kube.remove(MODEL_PREFETCHES, "warm", "team-a")
        run.advance(60)
        assert pods(kube) == []


def test_a_cluster_at_rest_is_not_written() -> None:
    """Hours without a change, and reports that change nothing that counts, cost no write."""
    kube = cluster("node-a")
    add_report(kube, "node-a", held("Downloading", downloadedBytes=1))
    with running(kube) as run:
        add_prefetch(kube, retention=PINNED)
        run.until(lambda: pinned(kube, "node-a") == [DIGEST])
        run.advance(60)
        before = kube.count("apply"), kube.count("create")
        add_report(kube, "node-a", held("Downloading", downloadedBytes=500))
        run.advance(3600)
        assert (kube.count("apply"), kube.count("create")) == before


def test_a_failed_attempt_is_replaced_after_its_pause() -> None:
    """The Pod that failed stays as the record until then."""
    kube = cluster("node-a")
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: pods(kube))
        (first,) = kube.all(PODS)
        ended = [{"lastTransitionTime": "1970-01-01T00:00:00Z"}]
        kube.put(PODS, first | {"status": {"phase": "Failed", "conditions": ended}})
        run.advance(1)
        (second,) = kube.all(PODS)
        assert second["metadata"]["name"] != first["metadata"]["name"]
        attempt = second["metadata"]["annotations"]["worker.gpustack.ai/model-prefetch-attempt"]
        assert attempt == "2"


def test_an_unfinished_creation_is_not_repeated() -> None:
    """What the server has already is not made twice, and not told as a failure."""
    kube = cluster("node-a")
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: pods(kube))
        (pod,) = kube.all(PODS)
        pod["metadata"]["labels"] = {}
        pod["metadata"]["ownerReferences"] = []
        kube.put(PODS, pod)  # the copy no longer takes it for ours, as if it had not seen it yet
        run.advance(60)
        assert len(kube.all(PODS)) == 1
        assert kube.all(EVENTS) == []


def test_a_refused_pod_is_told_and_the_rest_goes_on() -> None:
    """A quota's no becomes an Event; the status is written, and the Pod comes later."""
    kube = cluster("node-a")

    refused = Forbidden("exceeded quota", code=403)
    create = kube.create

    def refuse(resource: Any, body: Any, namespace: str = "") -> Any:
        if resource is PODS:
            raise refused
        return create(resource, body, namespace)

    kube.create = refuse  # type: ignore[method-assign]  # a policy for a while
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: kube.all(EVENTS))
        (event,) = kube.all(EVENTS)
        assert (event["reason"], event["type"]) == ("WarmUpRefused", "Warning")
        assert "node-a" in event["message"]
        assert "quota" in event["message"]
        assert status(kube, MODEL_PREFETCHES, "warm")["desiredNodes"] == 1
        kube.create = create  # type: ignore[method-assign]  # the end of it
        run.advance(30)
        assert pods(kube) == ["node-a"]


def test_pins_are_the_union_over_namespaces() -> None:
    """It shrinks by what nobody asks for any longer, and is not touched before all is known."""
    kube = cluster("node-a")
    add_artifact(kube, "other", digest=OTHER)
    add_prefetch(kube, "one", retention=PINNED)
    add_prefetch(kube, "two", retention=PINNED)
    add_prefetch(kube, "three", artifactRef={"name": "other"}, retention=PINNED)
    stored = kube.find(NODE_MODEL_STORES, "node-a")
    assert stored is not None
    stored["spec"]["pinned"] = [DIGEST, OTHER]
    kube.put(NODE_MODEL_STORES, stored)
    with running(kube) as run:
        assert kube.count("apply nodemodelstores") == 0, "what is pinned already is what is wanted"
        kube.remove(MODEL_PREFETCHES, "one", "team-a")
        run.rest()
        assert pinned(kube, "node-a") == [DIGEST, OTHER]
        kube.remove(MODEL_PREFETCHES, "two", "team-a")
        run.until(lambda: pinned(kube, "node-a") == [OTHER])
        add_prefetch(kube, "three", artifactRef={"name": "model"}, retention=PINNED, generation=2)
        run.until(lambda: pinned(kube, "node-a") == [DIGEST])
        kube.remove(MODEL_PREFETCHES, "three", "team-a")
        run.until(lambda: pinned(kube, "node-a") == [])


def test_a_new_object_gets_its_pins() -> None:
    """An object that was deleted and made anew is pinned like the one before."""
    kube = cluster("node-a")
    add_prefetch(kube, retention=PINNED)
    with running(kube) as run:
        run.until(lambda: pinned(kube, "node-a") == [DIGEST])
        kube.remove(NODE_MODEL_STORES, "node-a")
        run.rest()
        add_report(kube, "node-a")
        run.until(lambda: pinned(kube, "node-a") == [DIGEST])


def test_the_right_to_pin_comes_and_goes_with_the_grant() -> None:
    """A grant that is gone pins nothing."""
    kube = cluster("node-a")
    add_prefetch(kube, retention=PINNED)
    with running(kube) as run:
        run.until(lambda: pinned(kube, "node-a") == [DIGEST])
        kube.remove(MODEL_STORE_BINDINGS, "grant", "team-a")
        run.until(lambda: pinned(kube, "node-a") == [])


def test_targets_follow_labels_kinds_and_deployments() -> None:
    """Whatever moves them is noticed: a label, an InstanceType, a deployment, a node's end."""
    kube = cluster("node-a", "node-b")
    gpu = "acceleratable.feature.gpustack.ai/nvidia"
    with running(kube) as run:
        add_prefetch(kube, "label", placement={"nodeSelector": {"matchLabels": {"x": "y"}}})
        add_prefetch(kube, "kind", placement={"instanceTypes": ["a100"]})
        add_prefetch(kube, "derived", placement={})
        run.until(lambda: reason(kube, MODEL_PREFETCHES, "derived", "Progressing") == "NoTargets")
        kube.put(NODES, {"metadata": {"name": "node-a", "labels": {"x": "y", gpu: "true"}}})
        run.until(lambda: pods(kube) == ["node-a"])
        kind = {"acceleratable": True, "acceleratorGroup": "nvidia"}
        add(kube, INSTANCE_TYPES, "a100", kind, namespace="")
        run.until(lambda: pods(kube) == ["node-a"] * 2)
        serving = {"model": {"artifactRef": {"name": "model"}}, "roles": [{"instanceType": "a100"}]}
        add(kube, MODEL_DEPLOYMENTS, "serving", serving)
        run.until(lambda: pods(kube) == ["node-a"] * 3)
        kube.remove(NODES, "node-a")
        run.until(lambda: pods(kube) == [])
        assert reason(kube, MODEL_PREFETCHES, "kind", "Progressing") == "NoTargets"


def test_a_faulty_placement_is_said_and_warms_nothing() -> None:
    """One that slipped past admission does no harm."""
    kube = cluster("node-a")
    with running(kube) as run:
        add_prefetch(kube, placement={"instanceTypes": ["a"], "nodeSelector": {}})
        run.until(
            lambda: reason(kube, MODEL_PREFETCHES, "warm", "Progressing") == "PlacementInvalid"
        )
        assert pods(kube) == []


def test_an_artifact_is_awaited_and_missed() -> None:
    """Nothing is made before it resolves; when it goes, the Pods go and the status says so."""
    kube = cluster("node-a")
    add_artifact(kube, digest="")
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: reason(kube, MODEL_PREFETCHES, "warm", "Progressing") == "Delivering")
        assert pods(kube) == []
        add_artifact(kube)
        run.until(lambda: pods(kube) == ["node-a"])
        kube.remove(MODEL_ARTIFACTS, "model", "team-a")
        run.until(lambda: pods(kube) == [])
        assert reason(kube, MODEL_PREFETCHES, "warm", "Degraded") == "ArtifactMissing"


def test_a_new_image_replaces_pods_that_have_not_begun() -> None:
    """The Setting's change is enough."""
    kube = cluster("node-a")
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: pods(kube))
        set_setting(kube, settings.WARMUP_IMAGE, "registry.example/tools:1")

        def images() -> list[str]:
            return [pod["spec"]["containers"][0]["image"] for pod in kube.all(PODS)]

        run.until(lambda: images() == ["registry.example/tools:1"])


def test_many_nodes_are_warmed_in_batches() -> None:
    """Eight at once, the others soon after."""
    kube = cluster(*(f"node-{number:02}" for number in range(10)))
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: len(pods(kube)) == 8)
        run.advance(5)
        assert len(pods(kube)) == 10


def test_a_late_node_is_a_target_too() -> None:
    """It gets its Pod when it joins."""
    kube = cluster("node-a")
    with running(kube) as run:
        add_prefetch(kube)
        run.until(lambda: pods(kube) == ["node-a"])
        add_node(kube, "node-b", pool="gpu")
        run.until(lambda: pods(kube) == ["node-a", "node-b"])
        assert {node_of(pod) for pod in kube.all(PODS)} == {"node-a", "node-b"}
