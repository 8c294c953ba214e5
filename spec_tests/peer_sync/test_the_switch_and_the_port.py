"""peer-sync#the-switch-and-the-port: off by port, or by Setting for pulling alone."""

from __future__ import annotations

import pytest

from spec_tests import oracle
from spec_tests.conftest import Builder
from spec_tests.peer_sync.hub_bytes import sent_by_hub
from spec_tests.peers import Impostor, PeerClient, free_port, plugin_pods, tree_path
from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.worlds import TINY

pytestmark = pytest.mark.feature("peer-sync")


def applied(world: World, *, enabled: bool) -> None:
    """Wait until every node's specification says so, and its plugin has read it."""

    def told() -> bool:
        specs = [node.store()["spec"] for node in world.nodes.values()]
        return all(spec.get("peerSyncEnabled", True) is enabled for spec in specs)

    world.until(told, "the Setting reaches every node", within_seconds=90)
    world.advance(1)


@pytest.mark.rule("PS-OFF-01")
def test_the_setting_keeps_the_listener_and_pulls_from_the_hub(worlds: Builder) -> None:
    """peerSyncEnabled false: peers may still read from this node, which asks the hub alone."""
    world = worlds(peer_port=free_port())
    world.stand_in.reconfigure("node-a", lambda spec: spec.update(peerSyncEnabled=False))
    world.advance(1)
    artifact = world.artifact()
    with Impostor(world, "honest", TINY) as peer:
        world.node.mount(artifact)
        assert peer.asked == []
    assert sent_by_hub(world) == TINY.size_bytes
    assert PeerClient(world, "node-a").status(tree_path(TINY.digest)) == 200


@pytest.mark.rule("PS-OFF-01", "NS-REQ-05")
def test_the_setting_applies_without_a_restart(worlds: Builder) -> None:
    """Switched on again, the next tree comes from the peer."""
    world = worlds(peer_port=free_port())
    world.stand_in.reconfigure("node-a", lambda spec: spec.update(peerSyncEnabled=False))
    world.advance(1)
    world.stand_in.reconfigure("node-a", lambda spec: spec.pop("peerSyncEnabled"))
    world.advance(1)
    with Impostor(world, "honest", TINY) as peer:
        world.node.mount(world.artifact())
        assert peer.sent_bytes == TINY.size_bytes
    assert sent_by_hub(world) == 0


@pytest.mark.rule("PS-OFF-01", "NS-REQ-05")
def test_the_setting_goes_through_the_worker_to_every_node(worlds: Builder) -> None:
    """The Setting alone is changed: nodes ask the hub, and after the next change each other."""
    names = ("node-a", "node-b", "node-c")
    world = worlds(nodes=names, worker=True, peer_port=free_port())
    first, second, third = (world.nodes[name] for name in names)
    set_setting(world, "model-store-peer-sync", "false")
    applied(world, enabled=False)
    artifact = world.artifact()
    first.mount(artifact)
    world.until(
        lambda: first.entry(artifact.digest).get("state") == "Ready",
        "it is told",
        within_seconds=60,
    )
    second.mount(artifact)
    assert sent_by_hub(world) == 2 * TINY.size_bytes
    assert PeerClient(world, "node-b").status(tree_path(artifact.digest)) == 200
    set_setting(world, "model-store-peer-sync", None)
    applied(world, enabled=True)
    assert third.read_all(third.mount(artifact)) == TINY.contents()
    assert sent_by_hub(world) == 2 * TINY.size_bytes


@pytest.mark.rule("PS-OFF-01")
def test_port_zero_switches_everything_off(worlds: Builder) -> None:
    """No port, no token and no right to look for peers; every node asks the hub."""
    world = worlds(nodes=("node-a", "node-b"))
    artifact = world.artifact()
    for node in world.nodes.values():
        node.mount(artifact)
        world.advance(1)
    assert sent_by_hub(world) == 2 * TINY.size_bytes
    assert plugin_pods(world) == []
    account = world.as_user(world.seat.plugin_user, {})
    pods = f"/api/v1/namespaces/{oracle.OPERATOR_NAMESPACE}/pods"
    with pytest.raises(AssertionError, match="403"):
        account.read(pods)
