"""One peer's share of the node's requests."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from gpustack_delivery.node.downloading import Limits
from gpustack_delivery.node.downloading.limits import UNIT_BYTES, Abandoned
from gpustack_delivery.node.peers.streams import Streams
from tests.unit.fakes import ManualClock


def test_one_peers_streams_are_shared_by_all_downloads() -> None:
    """The same peer has the same limits, whoever asks; another peer has its own."""
    streams = Streams(ManualClock(), Limits(ManualClock(), concurrency=64), 2)
    with ExitStack() as held:
        held.enter_context(streams.of("https://a").slot(lambda: True))
        held.enter_context(streams.of("https://a").slot(lambda: True))
        with pytest.raises(Abandoned):
            held.enter_context(streams.of("https://a").slot(lambda: True))
        held.enter_context(streams.of("https://b").slot(lambda: True))
    with streams.of("https://a").slot(lambda: True):
        pass


def test_the_nodes_own_limits_hold_for_peers() -> None:
    """Requests over all sources, bandwidth and memory are the node's."""
    clock = ManualClock()
    node = Limits(clock, concurrency=1, bytes_per_second=1 << 20)
    peer = Streams(clock, node, 4).of("https://a")
    assert (peer.concurrency, peer.bytes_per_second) == (1, 1 << 20)
    assert peer.share_segments == node.share_segments
    with peer.slot(lambda: True), pytest.raises(Abandoned), node.slot(lambda: True):
        pass
    for turn in range((1 << 20) // UNIT_BYTES):  # a second's worth, by both doors
        (node if turn % 2 else peer).take(1 << 20, lambda: True)
    with pytest.raises(Abandoned):
        node.take(1 << 20, lambda: True)
    with pytest.raises(Abandoned):
        peer.take(1 << 20, lambda: True)
    node.change(concurrency=9, bytes_per_second=0)
    assert (peer.concurrency, peer.bytes_per_second) == (4, 0)
    assert peer.take(5, lambda: True) == 5


def test_a_slot_that_is_given_up_is_free_again() -> None:
    """Waiting for the node's gate in vain keeps nothing of the peer's."""
    clock = ManualClock()
    node = Limits(clock, concurrency=1)
    peer = Streams(clock, node, 1).of("https://a")
    with node.slot(lambda: True), pytest.raises(Abandoned), peer.slot(lambda: True):
        pass
    with peer.slot(lambda: True):
        pass
