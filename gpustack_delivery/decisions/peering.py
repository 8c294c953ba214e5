"""Whom a cold node takes a tree from: a peer that has it, the hub, or later a peer that will.

Peers that have the tree come first. They are ordered by a hash of both nodes' names, so that many
cold nodes spread over many peers and each of them always begins with the same one.

When no peer has it yet, but others are downloading it, one node is to ask the hub and the others
wait for its copy. Nothing is elected and nothing is written for it: every node reads the same
published statuses and draws the same conclusion. A download whose size is known has begun in
earnest and goes before one that has not; among equals the lower rank goes first. Nodes that drew
their conclusion from statuses a moment too old ask the hub once too often, and that is all that can
go wrong.

`node/peers` gathers the facts and acts. Rules: PS-CLI-01, NS-REQ-05.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.decisions.reporting import PROGRESS_PERCENT
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from gpustack_delivery.vocabulary.plugin_pods import PluginPod

PATIENCE_SECONDS: Final = 300.0
SLOWEST_BYTES_PER_SECOND: Final = 4 << 20
"""A download that is slower is not worth its waiting for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A node whose plugin serves its trees, and the base URL it serves them at."""

    node: str
    url: str


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The other nodes whose plugins serve, and what each has of one digest."""

    peers: Mapping[str, Peer]
    entries: Mapping[str, ModelEntry]


def peers(own_node: str, pods: Iterable[PluginPod]) -> dict[str, Peer]:
    """Return the nodes that serve, by name: those whose Pod is ready and declares the port."""
    return {
        pod.node: Peer(pod.node, f"https://{_host(pod.address)}:{pod.peer_port}")
        for pod in pods
        if pod.ready and pod.address and pod.peer_port and pod.node not in {"", own_node}
    }


def holders(own_node: str, around: Neighbourhood) -> tuple[Peer, ...]:
    """Return the peers that hold the tree, the one to begin with first."""
    ready = (
        around.peers[node]
        for node, entry in around.entries.items()
        if entry.state is ModelState.READY and node in around.peers
    )
    return tuple(sorted(ready, key=lambda peer: _rank(own_node, peer.node)))


def awaited(
    digest: str, own_node: str, around: Neighbourhood, *, begun: bool, stuck: Collection[str]
) -> str:
    """Return the node whose copy is to be waited for, "" if this node is to ask the hub itself.

    Args:
        begun: whether this node has its listing, as one that lost a peer half way.
        stuck: nodes that are not waited for any more.
    """
    running = {
        node: entry
        for node, entry in around.entries.items()
        if entry.state is ModelState.DOWNLOADING and node in around.peers and node not in stuck
    }
    ahead = {node for node, entry in running.items() if entry.size_bytes}
    rivals = ahead | {own_node} if begun else ahead or {*running, own_node}
    first = min(rivals, key=lambda node: _rank(digest, node))
    return "" if first == own_node else first


def patience_seconds(entry: ModelEntry) -> float:
    """Return how long another node's entry may stand still before it is waited for no more.

    A status tells of progress in steps of 5% of the size, and a step of the largest trees takes
    longer than the whole download of another. A plugin that is at work ends a download that hangs.
    """
    step_bytes = entry.size_bytes * PROGRESS_PERCENT / 100
    return max(PATIENCE_SECONDS, step_bytes / SLOWEST_BYTES_PER_SECOND)


def _rank(salt: str, node: str) -> bytes:
    return hashlib.sha256(f"{salt} {node}".encode()).digest()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
