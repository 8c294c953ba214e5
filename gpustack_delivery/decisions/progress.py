"""How far an artifact's delivery is: the answer of the `progress` subresource.

Counts come from the nodes' own reports; a plugin that answered live can only raise what its node
has reported, because a report that is newer than the reading would otherwise be turned back. No
node, Pod or repository is in the answer.

Rules: VW-PRG-01..03.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpustack_delivery.vocabulary.artifact import ClaimSource, ImageSource, ModelArtifact
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from gpustack_delivery.vocabulary.resources import GROUP, Json
from gpustack_delivery.vocabulary.wire import format_time, present

KIND: Final = "ModelArtifactProgress"


@dataclass(frozen=True, slots=True)
class Progress:
    """A delivery, counted over nodes.

    Attributes:
        digest: the manifest digest, "" when there is none.
        size_bytes: of the whole content, 0 when unknown.
        ready, downloading, failed: how many nodes.
        percent: how far the downloading nodes are on average, whole, None when none downloads.
        downloading_bytes: what they have received together.
        live: how many of them were heard just now.
        failures: how many nodes failed for each reason.
        reason: why there is nothing to count, "" when there is.
    """

    digest: str = ""
    size_bytes: int = 0
    ready: int = 0
    downloading: int = 0
    failed: int = 0
    percent: int | None = None
    downloading_bytes: int = 0
    live: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    def to_wire(self, namespace: str, name: str, now: float) -> Json:
        """Write the answer about an artifact; its zeros are measurements and stay."""
        body: Json = {
            "kind": KIND,
            "apiVersion": f"{GROUP}/v1",
            "metadata": {"name": name, "namespace": namespace},
            "timestamp": format_time(now),
            "manifestDigest": self.digest,
            "sizeBytes": self.size_bytes,
            "ready": self.ready,
            "downloading": self.downloading,
            "failed": self.failed,
            "downloadingBytes": self.downloading_bytes,
            "live": self.live,
            "failureReasons": [
                {"reason": reason, "count": count}
                for reason, count in sorted(self.failures.items())
            ],
        }
        percent = {} if self.percent is None else {"downloadingPercent": self.percent}
        return body | percent | present({"reason": self.reason})


def uncountable(artifact: ModelArtifact) -> str:
    """Say why nothing can be counted about an artifact, "" if something can."""
    source = artifact.spec.source
    if isinstance(source, ClaimSource):
        return "a claim is mounted directly: no node downloads it"
    if isinstance(source, ImageSource):
        return "an image is pulled by the container runtime: no node downloads it here"
    resolved = artifact.status.resolved
    if resolved is None or not resolved.manifest_digest:
        return "the artifact is not resolved yet: see its conditions"
    return ""


def measure(
    artifact: ModelArtifact, entries: Mapping[str, ModelEntry], live: Mapping[str, int]
) -> Progress:
    """Count an artifact's delivery.

    Args:
        artifact: as it is stored.
        entries: its digest's entry on every node that has one.
        live: bytes received, of the nodes that were heard.
    """
    resolved = artifact.status.resolved
    reason = uncountable(artifact)
    if reason or resolved is None:
        return Progress(reason=reason)
    by_state = Counter(entry.state for entry in entries.values())
    # An expected digest comes without a size until a node has listed the files.
    size = resolved.size_bytes or max((entry.size_bytes for entry in entries.values()), default=0)
    received = {
        node: max(entry.downloaded_bytes, live.get(node, 0))
        for node, entry in entries.items()
        if entry.state is ModelState.DOWNLOADING
    }
    percent = None
    if received:
        shares = (min(amount, size) * 100 / size if size else 0.0 for amount in received.values())
        percent = int(sum(shares) / len(received))
    failures = Counter(
        str(entry.reason) for entry in entries.values() if entry.state is ModelState.FAILED
    )
    return Progress(
        digest=resolved.manifest_digest,
        size_bytes=size,
        ready=by_state[ModelState.READY],
        downloading=len(received),
        failed=by_state[ModelState.FAILED],
        percent=percent,
        downloading_bytes=sum(received.values()),
        live=len(received.keys() & live.keys()),
        failures=failures,
    )
