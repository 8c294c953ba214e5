"""prefetch#pinning-and-expiry: what stays, for whom, and until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.warming import Warming

NODES: Final = ("node-a", "node-b")
PINNED: Final = {"pinned": True}
Worlds = Callable[..., World]


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker, two registered nodes whose reports the test writes, and grants to pin."""
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    for node in NODES:
        warming.register(node)
    warming.store()
    warming.binding(allowPinned=True)
    return warming


def until_pinned(warming: Warming, node: str, *digests: str) -> None:
    """Wait until a node's list of pins is this one, in ascending order."""
    warming.world.until(
        lambda: warming.pinned(node) == sorted(digests), f"{node}'s pins", within_seconds=60
    )


@pytest.mark.rule("MP-PIN-01")
def test_a_pinned_copy_outlives_collection(worlds: Worlds) -> None:
    """Over the high watermark the pinned copy stays, counts, and the saturation is reported."""
    world = worlds(worker=True)
    warming, node = Warming(world), world.node
    node.disk.place(node.cache_root, "259:9", 10_000_000)
    tree = Tree((File("model.bin", pseudo_random(5_000_000, seed=7), lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/five", tree))
    warming.store()
    warming.binding(allowPinned=True)
    warming.prefetch(artifact, retention=PINNED)
    warming.wait("Available", "MinReadyReached")
    until_pinned(warming, node.name, artifact.digest)
    node.disk.fill(85)
    world.advance(900)
    world.until(
        lambda: node.condition("CapacityLow").get("status") == "True",
        "the saturation is reported",
        within_seconds=60,
    )
    assert node.entry(artifact.digest)["state"] == "Ready"
    assert node.store()["status"]["capacity"]["storedBytes"] >= 5_000_000


@pytest.mark.rule("MP-PIN-01")
def test_a_target_is_pinned_before_its_copy_is_there(warming: Warming) -> None:
    """The pin waits for the copy, so that nothing can be collected in between."""
    artifact = warming.world.artifact()
    warming.prefetch(artifact, retention=PINNED)
    for node in NODES:
        until_pinned(warming, node, artifact.digest)
    warming.change("ModelPrefetch", "warm", retention=None)
    for node in NODES:
        until_pinned(warming, node)


@pytest.mark.rule("MP-PIN-02")
def test_two_namespaces_keep_both_digests(warming: Warming) -> None:
    """The list is the union; it shrinks only by what nobody asks for any longer."""
    world = warming.world
    warming.binding(namespace="team-b", allowPinned=True)
    tree = Tree((File("model.bin", pseudo_random(1_000, seed=9), lfs=True),))
    theirs = world.artifact("theirs", namespace="team-b", repository=world.repository("b/b", tree))
    mine = world.artifact()
    warming.prefetch(mine, retention=PINNED)
    warming.prefetch(theirs, namespace="team-b", retention=PINNED)
    warming.prefetch(mine, "again", retention=PINNED)
    for node in NODES:
        until_pinned(warming, node, mine.digest, theirs.digest)
    warming.delete("ModelPrefetch", "warm")
    world.advance(60)
    until_pinned(warming, "node-a", mine.digest, theirs.digest)
    warming.delete("ModelPrefetch", "again")
    until_pinned(warming, "node-a", theirs.digest)


@pytest.mark.rule("MP-PIN-02")
def test_pins_and_configuration_do_not_undo_each_other(warming: Warming) -> None:
    """A Setting drops no pin, a pin reverts no Setting, and a new object gets both."""
    artifact = warming.world.artifact()
    warming.prefetch(artifact, retention=PINNED)
    until_pinned(warming, "node-a", artifact.digest)
    set_setting(warming.world, "model-store-download-concurrency", "3")
    warming.world.until(lambda: concurrency(warming) == 3, "the Setting", within_seconds=60)
    assert warming.pinned("node-a") == [artifact.digest]
    warming.delete("ModelPrefetch", "warm")
    until_pinned(warming, "node-a")
    assert concurrency(warming) == 3
    warming.prefetch(artifact, retention=PINNED)
    warming.api.delete("worker.gpustack.ai/v1alpha1", "NodeModelStore", "node-a")
    until_pinned(warming, "node-a", artifact.digest)
    assert concurrency(warming) == 3


def concurrency(warming: Warming, node: str = "node-a") -> int:
    """Return a node's download concurrency, 0 while it has no object."""
    spec = warming.world.nodes[node].store().get("spec", {})
    return int(spec.get("download", {}).get("concurrency", 0))


@pytest.mark.rule("MP-PIN-03")
def test_a_copy_that_nothing_mounted_for_long_is_unpinned(warming: Warming) -> None:
    """Only on the node where it is stale; one in use or used lately keeps its pin."""
    artifact = warming.world.artifact()
    warming.prefetch(artifact, retention={"pinned": True, "ttlAfterLastUse": "48h"})
    warming.report("node-a", warming.held(artifact, unused_hours=50))
    warming.report("node-b", warming.held(artifact, unused_hours=46))
    until_pinned(warming, "node-a")
    until_pinned(warming, "node-b", artifact.digest)
    warming.report("node-a", warming.held(artifact))
    until_pinned(warming, "node-a", artifact.digest)


@pytest.mark.rule("MP-PIN-03")
def test_a_copy_lapses_when_its_time_has_come(warming: Warming) -> None:
    """Nothing else has to happen: the hour passes, and the pin goes."""
    artifact = warming.world.artifact()
    warming.prefetch(artifact, retention={"pinned": True, "ttlAfterLastUse": "1h"})
    for node in NODES:
        warming.report(node, warming.held(artifact))
    until_pinned(warming, "node-a", artifact.digest)
    warming.world.advance(1800)
    assert warming.pinned("node-a") == [artifact.digest], "at most an hour after its last use"
    warming.world.advance(5401)
    until_pinned(warming, "node-a")
    warming.wait("Lapsed", "RetentionTTLExpired")
