"""One attempt's search for sources: which peer next, and when it is the hub's turn.

`next_peer` answers with a peer that holds the tree, or with None when there is none. In between it
may wait, because another node is downloading the same tree and its copy will do: a short moment at
first, for the statuses of nodes that began together to be published, and then for as long as that
other download moves. A node that stands still is not waited for any more: after five minutes, or
what a status may take to tell of a large tree's next step; and after one when its plugin is gone.

A peer that fails in any way is set aside for a minute by the node, and for good by the attempt.

Rules: PS-CLI-01, PS-CLI-02, NS-REQ-05.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpustack_delivery.decisions.peering import Peer, awaited, holders, patience_seconds
from gpustack_delivery.errors import AttemptFault, DiskFault, Reason
from gpustack_delivery.node.downloading import Cancellation
from gpustack_delivery.node.peers.discovery import Directory
from gpustack_delivery.node.peers.pulling import Peers
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Clock
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.node_store import ModelState

GATHER_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 5.0
GONE_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class Search:
    """Used by one attempt, on its own thread.

    Args:
        directory: who there is.
        peers: the way to them.
        digest: what is wanted.
        cancellation: ends every wait.
    """

    def __init__(
        self,
        directory: Directory,
        peers: Peers,
        clock: Clock,
        digest: str,
        cancellation: Cancellation,
    ) -> None:
        self._directory = directory
        self._peers = peers
        self._clock = clock
        self._digest = digest
        self._cancellation = cancellation
        self._begun = False
        self._gathered = False
        self._proven: set[str] = set()
        self._failed: set[str] = set()
        self._stuck: set[str] = set()

    def begun(self) -> None:
        """Note that the attempt has its listing: others may now wait for it."""
        self._begun = True

    def next_peer(self, *, wait: bool) -> Peer | None:
        """Return a peer that holds the tree and has not failed, None when there is none.

        Args:
            wait: whether the hub is the alternative, so that others' downloads are worth waiting
                for.

        Raises:
            AttemptFault: `Canceled`.
        """
        own = self._directory.own_node
        while True:
            around = self._directory.around(self._digest)
            for peer in holders(own, around):
                if peer.url not in self._failed:
                    return peer
            if not wait or not around.peers:
                return None
            if not self._gathered:
                self._gathered = True
                self._pause(GATHER_SECONDS)
                continue
            node = awaited(self._digest, own, around, begun=self._begun, stuck=self._stuck)
            if not node:
                return None
            self._await(node)

    def listing(self) -> Manifest | None:
        """Return the tree's listing from the first peer that has a true one, None from nobody.

        Raises:
            AttemptFault: `Canceled`.
        """
        while (peer := self.next_peer(wait=False)) is not None:
            with self._blaming(peer):
                return self._listing(peer)
        return None

    def fetch(
        self, peer: Peer, manifest: Manifest, space: Workspace, received: Callable[[int], None]
    ) -> None:
        """Download what is missing of a tree from one peer, once its listing has proven true.

        Raises:
            AttemptFault: it did not deliver; what it did deliver stays.
        """
        if peer.url not in self._proven:
            self._listing(peer)
        self._peers.fetch(peer, manifest, space, self._cancellation, received)

    @contextmanager
    def _blaming(self, peer: Peer) -> Iterator[None]:
        """Take a peer's failure for what it is, and go on."""
        try:
            yield
        except AttemptFault as fault:
            self.failed(peer, fault)

    def failed(self, peer: Peer, fault: AttemptFault) -> None:
        """Note that a peer did not deliver.

        Raises:
            AttemptFault: the fault itself, if it is not the peer's.
        """
        if fault.reason is Reason.CANCELED or isinstance(fault, DiskFault):
            raise fault
        _log.warning(
            "peer set aside: node=%s digest=%s reason=%s message=%s detail=%s",
            peer.node,
            self._digest,
            fault.reason,
            fault,
            fault.detail,
        )
        self._failed.add(peer.url)
        self._directory.set_aside(peer)

    def _listing(self, peer: Peer) -> Manifest:
        try:
            with self._cancellation.ends_requests():
                manifest = self._peers.listing(peer, self._digest)
        except AttemptFault as fault:
            if self._cancellation.requested:
                raise AttemptFault(Reason.CANCELED) from fault
            raise
        self._proven.add(peer.url)
        return manifest

    def _await(self, node: str) -> None:
        """Wait while a node's download moves; return when it is over, or stuck."""
        seen, since = None, self._clock.monotonic()
        looked = since
        while True:
            self._pause(LOOK_SECONDS)
            entry = self._directory.entry(node, self._digest)
            if entry is None or entry.state is not ModelState.DOWNLOADING:
                return
            now = self._clock.monotonic()
            if entry != seen:
                seen, since = entry, now
            elif now - since >= patience_seconds(entry):
                _log.warning("not waiting for %s any more: digest=%s", node, self._digest)
                self._stuck.add(node)
                return
            elif now - max(since, looked) >= GONE_SECONDS:
                looked = now
                if not self._directory.serves(node):
                    return

    def _pause(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            AttemptFault: `Canceled`.
        """
        condition = threading.Condition()

        def wake() -> None:
            with condition:
                condition.notify_all()

        deadline = self._clock.monotonic() + seconds
        with self._cancellation.attached(wake), condition:
            while not self._cancellation.requested:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return
                self._clock.wait(condition, left)
        raise AttemptFault(Reason.CANCELED)
