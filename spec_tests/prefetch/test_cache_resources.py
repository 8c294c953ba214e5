"""prefetch#cache-resources: pools that override, grants that only grow, prefetches that end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.warming import Warming

NODES: Final = ("gpu-1", "gpu-2", "spare")
GPU: Final = {"pool": "gpu"}
Worlds = Callable[..., World]


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker and three nodes, two of them labelled as a pool, whose plugins only register.

    What a pool is configured with, the worker writes; nothing is delivered in most of these tests.
    """
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    for node in NODES:
        warming.register(node)
    for node in NODES[:2]:
        warming.label(node, GPU)
    return warming


def spec(warming: Warming, node: str) -> dict[str, Any]:
    """Return a node's effective configuration."""
    found: dict[str, Any] = warming.world.nodes[node].store().get("spec", {})
    return found


def follows(warming: Warming, node: str, ask: Callable[[dict[str, Any]], object]) -> None:
    """Wait until a node's configuration is as asked."""
    warming.world.until(
        lambda: ask(spec(warming, node)) or None, f"{node}'s configuration", within_seconds=60
    )


@pytest.mark.rule("MP-RES-01", "MP-RES-02")
def test_a_store_overrides_what_it_states_on_its_pool(warming: Warming) -> None:
    """Watermarks come from the store, the limits it leaves out from the Settings, elsewhere all."""
    warming.store(labels=GPU, watermarks={"highPercent": 60, "lowPercent": 50})
    follows(warming, "gpu-1", lambda found: found["watermarks"]["highPercent"] == 60)
    follows(warming, "gpu-2", lambda found: found["watermarks"]["lowPercent"] == 50)
    assert spec(warming, "gpu-1")["download"]["concurrency"] == 8
    assert spec(warming, "gpu-1")["store"] == "pool"
    assert spec(warming, "spare")["watermarks"] == {"highPercent": 80, "lowPercent": 70}
    assert "store" not in spec(warming, "spare")


@pytest.mark.rule("MP-RES-01")
def test_fields_are_overridden_one_by_one(warming: Warming) -> None:
    """A store of a concurrency alone keeps the cluster's watermarks and bandwidth."""
    warming.store(labels=GPU, download={"concurrency": 3})
    follows(warming, "gpu-1", lambda found: found["download"]["concurrency"] == 3)
    assert spec(warming, "gpu-1")["watermarks"] == {"highPercent": 80, "lowPercent": 70}
    assert spec(warming, "gpu-1")["download"].get("bytesPerSecond", 0) == 0


@pytest.mark.rule("MP-RES-01")
def test_an_explicit_zero_is_unlimited(warming: Warming) -> None:
    """Where the cluster limits downloads, 0 frees a pool, and leaving it out does not."""
    set_setting(warming.world, "model-store-download-bandwidth", "1Mi")
    follows(warming, "gpu-1", lambda found: found["download"]["bytesPerSecond"] == 1 << 20)
    warming.store(labels=GPU, download={"bytesPerSecond": 0})
    follows(warming, "gpu-1", lambda found: not found["download"].get("bytesPerSecond"))
    assert spec(warming, "spare")["download"]["bytesPerSecond"] == 1 << 20
    warming.change("ModelStore", "pool", download={"bytesPerSecond": None, "concurrency": 2})
    follows(warming, "gpu-1", lambda found: found["download"].get("bytesPerSecond") == 1 << 20)


@pytest.mark.rule("MP-RES-01", "NS-OWN-05")
@pytest.mark.parametrize(("high", "low"), [(70, 70), (96, 50), (60, 0)])
def test_watermarks_that_no_node_can_follow_are_refused(
    warming: Warming, high: int, low: int
) -> None:
    """The low one below the high one, and both within their bounds."""
    watermarks = {"highPercent": high, "lowPercent": low}
    warming.refused(warming.store, labels=GPU, watermarks=watermarks)


@pytest.mark.rule("MP-RES-02")
def test_a_node_joins_and_leaves_its_pool_by_label(warming: Warming) -> None:
    """The overrides come with the label and go with it, or with the store."""
    warming.store(labels=GPU, download={"concurrency": 3})
    warming.label("spare", GPU)
    follows(warming, "spare", lambda found: found["download"]["concurrency"] == 3)
    warming.label("spare", {"pool": None})
    follows(warming, "spare", lambda found: found["download"]["concurrency"] == 8)
    warming.delete("ModelStore", "pool")
    follows(warming, "gpu-1", lambda found: found["download"]["concurrency"] == 8)


@pytest.mark.rule("MP-RES-03")
def test_two_stores_on_one_node_say_so_and_the_first_name_wins(warming: Warming) -> None:
    """Both report SelectorOverlap; the shared nodes follow the first, the others their only one."""
    warming.store("b-all", download={"concurrency": 5})
    warming.wait("Ready", "Applied", "b-all", "ModelStore")
    assert warming.condition("SelectorOverlap", "b-all", "ModelStore")["status"] == "False"
    warming.store("a-gpu", labels=GPU, download={"concurrency": 3})
    for name in ("a-gpu", "b-all"):
        found = warming.wait("SelectorOverlap", "SharedNodes", name, "ModelStore")
        assert found["status"] == "True"
    follows(warming, "gpu-1", lambda found: found["download"]["concurrency"] == 3)
    assert spec(warming, "gpu-1")["store"] == "a-gpu"
    assert spec(warming, "spare")["download"]["concurrency"] == 5
    warming.wait("Ready", "Applied", "a-gpu", "ModelStore")
    warming.wait("Ready", "Overridden", "b-all", "ModelStore")
    warming.delete("ModelStore", "a-gpu")
    warming.wait("SelectorOverlap", "Exclusive", "b-all", "ModelStore")


@pytest.mark.rule("MP-RES-01")
def test_a_store_reports_its_pool(worlds: Worlds) -> None:
    """Status counts the nodes and adds their caches up."""
    warming = Warming(worlds(nodes=NODES[:2], worker=True))
    warming.store()
    warming.world.until(
        lambda: warming.status("pool", "ModelStore").get("capacity") or None,
        "the capacity",
        within_seconds=120,
    )
    status = warming.status("pool", "ModelStore")
    totals = [
        warming.world.nodes[node].store()["status"]["capacity"]["totalBytes"] for node in NODES[:2]
    ]
    assert status["nodes"] == 2
    assert status["capacity"]["totalBytes"] == sum(totals)


@pytest.mark.rule("MP-RES-04")
def test_without_a_grant_nothing_is_warmed(warming: Warming) -> None:
    """A namespace has no default grant, and another namespace's binding is not its own."""
    warming.store()
    artifact = warming.world.artifact()
    warming.binding(namespace="team-b")
    warming.refused(warming.prefetch, artifact)
    warming.binding(allowPinned=True)
    warming.prefetch(artifact, retention={"pinned": True})


@pytest.mark.rule("MP-RES-04")
def test_a_grant_of_a_store_that_does_not_exist_is_refused(warming: Warming) -> None:
    """The stores are named by the grant, and must be there."""
    message = warming.refused(warming.binding, stores=("nowhere",))
    assert "nowhere" in message


@pytest.mark.rule("MP-RES-05")
def test_the_stores_of_a_grant_stay(warming: Warming) -> None:
    """Another list is refused, also one that only grows or changes its order."""
    for name in ("pool", "second", "third"):
        warming.store(name)
    warming.binding(stores=("pool", "second"))
    for names in (("pool",), ("pool", "third"), ("pool", "second", "third"), ("second", "pool")):
        refs = [{"name": name} for name in names]
        message = warming.refused(warming.change, "ModelStoreBinding", "grant", storeRefs=refs)
        assert "is immutable" in message


@pytest.mark.rule("MP-RES-06")
def test_the_budget_only_grows_and_is_compared_by_value(warming: Warming) -> None:
    """1024Mi is 1Gi and no change; 1G is less than 1Gi; more is taken."""
    warming.store()
    warming.binding(quota="1Gi")
    for smaller in ("1G", "1023Mi", "1073741823"):
        message = warming.refused(
            warming.change, "ModelStoreBinding", "grant", quota={"bytes": smaller}
        )
        assert "cannot shrink" in message
    for enough in ("1024Mi", 1073741824, "2G"):
        warming.change("ModelStoreBinding", "grant", quota={"bytes": enough})


@pytest.mark.rule("MP-RES-07")
@pytest.mark.parametrize("off", [False, None])
def test_the_right_to_pin_only_turns_on(warming: Warming, *, off: bool | None) -> None:
    """It can be turned on later, and neither turned off nor left out again."""
    warming.store()
    warming.binding()
    warming.change("ModelStoreBinding", "grant", allowPinned=True)
    message = warming.refused(warming.change, "ModelStoreBinding", "grant", allowPinned=off)
    assert "cannot go back to false" in message


@pytest.mark.rule("MP-RES-08")
def test_a_prefetch_names_objects_of_its_own_namespace(warming: Warming) -> None:
    """An artifact or a grant of another namespace is none of its own."""
    warming.store()
    warming.world.artifact(namespace="team-b")
    warming.binding()
    assert "model" in warming.refused(warming.prefetch, "model")
    mine = warming.world.artifact("mine")
    warming.binding("theirs", namespace="team-b")
    message = warming.refused(warming.prefetch, mine, bindingRef={"name": "theirs"})
    assert "theirs" in message
    warming.prefetch(mine)
    found = warming.get("ModelPrefetch", "warm")
    assert found["spec"]["artifactRef"] == {"name": "mine"}


@pytest.mark.rule("MP-RES-09")
def test_a_deleted_prefetch_leaves_nothing_but_what_collection_takes(worlds: Worlds) -> None:
    """Its Pods and pins go at once; the bytes stay until the node needs the room."""
    world = worlds(worker=True)
    warming, node = Warming(world), world.node
    node.disk.place(node.cache_root, "259:9", 10_000_000)
    tree = Tree((File("model.bin", pseudo_random(5_000_000, seed=7), lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/five", tree))
    warming.store()
    warming.binding(allowPinned=True)
    warming.prefetch(artifact, retention={"pinned": True})
    warming.wait("Available", "MinReadyReached")
    assert warming.pinned(node.name) == [artifact.digest]
    warming.delete("ModelPrefetch", "warm")
    world.until(
        lambda: not warming.pods() and not warming.pinned(node.name),
        "Pods and pins are gone",
        within_seconds=60,
    )
    assert node.entry(artifact.digest)["state"] == "Ready"
    node.disk.fill(85)
    world.advance(900)
    world.until(lambda: not node.entry(artifact.digest), "the copy is collected", within_seconds=60)
