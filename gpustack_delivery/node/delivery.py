"""What an attempt does, from a listing to a published tree.

List at the resolved commit and bind the listing to the digest; count what an earlier attempt left;
reserve room; download and verify; publish. Artifacts that asked are tried in order: only a refused
credential or a configuration that cannot be executed lets the next one try. Every way to fail
leaves here as one `AttemptFault`.

With node-to-node sync the files come from peers as long as there is one, and what is missing then
from the hub. Each source goes on at the checkpoints of the one before. A peer's listing stands in
for the hub's when the hub cannot be reached, and is the only one for an artifact that resolved to
its own anchor: that one has no commit to list at, and the hub is never asked about it.

Rules: NS-DL-02..05, NS-DL-10, NS-DL-16, NS-DL-18, NS-FR-02..05, NS-RES-09, NS-RES-14, NS-REQ-05,
PS-CLI-02, PS-CLI-03.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpustack_delivery.adapters.patience import TOO_LONG, Patience
from gpustack_delivery.decisions.authorization import Grant
from gpustack_delivery.errors import (
    AttemptFault,
    ConfigurationFault,
    HostFault,
    HubFault,
    Reason,
    Verdict,
)
from gpustack_delivery.node.attempt import Attempt
from gpustack_delivery.node.collector import Collector, Store
from gpustack_delivery.node.configuration import Configuration, Route
from gpustack_delivery.node.downloading import Target, disk_fault, resumable_bytes
from gpustack_delivery.node.markers import Marker
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.node.peers.searching import Search
from gpustack_delivery.node.peers.syncing import PeerSync
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Clock, Hub
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.node_store import ByteSource

_NEXT_SOURCE: Final = frozenset({Reason.ACCESS_DENIED, Reason.INVALID_REQUEST})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an attempt works with; `peers` is None where node-to-node sync is off."""

    store: Store
    collector: Collector
    configuration: Configuration
    metrics: Metrics
    clock: Clock
    peers: PeerSync | None = None


def deliver(attempt: Attempt, around: Surroundings, changed: Callable[[], None]) -> None:
    """Publish an attempt's digest, from whichever source can.

    Args:
        attempt: whom to ask for sources and credentials, and whom to tell the progress.
        around: what to work with.
        changed: called when the size has become known.

    Raises:
        AttemptFault: no source delivered; the last one's reason.
    """
    store, digest = around.store, attempt.digest
    try:
        workspace = store.partials.begin(digest, store.ledger.get(digest).last_attempt)
        store.ledger.remember(digest, last_attempt=workspace.number)
        refusal = AttemptFault(Reason.SOURCE_UNAVAILABLE, "no artifact asks for it")
        for grant in attempt.sources():
            try:
                return _Delivery(grant, attempt, workspace, around).run(changed)
            except AttemptFault as fault:
                if fault.reason not in _NEXT_SOURCE:
                    raise
                refusal = fault
    except (OSError, HostFault) as error:
        raise disk_fault(error) from error
    raise refusal


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One source's turn in an attempt."""

    grant: Grant
    attempt: Attempt
    workspace: Workspace
    around: Surroundings

    def run(self, changed: Callable[[], None]) -> None:
        """List, reserve, download and publish."""
        around, attempt, digest = self.around, self.attempt, self.attempt.digest
        route, search = around.configuration.route(), self._search()
        hub = self._hub(route)
        if search is not None and hub is not None:
            search.next_peer(wait=True)  # first of all: another node may be about to have it
        manifest = self._manifest(hub, search)
        targets = self._targets(hub, manifest)
        self.workspace.keep(manifest.entries)
        attempt.listed(manifest.size_bytes, resumable_bytes(targets, self.workspace.state))
        changed()
        around.collector.reserve(digest, manifest.size_bytes, self.workspace.size_bytes)
        if search is None or not self._fetched_from_peers(search, manifest, targets, hub):
            if hub is None:
                raise self._nobody()
            self._fetch_from_hub(route, targets)
        around.store.trees.publish(self.workspace.path, manifest, self._marker(manifest))

    def _search(self) -> Search | None:
        """Return a search for peers, None while nothing may come from them."""
        peers, spec = self.around.peers, self.around.configuration.spec
        if peers is None or spec is None or spec.peer_sync_enabled is False:
            return None
        return peers.search(self.attempt.digest, self.attempt.cancellation)

    def _hub(self, route: Route) -> Hub | None:
        """Return the artifact's hub; None for an artifact that resolved to its own anchor."""
        if not self.grant.resolved.revision:
            return None
        try:
            return route.hub(self.grant.source.hub)
        except ConfigurationFault as fault:
            message = str(fault)
            raise AttemptFault(Reason.INVALID_REQUEST, message, detail=fault.detail) from fault

    def _manifest(self, hub: Hub | None, search: Search | None) -> Manifest:
        """Return the listing of the hub, or of a peer where the hub has none or is away."""
        away = self._nobody()
        if hub is not None:
            try:
                return self._list(hub)
            except AttemptFault as fault:
                if fault.reason is not Reason.SOURCE_UNAVAILABLE:
                    raise
                away = fault
        manifest = None if search is None else search.listing()
        if manifest is None:
            raise away
        return manifest

    def _nobody(self) -> AttemptFault:
        return AttemptFault(Reason.SOURCE_UNAVAILABLE, f"no node holds {self.attempt.digest}")

    def _list(self, hub: Hub) -> Manifest:
        """List the files at the resolved commit and bind them to the digest."""
        repository, commit = self.grant.source.repository, self.grant.resolved.revision
        cancellation = self.attempt.cancellation
        with (
            Patience(self.around.clock).errand() as flight,
            cancellation.attached(flight.abort),
        ):
            try:
                found = hub.list_tree(repository, commit, self.attempt.credential(self.grant))
                manifest = Manifest.of(self.grant.patterns.filter(found))
            except HubFault as fault:
                if cancellation.requested:
                    raise AttemptFault(Reason.CANCELED) from fault
                raise _listing_fault(fault, TOO_LONG if flight.aborted else "") from fault
        if cancellation.requested:
            raise AttemptFault(Reason.CANCELED)
        if manifest.digest != self.attempt.digest:
            raise AttemptFault(
                Reason.INTEGRITY_MISMATCH,
                "the listing makes another digest than the artifact's",
                detail=f"repository={repository} commit={commit} listed={manifest.digest}",
            )
        return manifest

    def _targets(self, hub: Hub | None, manifest: Manifest) -> tuple[Target, ...]:
        """Return what is to be there in the end, with the hub's URLs if there is a hub."""
        repository, commit = self.grant.source.repository, self.grant.resolved.revision
        tree = self.workspace.tree
        return tuple(
            Target(
                entry,
                "" if hub is None else hub.file_url(repository, commit, entry.path),
                tree / entry.path,
            )
            for entry in manifest.entries
        )

    def _fetched_from_peers(
        self, search: Search, manifest: Manifest, targets: Sequence[Target], hub: Hub | None
    ) -> bool:
        """Download from one peer after the other; say whether everything came."""
        search.begun()
        while (peer := search.next_peer(wait=hub is not None)) is not None:
            fetch = partial(search.fetch, peer, manifest, self.workspace)
            try:
                self._fetch(ByteSource.PEER, targets, fetch)
                return True
            except AttemptFault as fault:
                search.failed(peer, fault)
        return False

    def _fetch_from_hub(self, route: Route, targets: Sequence[Target]) -> None:
        def fetch(received: Callable[[int], None]) -> None:
            route.fetch(
                targets,
                self.workspace,
                credential=lambda: self.attempt.credential(self.grant),
                cancellation=self.attempt.cancellation,
                received=received,
            )

        self._fetch(ByteSource.HUB, targets, fetch)

    def _fetch(
        self,
        source: ByteSource,
        targets: Sequence[Target],
        fetch: Callable[[Callable[[int], None]], None],
    ) -> None:
        """Download from one source, and leave the attempt's figures as the checkpoints have them.

        A file may have begun at an earlier source, whose bytes are not proven before its end. When
        such a file turns out wrong, it starts over, and only then is its last source blamed.
        """
        mixed = self.around.peers is not None and self.attempt.held_bytes() > 0
        try:
            fetch(partial(self._received, source))
        except AttemptFault as fault:
            held = resumable_bytes(targets, self.workspace.state)
            self.attempt.corrected(source, held)
            if not (mixed and fault.reason is Reason.INTEGRITY_MISMATCH):
                raise
            fetch(partial(self._received, source))

    def _received(self, source: ByteSource, size_bytes: int) -> None:
        self.attempt.received(source, size_bytes)
        self.around.metrics.received(source, size_bytes)

    def _marker(self, manifest: Manifest) -> Marker:
        return Marker(
            digest=manifest.digest,
            size_bytes=manifest.size_bytes,
            file_count=manifest.file_count,
            published_at=self.around.clock.now(),
            attempt=self.workspace.number,
            source=self.attempt.progress().source,
        )


def _listing_fault(fault: HubFault, words: str) -> AttemptFault:
    """Return what a hub's refusal to list means for an attempt, in the hub's words by default."""
    kept = {
        Verdict.ACCESS_DENIED: Reason.ACCESS_DENIED,
        Verdict.SOURCE_UNAVAILABLE: Reason.SOURCE_UNAVAILABLE,
    }
    if fault.verdict is Verdict.INVALID_MANIFEST:
        # Its words quote the repository's file names, and every tenant reads a node's status.
        message = "the listing cannot be a manifest; the plugin's log says why"
        return AttemptFault(Reason.INTEGRITY_MISMATCH, message, detail=str(fault))
    # Whatever else it is, the commit does not hold what the artifact was resolved to.
    reason = kept.get(fault.verdict, Reason.INTEGRITY_MISMATCH)
    return AttemptFault(reason, words or str(fault), detail=fault.detail)
