"""Whom a cold node asks, and whose copy it waits for."""

from __future__ import annotations

from gpustack_delivery.decisions.peering import (
    PATIENCE_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    Neighbourhood,
    Peer,
    awaited,
    holders,
    patience_seconds,
    peers,
)
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from gpustack_delivery.vocabulary.plugin_pods import PluginPod

DIGEST = "sha256:" + "ab" * 32
NODES = tuple(f"node-{number}" for number in range(40))


def around(**entries: ModelEntry) -> Neighbourhood:
    """Return a neighbourhood in which everybody serves."""
    named = {name.replace("_", "-"): entry for name, entry in entries.items()}
    return Neighbourhood({name: Peer(name, f"https://{name}") for name in named}, named)


def entry(state: ModelState, size: int = 0) -> ModelEntry:
    """Return an entry of the digest."""
    return ModelEntry(DIGEST, state, size_bytes=size)


WAITING = entry(ModelState.DOWNLOADING)
RUNNING = entry(ModelState.DOWNLOADING, 10)
READY = entry(ModelState.READY, 10)
FAILED = entry(ModelState.FAILED)


def test_only_ready_pods_with_an_address_and_the_port_are_peers() -> None:
    """And this node is not its own."""
    pods = [
        PluginPod("good", "10.0.0.1", 32445, ready=True),
        PluginPod("six", "fd00::1", 32445, ready=True),
        PluginPod("own", "10.0.0.2", 32445, ready=True),
        PluginPod("young", "", 32445, ready=True),
        PluginPod("old", "10.0.0.3", 0, ready=True),
        PluginPod("sick", "10.0.0.4", 32445, ready=False),
        PluginPod("", "10.0.0.5", 32445, ready=True),
    ]
    found = {name: peer.url for name, peer in peers("own", pods).items()}
    assert found == {"good": "https://10.0.0.1:32445", "six": "https://[fd00::1]:32445"}


def test_a_pod_is_read_from_what_kubelet_writes() -> None:
    """Ready until it is being deleted."""
    port = {"name": "peer-sync", "containerPort": 7}
    body = {
        "metadata": {"name": "plugin"},
        "spec": {
            "nodeName": "n",
            "containers": [{"ports": [{"containerPort": 1}]}, {"ports": [port]}],
        },
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert PluginPod.from_wire(body) == PluginPod("n", "10.0.0.1", 7, ready=True)
    leaving = {**body, "metadata": {"name": "plugin", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not PluginPod.from_wire(leaving).ready
    assert PluginPod.from_wire({"metadata": {}}) == PluginPod("", "", 0, ready=False)


def test_holders_are_those_that_have_it_whole() -> None:
    """Neither a download nor a failure nor a node that does not serve."""
    found = around(a=READY, b=RUNNING, c=FAILED, d=READY)
    found = Neighbourhood({n: p for n, p in found.peers.items() if n != "d"}, found.entries)
    assert [peer.node for peer in holders("own", found)] == ["a"]


def test_cold_nodes_spread_over_the_holders() -> None:
    """Every holder is somebody's first, and a node's order never changes."""
    found = around(a=READY, b=READY, c=READY)
    firsts = {holders(node, found)[0].node for node in NODES}
    assert firsts == {"a", "b", "c"}
    assert holders("node-1", found) == holders("node-1", around(c=READY, b=READY, a=READY))


def test_of_nodes_that_begin_together_one_asks_the_hub() -> None:
    """Each sees the others waiting, and all of them name the same one."""
    for number in range(2, len(NODES)):
        names = NODES[:number]
        asking = [
            own
            for own in names
            if not awaited(
                DIGEST,
                own,
                around(**{n.replace("-", "_"): WAITING for n in names if n != own}),
                begun=False,
                stuck=(),
            )
        ]
        assert len(asking) == 1


def test_a_download_that_runs_is_waited_for_whatever_its_rank() -> None:
    """A node that comes late never asks the hub beside one that does already."""
    for other in NODES:
        found = around(**{other.replace("-", "_"): RUNNING, "late": WAITING})
        assert awaited(DIGEST, "own", found, begun=False, stuck=()) == other


def test_nodes_that_lost_their_peer_half_way_agree_too() -> None:
    """Two downloads that have both begun do not wait for each other."""
    named = awaited(DIGEST, "one", around(two=RUNNING), begun=True, stuck=())
    other = awaited(DIGEST, "two", around(one=RUNNING), begun=True, stuck=())
    assert sorted([named, other]) in (["", "one"], ["", "two"])


def test_nobody_waits_for_the_stuck_the_failed_or_the_unreachable() -> None:
    """Then this node asks the hub itself."""
    assert awaited(DIGEST, "own", around(a=RUNNING), begun=False, stuck={"a"}) == ""
    assert awaited(DIGEST, "own", around(a=FAILED), begun=False, stuck=()) == ""
    alone = Neighbourhood({}, {"a": RUNNING})
    assert awaited(DIGEST, "own", alone, begun=False, stuck=()) == ""


def test_a_large_download_may_stand_still_for_one_step_of_its_status() -> None:
    """Whatever its size, one that is not too slow is waited for from step to step."""
    for size in (0, 1, 10**9, 10**11, 10**12):
        step_seconds = size * 0.05 / SLOWEST_BYTES_PER_SECOND
        patience = patience_seconds(entry(ModelState.DOWNLOADING, size))
        assert patience == max(PATIENCE_SECONDS, step_seconds)
    assert patience > 3 * 3600
