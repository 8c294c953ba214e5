"""What a node asks of one peer: the listing of a tree, and its files.

The listing must make the digest that was asked for, or nothing it says counts. Files come through
the download engine like a hub's: verified while they arrive, with checkpoints that any later source
goes on from.

Rules: PS-CLI-01, PS-CLI-02, NS-DL-05.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.http import Http, TransportFault
from gpustack_delivery.decisions.peering import Peer
from gpustack_delivery.errors import AttemptFault, HubFault, Reason
from gpustack_delivery.node.downloading import Cancellation, Downloader, Limits, Shape, Target
from gpustack_delivery.node.peers.options import PeerOptions
from gpustack_delivery.node.peers.streams import Streams
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Clock, Disk
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry, Manifest

LISTING_BYTES: Final = 64 << 20
_SHAPE: Final = Shape(retries=1)
_UNREADABLE: Final = (
    msgspec.DecodeError,
    RecursionError,
    KeyError,
    TypeError,
    AttributeError,
    HubFault,
)
_log = logging.getLogger(__name__)


class Peers:
    """The node's connections to its peers. Thread-safe.

    Args:
        options: the flags.
        limits: the node's, which hold for peers as well.
    """

    def __init__(self, options: PeerOptions, limits: Limits, clock: Clock, disk: Disk) -> None:
        self._options = options
        self._streams = Streams(clock, limits, options.streams_per_source)
        self._clock = clock
        self._disk = disk
        self._hashing = Hashing()
        # No proxy stands between nodes, and their certificates prove nothing: digests do.
        self._http = Http(verify=False, environment={})

    def listing(self, peer: Peer, digest: str) -> Manifest:
        """Return a peer's listing of a digest, which makes exactly that digest.

        Raises:
            AttemptFault: it has none, or it is forged or damaged.
        """
        try:
            answer = self._http.call(
                "GET",
                _tree_url(peer, digest),
                token=self.credential(),
                follow=False,
                limit_bytes=LISTING_BYTES,
            )
        except TransportFault as fault:
            raise AttemptFault(Reason.SOURCE_UNAVAILABLE, str(fault)) from None
        if answer.status != 200:
            raise AttemptFault(Reason.SOURCE_UNAVAILABLE, f"HTTP {answer.status}")
        try:
            entries = msgspec.json.decode(answer.body)["entries"]
            manifest = Manifest.of(Entry(e["path"], e["size"], e["digest"]) for e in entries)
        except _UNREADABLE as error:
            kind = type(error).__name__
            raise AttemptFault(
                Reason.INTEGRITY_MISMATCH, "a listing that cannot be read", detail=kind
            ) from None
        if manifest.digest != digest:
            raise AttemptFault(
                Reason.INTEGRITY_MISMATCH,
                "a listing that makes another digest",
                detail=f"listed={manifest.digest}",
            )
        return manifest

    def fetch(
        self,
        peer: Peer,
        manifest: Manifest,
        workspace: Workspace,
        cancellation: Cancellation,
        received: Callable[[int], None],
    ) -> None:
        """Download what is missing of a tree from one peer.

        Args:
            received: see `Downloader.fetch`.

        Raises:
            AttemptFault: the peer did not deliver; what it did deliver stays.
        """
        base = _tree_url(peer, manifest.digest) + "/files/"
        targets = [
            Target(entry, base + quote(entry.path, safe="/"), workspace.tree / entry.path)
            for entry in manifest.entries
        ]
        limits = self._streams.of(peer.url)
        downloader = Downloader(
            self._http, limits, self._clock, self._disk, self._hashing, shape=_SHAPE
        )
        downloader.fetch(
            targets,
            workspace,
            credential=self.credential,
            cancellation=cancellation,
            received=received,
        )

    def close(self) -> None:
        """Start nothing new on these connections."""
        self._http.close()

    def credential(self) -> Token | None:
        """Return our token as it stands in its file now: kubelet rotates it."""
        if self._options.authentication == "none":
            return None
        try:
            return Token(self._options.token_file.read_text("utf-8").strip())
        except (OSError, ValueError) as error:
            _log.error("no peer will serve us: --peer-sync-token-file cannot be read: %s", error)
            return None


def _tree_url(peer: Peer, digest: str) -> str:
    return f"{peer.url}/peer/v1/trees/{digest.partition(':')[2]}"
