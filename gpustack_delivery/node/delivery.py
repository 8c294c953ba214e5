"""What an attempt does, from a listing to a published tree.

List at the resolved commit and bind the listing to the digest; count what an earlier attempt left;
reserve room; download and verify; publish. Artifacts that asked are tried in order: only a refused
credential or a configuration that cannot be executed lets the next one try. Every way to fail
leaves here as one `AttemptFault`.

Rules: NS-DL-02..05, NS-DL-10, NS-DL-16, NS-DL-18, NS-FR-02..05, NS-RES-09, NS-RES-14.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
from gpustack_delivery.node.configuration import Configuration
from gpustack_delivery.node.downloading import Target, resumable_bytes
from gpustack_delivery.node.markers import Marker
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.node.partials import Workspace
from gpustack_delivery.ports import Clock, Hub
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.node_store import ByteSource

_NEXT_SOURCE: Final = frozenset({Reason.ACCESS_DENIED, Reason.INVALID_REQUEST})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an attempt works with."""

    store: Store
    collector: Collector
    configuration: Configuration
    metrics: Metrics
    clock: Clock


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
    except HostFault as fault:
        raise _disk_fault(fault) from fault
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
        if not self.grant.resolved.revision:
            raise AttemptFault(Reason.SOURCE_UNAVAILABLE, f"no node holds {digest}")
        route = around.configuration.route()
        try:
            hub = route.hub(self.grant.source.hub)
        except ConfigurationFault as fault:
            message = str(fault)
            raise AttemptFault(Reason.INVALID_REQUEST, message, detail=fault.detail) from fault
        manifest = self._list(hub)
        targets = self._targets(hub, manifest)
        attempt.listed(manifest.size_bytes, resumable_bytes(targets, self.workspace.state))
        changed()
        around.collector.reserve(digest, manifest.size_bytes, attempt.held_bytes)
        route.fetch(
            targets,
            self.workspace.state,
            credential=lambda: attempt.credential(self.grant),
            cancellation=attempt.cancellation,
            received=self._received,
        )
        around.store.trees.publish(self.workspace.path, manifest, self._marker(manifest))

    def _list(self, hub: Hub) -> Manifest:
        """List the files at the resolved commit and bind them to the digest."""
        repository, commit = self.grant.source.repository, self.grant.resolved.revision
        try:
            found = hub.list_tree(repository, commit, self.attempt.credential(self.grant))
            manifest = Manifest.of(self.grant.patterns.filter(found))
        except HubFault as fault:
            raise _listing_fault(fault) from fault
        if self.attempt.cancellation.requested:
            raise AttemptFault(Reason.CANCELED)
        if manifest.digest != self.attempt.digest:
            raise AttemptFault(
                Reason.INTEGRITY_MISMATCH,
                "the listing makes another digest than the artifact's",
                detail=f"repository={repository} commit={commit} listed={manifest.digest}",
            )
        return manifest

    def _targets(self, hub: Hub, manifest: Manifest) -> tuple[Target, ...]:
        repository, commit = self.grant.source.repository, self.grant.resolved.revision
        tree = self.workspace.tree
        return tuple(
            Target(entry, hub.file_url(repository, commit, entry.path), tree / entry.path)
            for entry in manifest.entries
        )

    def _received(self, size_bytes: int) -> None:
        self.attempt.received(ByteSource.HUB, size_bytes)
        self.around.metrics.received(ByteSource.HUB, size_bytes)

    def _marker(self, manifest: Manifest) -> Marker:
        return Marker(
            digest=manifest.digest,
            size_bytes=manifest.size_bytes,
            file_count=manifest.file_count,
            published_at=self.around.clock.now(),
            attempt=self.workspace.number,
            source=self.attempt.progress().source,
        )


def _listing_fault(fault: HubFault) -> AttemptFault:
    """Return what a hub's refusal to list means for an attempt."""
    kept = {
        Verdict.ACCESS_DENIED: Reason.ACCESS_DENIED,
        Verdict.SOURCE_UNAVAILABLE: Reason.SOURCE_UNAVAILABLE,
    }
    # Whatever else it is, the commit does not hold what the artifact was resolved to.
    reason = kept.get(fault.verdict, Reason.INTEGRITY_MISMATCH)
    return AttemptFault(reason, str(fault), detail=fault.detail)


def _disk_fault(fault: HostFault) -> AttemptFault:
    """Return what a failure of the filesystem means for an attempt."""
    cause = fault.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    if number in {errno.ENOSPC, errno.EDQUOT}:
        reason, message = Reason.INSUFFICIENT_CAPACITY, "the filesystem is full"
    else:
        reason, message = Reason.SOURCE_UNAVAILABLE, "the node's disk failed"
    return AttemptFault(reason, message, detail=fault.detail or str(fault))
