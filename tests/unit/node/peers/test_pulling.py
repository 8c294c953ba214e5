"""A peer's listing: whatever it answers is a listing that makes the digest, or the peer's fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.clock import ManualClock
from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.decisions.peering import Peer
from gpustack_delivery.errors import AttemptFault
from gpustack_delivery.node.downloading import Limits
from gpustack_delivery.node.peers.options import PeerOptions
from gpustack_delivery.node.peers.pulling import Peers
from gpustack_delivery.vocabulary.manifest import Entry, Manifest
from tests.unit.origin import Origin

GOOD = {"path": "a", "size": 3, "digest": "sha256:" + "b" * 64}
DIGEST = Manifest.of([Entry("a", 3, GOOD["digest"])]).digest  # type: ignore[arg-type]
NESTED = b'{"entries":' + b"[" * 100_000
ODD_LISTS: tuple[object, ...] = (None, 7, "a", [None], [7], ["a"], [[]], [{}], {"a": 1})
ODD_FIELDS: tuple[object, ...] = (None, [], {}, -1, 1.5, 10**30, "\ud800", "../a", "x" * 5000)
ANSWERS = [
    NESTED,
    b"",
    b"null",
    b"[]",
    b"\xff",
    *(json.dumps({"entries": odd}).encode() for odd in ODD_LISTS),
    *(
        json.dumps({"entries": [GOOD | {name: odd}]}).encode()
        for name in GOOD
        for odd in ODD_FIELDS
    ),
]


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    """Give the node's way to its peers, which shows them no token."""
    clock = ManualClock()
    options = PeerOptions(port=1, authentication="none", token_file=tmp_path / "token")
    peers = Peers(options, Limits(clock), clock, KernelDisk())
    yield peers
    peers.close()


def test_true_listing_is_taken(peers: Peers) -> None:
    """A listing that makes the digest is what it says."""
    body = json.dumps({"entries": [GOOD]}).encode()
    with Origin(lambda seen, wire: wire.respond(200, body)) as origin:
        assert peers.listing(Peer("node-b", origin.url), DIGEST).digest == DIGEST


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_other_listing_is_the_peers_fault(peers: Peers, answer: bytes) -> None:
    """Nothing a peer answers breaks the attempt: the next source is asked in its place."""
    with (
        Origin(lambda seen, wire: wire.respond(200, answer)) as origin,
        pytest.raises(AttemptFault),
    ):
        peers.listing(Peer("node-b", origin.url), DIGEST)
