"""peer-sync#what-the-status-and-metrics-say: where a tree's bytes came from."""

from __future__ import annotations

from typing import Final

import pytest

from spec_tests.conftest import Builder
from spec_tests.nodes import Node
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.peers import Impostor, free_port
from spec_tests.scenario import World
from spec_tests.worlds import TINY

pytestmark = pytest.mark.feature("peer-sync")
MIB: Final = 1 << 20


def source(world: World, node: Node, digest: str) -> str:
    """Return the source that a node's status names once it holds a digest."""
    world.until(lambda: node.entry(digest).get("state") == "Ready", "it is told", within_seconds=60)
    return str(node.entry(digest).get("source", ""))


def received(node: Node, kind: str) -> float:
    """Return the bytes that a node has counted from one kind of source."""
    return node.metrics().value("gpustack_model_manager_download_bytes_total", source=kind)


@pytest.mark.rule("PS-CLI-03", "NS-RES-11", "NS-MET-02")
def test_hub_and_peer_are_told_apart(worlds: Builder) -> None:
    """The first node's bytes are the hub's, the second one's a peer's, each counted once."""
    world = worlds(nodes=("node-a", "node-b"), peer_port=free_port())
    artifact, (first, second) = world.artifact(), world.nodes.values()
    first.mount(artifact)
    assert source(world, first, artifact.digest) == "Hub"
    second.mount(artifact)
    assert source(world, second, artifact.digest) == "Peer"
    assert (received(first, "hub"), received(first, "peer")) == (TINY.size_bytes, 0)
    assert (received(second, "hub"), received(second, "peer")) == (0, TINY.size_bytes)


@pytest.mark.rule("PS-CLI-03", "NS-RES-11")
@pytest.mark.parametrize(("lived_mib", "majority"), [(9, "Hub"), (60, "Peer")])
def test_the_majority_names_the_source(worlds: Builder, lived_mib: int, majority: str) -> None:
    """Of a file that came from both, the source is whoever sent more of what was kept."""
    world = worlds(peer_port=free_port())
    tree = Tree((File("big.safetensors", pseudo_random(MIB, seed=13) * 64, lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/big", tree))
    with Impostor(world, "mortal", tree, dies_after=lived_mib * MIB):
        world.node.mount(artifact)
    assert source(world, world.node, artifact.digest) == majority
    assert received(world.node, "peer") > 0
    assert received(world.node, "hub") > 0


@pytest.mark.rule("PS-CLI-03", "NS-RES-11")
def test_what_a_liar_sent_counts_for_nothing_in_the_status(worlds: Builder) -> None:
    """Its bytes were received, and the tree is nevertheless the hub's."""
    world = worlds(peer_port=free_port())
    with Impostor(world, "liar", TINY, content=lambda content: b"x" + content[1:]):
        artifact = world.artifact()
        world.node.mount(artifact)
    assert source(world, world.node, artifact.digest) == "Hub"
    assert world.node.entry(artifact.digest)["sizeBytes"] == TINY.size_bytes
