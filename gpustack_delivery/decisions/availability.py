"""What a prefetch's status says: how many of its nodes are there, and why the others are not.

`Lapsed` blames the retention's time to live only for a shortfall that is its doing: if anything
else keeps the prefetch below its bar too, it stays False.

Rules: MP-STA-01, MP-STA-02, MP-STA-03, MP-STA-04, MP-STA-05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpustack_delivery.vocabulary.artifact import RESOLVED, HubSource, ModelArtifact
from gpustack_delivery.vocabulary.conditions import FALSE, TRUE, Condition, assign, find
from gpustack_delivery.vocabulary.node_store import ModelEntry
from gpustack_delivery.vocabulary.prefetch import (
    AVAILABLE,
    DEGRADED,
    LAPSED,
    PROGRESSING,
    ModelPrefetch,
    Status,
)

_NAMED: Final = 3


class Standing(Enum):
    """Where one target node stands."""

    READY = "ready"
    WAITING = "waiting"
    FAILED = "failed"
    LAPSED = "lapsed"


@dataclass(frozen=True, slots=True)
class Survey:
    """A prefetch's targets as they stand.

    Attributes:
        artifact: the artifact; None if it is missing.
        standings: each target's standing, in order of the names.
        entries: what the targets list of the digest.
        fault: why the placement means nothing, "" if it does.
    """

    artifact: ModelArtifact | None
    standings: Mapping[str, Standing]
    entries: Mapping[str, ModelEntry]
    fault: str = ""

    def named(self, standing: Standing) -> list[str]:
        """Return the targets of one standing, in order."""
        return [name for name, found in self.standings.items() if found is standing]

    def count(self, standing: Standing) -> int:
        """Return how many targets have a standing."""
        return sum(found is standing for found in self.standings.values())


def describe(prefetch: ModelPrefetch, survey: Survey, now: float) -> Status:
    """Return a prefetch's status; it keeps the transition times of the one it has."""
    desired, ready = len(survey.standings), survey.count(Standing.READY)
    bar = _required(prefetch, desired)
    wanted = (
        _progressing(survey, desired, ready),
        _available(survey, ready, bar),
        _degraded(survey),
        _lapsed(prefetch, survey, ready, bar),
    )
    conditions = prefetch.status.conditions
    for condition in wanted:
        conditions = assign(conditions, condition, now=now)
    return Status(
        desired_nodes=desired,
        ready_nodes=ready,
        downloading_nodes=survey.count(Standing.WAITING) if survey.artifact else 0,
        lapsed_nodes=tuple(survey.named(Standing.LAPSED)),
        observed_generation=prefetch.metadata.generation,
        conditions=conditions,
    )


def _required(prefetch: ModelPrefetch, desired: int) -> int:
    asked = prefetch.spec.min_ready
    return asked if 0 < asked < desired else desired


def _progressing(survey: Survey, desired: int, ready: int) -> Condition:
    if survey.fault:
        return Condition(PROGRESSING, FALSE, "PlacementInvalid", survey.fault)
    if survey.artifact is None:
        return Condition(PROGRESSING, FALSE, "ArtifactMissing", _MISSING)
    if not desired:
        message = "no node is a target; nothing is delivered until one is"
        return Condition(PROGRESSING, FALSE, "NoTargets", message)
    under_way = survey.count(Standing.WAITING) + survey.count(Standing.FAILED)
    if not under_way:
        return Condition(PROGRESSING, FALSE, "Delivered", f"{ready} of {desired} nodes are ready")
    message = _unresolved(survey.artifact) or f"{ready} of {desired} nodes are ready"
    return Condition(PROGRESSING, TRUE, "Delivering", message)


_MISSING: Final = "the ModelArtifact does not exist in this namespace"


def _available(survey: Survey, ready: int, bar: int) -> Condition:
    if survey.artifact is None:
        return Condition(AVAILABLE, FALSE, "ArtifactMissing", _MISSING)
    if bar and ready >= bar:
        message = f"{ready} nodes are ready, {bar} are needed"
        return Condition(AVAILABLE, TRUE, "MinReadyReached", message)
    return Condition(AVAILABLE, FALSE, "NotEnoughNodes", f"{ready} of {bar} needed nodes are ready")


def _degraded(survey: Survey) -> Condition:
    failed = survey.named(Standing.FAILED)
    if failed:
        causes = [_cause(name, survey.entries[name]) for name in failed[:_NAMED]]
        more = f"; and {len(failed) - _NAMED} more nodes" if len(failed) > _NAMED else ""
        return Condition(DEGRADED, TRUE, "NodeFailed", "; ".join(causes) + more)
    if survey.artifact is None:
        return Condition(DEGRADED, TRUE, "ArtifactMissing", _MISSING)
    return Condition(DEGRADED, FALSE, "NoFailures", "no target node failed")


def _cause(node: str, entry: ModelEntry) -> str:
    said = f": {entry.message}" if entry.message else ""
    return f"{node}: {entry.reason or 'failed'}{said}"


def _lapsed(prefetch: ModelPrefetch, survey: Survey, ready: int, bar: int) -> Condition:
    lapsed, desired = survey.count(Standing.LAPSED), len(survey.standings)
    if not lapsed:
        return Condition(LAPSED, FALSE, "NoLapsedCopies", "no copy lapsed")
    message = f"{lapsed} of {desired} target node copies lapsed"
    if ready >= bar:
        return Condition(LAPSED, FALSE, "NoShortfall", f"{message}; enough nodes are ready")
    if ready + lapsed < bar:
        message += "; the shortfall has other causes as well"
        return Condition(LAPSED, FALSE, "ShortfallBeyondLapse", message)
    message += " past retention.ttlAfterLastUse and are not warmed again"
    if prefetch.spec.retention.pinned:
        message += "; their pins were released"
    return Condition(LAPSED, TRUE, "RetentionTTLExpired", message)


def _unresolved(artifact: ModelArtifact) -> str:
    """Say why nothing can be delivered of an artifact yet, "" if it can."""
    if not isinstance(artifact.spec.source, HubSource):
        return "only artifacts of a hub are delivered to nodes; this one never will be"
    if artifact.status.is_resolved:
        return ""
    found = find(artifact.status.conditions, RESOLVED)
    reason = f": {found.reason}" if found else ""
    return f"waiting for the ModelArtifact to resolve{reason}"
