"""Pools and grants at work: their statuses follow the cluster, and nothing else is written."""

from __future__ import annotations

from gpustack_delivery.vocabulary.resources import (
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODE_MODEL_STORES,
    NODES,
)
from tests.unit.decisions.warm import OTHER, SIZE
from tests.unit.worker.warming_run import (
    add,
    add_artifact,
    add_prefetch,
    add_report,
    cluster,
    held,
    reason,
    running,
    status,
)
from tests.unit.worker.world import ClusterKube, add_node, register

GPU = {"matchLabels": {"pool": "gpu"}}


def used(kube: ClusterKube) -> str | None:
    """Return the grant's measured figure as it stands there."""
    found: str | None = status(kube, MODEL_STORE_BINDINGS, "grant").get("usedBytes")
    return found


def test_a_pool_counts_its_nodes() -> None:
    """Nodes that join and leave by label or altogether, and whether they have the overrides."""
    kube = cluster("node-a")
    with running(kube) as run:
        assert status(kube, MODEL_STORES, "pool")["nodes"] == 1
        assert reason(kube, MODEL_STORES, "pool", "Ready") == "Applied"
        add(kube, MODEL_STORES, "pool", {"nodeSelector": GPU}, namespace="", generation=2)
        add_node(kube, "node-b", registered=False, pool="gpu")
        run.until(lambda: status(kube, MODEL_STORES, "pool").get("nodes") == 2)
        assert reason(kube, MODEL_STORES, "pool", "Ready") == "Applied"
        register(kube, "node-b")
        run.until(lambda: reason(kube, MODEL_STORES, "pool", "Ready") == "Applying")
        add_report(kube, "node-b")
        run.until(lambda: reason(kube, MODEL_STORES, "pool", "Ready") == "Applied")
        kube.put(NODES, {"metadata": {"name": "node-a", "labels": {}}})
        kube.remove(NODES, "node-b")
        run.until(lambda: reason(kube, MODEL_STORES, "pool", "Ready") == "NoNodes")


def test_capacities_are_added_up_twice_a_minute_at_most() -> None:
    """A report that moves only them is not hurried."""
    kube = cluster("node-a")
    with running(kube) as run:
        assert status(kube, MODEL_STORES, "pool")["capacity"]["totalBytes"] == 100
        add_report(kube, "node-a", total=300)
        run.advance(29)
        assert status(kube, MODEL_STORES, "pool")["capacity"]["totalBytes"] == 100
        run.advance(1)
        assert status(kube, MODEL_STORES, "pool")["capacity"]["totalBytes"] == 300


def test_the_changes_of_a_large_pools_nodes_are_gathered() -> None:
    """Thirty nodes that come to follow one after the other cost three passes, not thirty."""
    names = [f"node-{number}" for number in range(30)]
    kube = cluster(*names)
    with running(kube) as run:
        before = run.passes("stores")
        for name in names:
            stored = kube.find(NODE_MODEL_STORES, name)
            assert stored is not None
            kube.put(NODE_MODEL_STORES, stored | {"spec": stored["spec"] | {"store": "another"}})
            run.advance(0.3)
        run.advance(3)
        assert reason(kube, MODEL_STORES, "pool", "Ready") == "Applying"
        assert run.passes("stores") - before <= 4


def test_a_spec_that_is_none_of_its_business_causes_no_pass() -> None:
    """Pins and Settings that a store does not override come to a pool without a look at it."""
    kube = cluster("node-a")
    with running(kube) as run:
        passes = run.passes("stores")
        stored = kube.find(NODE_MODEL_STORES, "node-a")
        assert stored is not None
        other = stored["spec"] | {"download": {"concurrency": 3}, "pinned": [OTHER]}
        kube.put(NODE_MODEL_STORES, stored | {"spec": other})
        run.advance(5)
        assert run.passes("stores") == passes
        kube.put(NODE_MODEL_STORES, stored | {"spec": other | {"store": "another"}})
        run.advance(5)
        assert reason(kube, MODEL_STORES, "pool", "Ready") == "Applying"


def test_an_overlap_is_seen_by_both_and_ends_for_both() -> None:
    """The store that was there first hears of the other's coming and going."""
    kube = cluster("node-a")
    with running(kube) as run:
        add(kube, MODEL_STORES, "another", {"nodeSelector": {}}, namespace="")
        run.until(lambda: reason(kube, MODEL_STORES, "pool", "SelectorOverlap") == "SharedNodes")
        assert reason(kube, MODEL_STORES, "another", "SelectorOverlap") == "SharedNodes"
        assert reason(kube, MODEL_STORES, "pool", "Ready") == "Overridden"
        kube.remove(MODEL_STORES, "another")
        run.until(lambda: reason(kube, MODEL_STORES, "pool", "SelectorOverlap") == "Exclusive")


def test_a_footprint_follows_prefetches_artifacts_and_holders() -> None:
    """Zero, then what is held, unmeasured while anything is unresolved, and zero again."""
    kube = cluster("node-a", "node-b")
    with running(kube) as run:
        assert used(kube) == "0"
        add_report(kube, "node-a", held("Failed", sizeBytes=0))
        run.rest()
        add_prefetch(kube)
        run.until(lambda: used(kube) == str(SIZE))
        add_report(kube, "node-b", held())
        run.advance(1)
        assert used(kube) == str(2 * SIZE)
        add_artifact(kube, "other", digest="")
        add_prefetch(kube, "second", artifactRef={"name": "other"})
        run.until(lambda: used(kube) is None)
        assert reason(kube, MODEL_STORE_BINDINGS, "grant", "OverQuota") == "Unmeasured"
        add_artifact(kube, "other", digest=OTHER)
        run.until(lambda: used(kube) == str(2 * SIZE))
        kube.remove(MODEL_PREFETCHES, "warm", "team-a")
        run.until(lambda: used(kube) == "0")
        before = kube.count("apply modelstorebindings")
        add_report(kube, "node-b", held(lastUsedTime="2026-09-25T06:00:00Z"))
        run.advance(3600)
        assert kube.count("apply modelstorebindings") == before


def test_a_grant_says_that_its_store_is_gone() -> None:
    """And that it is back, and what a larger grant makes of it."""
    kube = cluster("node-a")
    with running(kube) as run:
        assert status(kube, MODEL_STORE_BINDINGS, "grant")["phase"] == "Ready"
        kube.remove(MODEL_STORES, "pool")
        run.until(lambda: reason(kube, MODEL_STORE_BINDINGS, "grant", "Ready") == "StoreMissing")
        assert status(kube, MODEL_STORE_BINDINGS, "grant")["phase"] == "Error"
        add(kube, MODEL_STORES, "pool", {"nodeSelector": {}}, namespace="")
        run.until(lambda: reason(kube, MODEL_STORE_BINDINGS, "grant", "Ready") == "Accounted")
        add_report(kube, "node-a", held())
        run.rest()
        add_prefetch(kube)
        small = {"storeRefs": [{"name": "pool"}], "quota": {"bytes": SIZE - 1}}
        add(kube, MODEL_STORE_BINDINGS, "grant", small, generation=2)
        run.until(lambda: status(kube, MODEL_STORE_BINDINGS, "grant")["phase"] == "OverQuota")
