"""Grants and prefetches at the webhooks: what is looked up, where, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.errors import Unreachable
from gpustack_delivery.vocabulary.consumers import INSTANCE_TYPES, MODEL_DEPLOYMENTS
from gpustack_delivery.vocabulary.resources import (
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODES,
    Json,
)
from gpustack_delivery.worker.granting import Granting
from tests.unit.decisions.warm import OTHER, SIZE
from tests.unit.fakes import eventually
from tests.unit.worker.warming_run import add, add_artifact, add_prefetch, cluster
from tests.unit.worker.world import ClusterKube, SteppedClock

GRANT: Json = {"storeRefs": [{"name": "pool"}], "quota": {"bytes": 3 * SIZE}}


@pytest.fixture
def kube() -> ClusterKube:
    """Return two GPU nodes, and a grant of three copies over the pool."""
    kube = cluster("node-a", "node-b")
    add(kube, MODEL_STORE_BINDINGS, "grant", GRANT)
    return kube


def wish(**spec: Any) -> Json:
    """Return a prefetch's spec: the artifact on every node."""
    return {
        "artifactRef": {"name": "model"},
        "bindingRef": {"name": "grant"},
        "placement": {"nodeSelector": {}},
        **spec,
    }


def judged(kube: ClusterKube, spec: Json, *, old: Json | None = None) -> str:
    """Return the field that is refused first, "" for none."""
    granting = Granting(kube, SteppedClock())
    return field(granting.judge_prefetch("team-a", "warm", old or {}, spec))


def field(denials: tuple[Denial, ...]) -> str:
    """Return the first field."""
    return denials[0].field if denials else ""


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, ""),
        ({"placement": {"nodeSelector": {}, "instanceTypes": ["a"]}}, "spec.placement"),
        ({"artifactRef": {"name": "none"}}, "spec.artifactRef.name"),
        ({"bindingRef": {"name": "none"}}, "spec.bindingRef.name"),
        ({"retention": {"pinned": True}}, "spec.retention.pinned"),
        ({"retention": {"ttlAfterLastUse": "9" * 30 + "h"}}, "spec.retention.ttlAfterLastUse"),
        ({"minReady": 3}, "spec.minReady"),
    ],
)
def test_the_first_fault_is_refused(
    kube: ClusterKube, change: dict[str, Any], refused: str
) -> None:
    """Each check with what it needs from the cluster."""
    assert judged(kube, wish(**change)) == refused


def test_targets_must_lie_in_a_granted_store_that_exists(kube: ClusterKube) -> None:
    """A store that has gone grants nothing any longer."""
    kube.remove(MODEL_STORES, "pool")
    assert judged(kube, wish()) == "spec.placement"


def test_the_namespaces_other_prefetches_count(kube: ClusterKube) -> None:
    """By what they would warm now, or by what they have; those on their way out do not."""
    add_artifact(kube, "other", digest=OTHER)
    add_prefetch(kube, "second", artifactRef={"name": "other"})
    add_prefetch(kube, "warm", artifactRef={"name": "other"})
    assert judged(kube, wish()) == "spec"
    add_prefetch(kube, "second", artifactRef={"name": "other"}, placement={"instanceTypes": ["x"]})
    assert judged(kube, wish()) == "", "it means no node"
    body = kube.find(MODEL_PREFETCHES, "second", "team-a")
    assert body is not None
    kube.put(MODEL_PREFETCHES, body | {"status": {"desiredNodes": 2}})
    assert judged(kube, wish()) == "spec", "it has not let go yet"
    body["metadata"]["deletionTimestamp"] = "2026-09-25T06:00:00Z"
    kube.put(MODEL_PREFETCHES, body | {"status": {"desiredNodes": 2}})
    assert judged(kube, wish()) == ""


def test_what_nobody_can_carry_out_weighs_nothing(kube: ClusterKube) -> None:
    """A broken prefetch, or one of an artifact that is missing, does not lock its namespace."""
    add_prefetch(kube, "broken", retention={"ttlAfterLastUse": "9" * 30 + "h"})
    add_prefetch(kube, "orphan", artifactRef={"name": "gone"})
    assert judged(kube, wish()) == ""


def test_an_unchanged_spec_is_not_judged_again(kube: ClusterKube) -> None:
    """So that an old prefetch can still be labelled, and let go."""
    spec = wish(artifactRef={"name": "gone"})
    assert judged(kube, spec, old=spec) == ""
    assert kube.calls == []


def test_derived_targets_come_from_deployments_and_kinds(kube: ClusterKube) -> None:
    """Read when they are needed; a cluster without these kinds has no such targets."""
    derived = wish(placement={}, minReady=1)
    kube.missing = {"modeldeployments", "instancetypes"}
    assert judged(kube, derived) == "spec.minReady"
    kube.missing = set()
    kind = {"generalGroup": "generic"}
    add(kube, INSTANCE_TYPES, "small", kind, namespace="")
    serving = {"model": {"artifactRef": {"name": "model"}}, "roles": [{"instanceType": "small"}]}
    add(kube, MODEL_DEPLOYMENTS, "serving", serving)
    assert judged(kube, derived) == "spec.minReady"
    labels = {"feature.gpustack.ai/acceleratable": "false"}
    kube.put(NODES, {"metadata": {"name": "node-c", "labels": labels}})
    assert judged(kube, derived) == ""


def test_nodes_come_from_the_copy_once_there_is_one(kube: ClusterKube) -> None:
    """Before, they are listed for each review."""
    granting = Granting(kube, SteppedClock())
    assert granting.judge_prefetch("team-a", "warm", {}, wish()) == ()
    assert kube.count("list nodes") == 1
    granting.start()
    try:
        eventually(lambda: kube.count("watch nodes"))
        assert granting.judge_prefetch("team-a", "warm", {}, wish()) == ()
        assert kube.count("list nodes") == 2, "the copy's own list, and no other"
    finally:
        granting.stop()


def test_a_failed_look_up_is_no_verdict(kube: ClusterKube) -> None:
    """It is an error of ours, for the webhook to answer as one."""
    kube.trouble.append(Unreachable("no answer", code=0))
    with pytest.raises(Unreachable):
        judged(kube, wish())


def test_bindings(kube: ClusterKube) -> None:
    """Shape before existence; a change is judged against what was, an unchanged spec is not."""
    granting = Granting(kube, SteppedClock())
    assert granting.judge_new_binding(GRANT) == ()
    nowhere = GRANT | {"storeRefs": [{"name": "nowhere"}]}
    assert field(granting.judge_new_binding(nowhere)) == "spec.storeRefs[0].name"
    assert field(granting.judge_new_binding(nowhere | {"quota": {}})) == "spec.quota.bytes"
    assert granting.judge_binding_update(GRANT, GRANT) == ()
    smaller = GRANT | {"quota": {"bytes": SIZE}}
    assert field(granting.judge_binding_update(GRANT, smaller)) == "spec.quota.bytes"
