"""peer-sync#how-a-cold-node-pulls: peers first, every byte proven, and the hub gives one copy."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

import pytest

from emulator.hubs.wrong_answers import Status
from spec_tests.conftest import Builder
from spec_tests.nodes import Node
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.peer_sync.hub_bytes import sent_by_hub
from spec_tests.peers import Impostor, free_port, tree_path
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY

pytestmark = pytest.mark.feature("peer-sync")
Json = dict[str, Any]
MIB: Final = 1 << 20
TEN: Final = tuple(f"node-{letter}" for letter in "abcdefghij")


def settled(world: World, node: Node, digest: str) -> Json:
    """Return a node's entry of a digest once it is published in the status."""
    world.until(lambda: node.entry(digest).get("state") == "Ready", "it is told", within_seconds=60)
    return node.entry(digest)


def mounted_everywhere(world: World, artifact: Artifact, nodes: Iterable[Node]) -> None:
    """Have every node asked for an artifact at the same moment, and wait until each has it."""
    left = {node.name: node.call(artifact) for node in nodes}
    for _ in range(120):
        left = {name: call for name, call in left.items() if not world.nodes[name].publish(call).ok}
        if not left:
            return
        world.advance(1)
    raise AssertionError(f"still without the tree after two minutes: {sorted(left)}")


@pytest.mark.rule("PS-CLI-01", "NS-REQ-05")
def test_a_cold_node_takes_the_tree_from_a_peer(worlds: Builder) -> None:
    """The second node reads what the first has, byte for byte, and the hub sends no file again."""
    world = worlds(nodes=("node-a", "node-b"), peer_port=free_port())
    artifact, (first, second) = world.artifact(), world.nodes.values()
    first.mount(artifact)
    settled(world, first, artifact.digest)
    sent = sent_by_hub(world)
    assert sent == TINY.size_bytes
    call = second.mount(artifact)
    assert second.read_all(call) == TINY.contents()
    assert sent_by_hub(world) == sent


@pytest.mark.rule("PS-CLI-01", "NS-REQ-05")
def test_a_hub_that_is_away_is_replaced_and_one_that_refuses_is_not(worlds: Builder) -> None:
    """A peer's listing stands in for a hub that cannot answer, never for one that says no."""
    world = worlds(peer_port=free_port())
    artifact = world.artifact()
    with Impostor(world, "honest", TINY) as peer:
        world.hub.faults.add(Status(403), at="tree")
        world.node.publish(world.node.call(artifact))
        world.until(
            lambda: world.node.entry(artifact.digest).get("reason") == "AccessDenied",
            "the refusal is told",
            within_seconds=30,
        )
        assert peer.sent_bytes == 0
        world.hub.faults.clear()
        world.hub.faults.add(Status(503), at="tree")
        world.advance(60)
        call = world.node.mount(artifact)
    assert world.node.read_all(call) == TINY.contents()
    assert sent_by_hub(world) == 0


@pytest.mark.rule("PS-CLI-01")
@pytest.mark.parametrize("start", ["one-by-one", "together"])
def test_ten_nodes_cost_the_hub_one_copy(worlds: Builder, start: str) -> None:
    """However many nodes want a digest, one after another or all at once."""
    world = worlds(nodes=TEN, peer_port=free_port())
    artifact, slow = world.artifact(), {"bytesPerSecond": 1 << 16}
    if start == "together":
        for name in TEN:  # slow enough that all of them are under way at once
            world.stand_in.reconfigure(name, lambda spec: spec["download"].update(slow))
        world.advance(1)
        mounted_everywhere(world, artifact, world.nodes.values())
    else:
        for node in world.nodes.values():
            node.mount(artifact)
            settled(world, node, artifact.digest)
    assert sent_by_hub(world) <= 1.02 * TINY.size_bytes
    for node in world.nodes.values():
        assert node.read_all(node.call(artifact)) == TINY.contents()


def forged(listing: Json) -> Json:
    """Return a listing whose digest is claimed and whose entries are others."""
    entries = [{**entry, "digest": "sha256:" + "0" * 64} for entry in listing["entries"]]
    return {**listing, "entries": entries}


def truncated(listing: Json) -> Json:
    """Return a listing that lacks its last file."""
    return {**listing, "entries": listing["entries"][:-1]}


def flipped(content: bytes) -> bytes:
    """Return content with one wrong byte in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


LIES: Final[dict[str, dict[str, Any]]] = {
    "forged": {"listing": forged},
    "truncated": {"listing": truncated},
    "no-listing": {"listing": lambda listing: {"digest": listing["digest"]}},
    "wrong-bytes": {"content": flipped},
}


@pytest.mark.rule("PS-CLI-01")
@pytest.mark.parametrize("lie", LIES)
def test_a_lying_peer_is_refused_and_the_next_one_takes_over(worlds: Builder, lie: str) -> None:
    """Two liars and an honest peer: the tree is right, and it costs the hub nothing more."""
    world = worlds(nodes=("node-a", "node-b"), peer_port=free_port())
    artifact, (first, second) = world.artifact(), world.nodes.values()
    first.mount(artifact)
    settled(world, first, artifact.digest)
    sent = sent_by_hub(world)
    with ExitStack() as stack:
        for name in ("liar-1", "liar-2", "liar-3"):
            stack.enter_context(Impostor(world, name, TINY, **LIES[lie]))
        call = second.mount(artifact)
    assert second.read_all(call) == TINY.contents()
    assert sent_by_hub(world) == sent


@pytest.mark.rule("PS-CLI-01", "NS-REQ-05")
def test_the_hub_is_left_when_every_peer_lies(worlds: Builder) -> None:
    """Nothing of a liar reaches a mount, and each is asked for its listing only once."""
    world = worlds(peer_port=free_port())
    artifact = world.artifact()
    with Impostor(world, "liar", TINY, listing=forged) as liar:
        call = world.node.mount(artifact)
        assert liar.asked == [tree_path(TINY.digest)]
    assert world.node.read_all(call) == TINY.contents()
    assert sent_by_hub(world) == TINY.size_bytes


@pytest.mark.rule("PS-CLI-01")
def test_a_peer_that_failed_is_left_alone_for_a_minute(worlds: Builder) -> None:
    """Another tree is not asked of it meanwhile, and is afterwards."""
    world = worlds(peer_port=free_port())
    other = Tree((File("other.bin", pseudo_random(1000, seed=9), lfs=True),))
    with Impostor(world, "liar", TINY, listing=forged) as liar:
        world.node.mount(world.artifact())
        assert len(liar.asked) == 1
        again = world.artifact("again", repository=world.repository("acme/other", other))
        claim = world.api.get("worker.gpustack.ai/v1alpha1", "NodeModelStore", "liar")
        claim["status"]["models"].append({"digest": other.digest, "state": "Ready"})
        world.api.update_status(claim)
        world.node.unpublish(world.node.mount(again, pod="second"))
        assert len(liar.asked) == 1
        third = Tree((File("third.bin", pseudo_random(1000, seed=10), lfs=True),))
        late = world.artifact("late", repository=world.repository("acme/third", third))
        claim = world.api.get("worker.gpustack.ai/v1alpha1", "NodeModelStore", "liar")
        claim["status"]["models"].append({"digest": third.digest, "state": "Ready"})
        world.api.update_status(claim)
        world.advance(61)
        world.node.mount(late, pod="third")
        assert len(liar.asked) == 2


@pytest.mark.rule("PS-CLI-02")
@pytest.mark.parametrize("heir", ["hub", "peer"])
def test_a_peer_that_dies_mid_file_is_resumed(worlds: Builder, heir: str) -> None:
    """Whoever comes next sends only what follows the last checkpoint, 64 MiB apart at most."""
    world = worlds(peer_port=free_port())
    tree = Tree((File("big.safetensors", pseudo_random(MIB, seed=11) * 100, lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/big", tree))
    names = ("mortal",) if heir == "hub" else ("mortal", "second")
    with ExitStack() as stack:
        # Each has 80 of the 100 MiB in it: whichever is asked first dies before the end.
        peers = [
            stack.enter_context(Impostor(world, name, tree, dies_after=80 * MIB)) for name in names
        ]
        call = world.node.mount(artifact)
        from_peers = sum(peer.sent_bytes for peer in peers)
    assert world.node.read_all(call) == tree.contents()
    from_hub = sent_by_hub(world)
    assert from_peers >= 80 * MIB
    assert from_hub <= (36 * MIB if heir == "hub" else 0)
    assert from_hub + from_peers <= tree.size_bytes + 64 * MIB


@pytest.mark.rule("PS-CLI-02")
def test_bad_bytes_of_a_peer_are_not_blamed_on_the_hub(worlds: Builder) -> None:
    """A peer sends wrong bytes and dies; the file that the hub then finished starts over."""
    world = worlds(peer_port=free_port())
    content = pseudo_random(MIB, seed=12) * 24
    tree = Tree((File("big.safetensors", content, lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/big", tree))
    with Impostor(world, "liar", tree, content=lambda c: b"x" + c[1:], dies_after=17 * MIB):
        call = world.node.mount(artifact)
    assert world.node.read_all(call) == tree.contents()
    failed = world.node.metrics().value(
        "gpustack_model_manager_materializations_total", result="IntegrityMismatch"
    )
    assert failed == 0


@pytest.mark.rule("PS-CLI-01")
def test_a_node_that_claims_to_download_for_ever_delays_nobody_for_ever(worlds: Builder) -> None:
    """A download that does not move is waited for five minutes, and then the hub is asked."""
    world = worlds(peer_port=free_port())
    artifact = world.artifact()
    with Impostor(world, "sleeper", TINY):
        claim = world.api.get("worker.gpustack.ai/v1alpha1", "NodeModelStore", "sleeper")
        claim["status"]["models"][0] |= {"state": "Downloading", "downloadedBytes": 1}
        world.api.update_status(claim)
        call = world.node.call(artifact)
        world.until(lambda: world.node.publish(call).ok, "it is mounted", within_seconds=420)
    assert sent_by_hub(world) == TINY.size_bytes
