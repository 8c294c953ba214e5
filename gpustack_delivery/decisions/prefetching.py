"""What a prefetch needs next: which warm-up Pods to make and to remove, which nodes to pin, and
what its status says.

A target waits until its node lists the digest Ready. A waiting target has one live Pod. A Pod that
ended without success is kept as the record of its attempt, and replaced when its pause is over; the
pauses double. A failed entry is not hurried either: no new Pod comes before the node would try
again. There is no fixed time within which a download must end: a Pod is given up only when neither
it nor its node's entry has moved for a long time.

A copy that nothing mounted for the retention's time to live lapses: it is unpinned and not warmed
again, not even when collection has taken it, until a consumer brings it back or the prefetch is
changed. `lastUsedTime` is cut to the hour, so a copy is given that hour, and never lapses early.

Rules: MP-RES-09, MP-POD-01, MP-POD-05, MP-PIN-01, MP-PIN-03, MP-STA-04.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpustack_delivery.decisions.availability import Standing, Survey, describe
from gpustack_delivery.decisions.pods import WarmUp
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch, Status

PODS_PER_PASS: Final = 8
NEXT_BATCH_SECONDS: Final = 5.0
FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 1800.0
STALL_SECONDS: Final = 7200.0
USE_GRAIN_SECONDS: Final = 3600.0

Evidence: TypeAlias = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a Pod and its node's entry looked like when they last moved, and when that was seen."""

    evidence: Evidence
    since: float


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a plan rests on.

    Attributes:
        prefetch: with the status it has.
        artifact: what it names; None if it is missing.
        targets: its expansion, in order; empty if the placement has a fault.
        fault: that fault, "" without one.
        entries: what nodes list of the artifact's digest, by node.
        warm_ups: the Pods that it controls.
        fingerprints: what a Pod of each target would be rendered from now; empty if none can be.
        may_pin: whether its grant exists and lets it pin.
        marks: those of the last plan, by the Pods' UIDs.
    """

    prefetch: ModelPrefetch
    artifact: ModelArtifact | None
    targets: Sequence[str]
    fault: str = ""
    entries: Mapping[str, ModelEntry] = field(default_factory=dict)
    warm_ups: Sequence[WarmUp] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    may_pin: bool = False
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return the digest the artifact stands for, "" while nobody knows."""
        resolved = self.artifact.status.resolved if self.artifact else None
        return resolved.manifest_digest if resolved else ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A Pod to make: for which node, and the how manieth it is."""

    node: str
    number: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when to plan again at the latest (None: when something changes)."""

    status: Status
    make: tuple[Attempt, ...] = ()
    remove: tuple[WarmUp, ...] = ()
    pinned: frozenset[str] = frozenset()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    again_seconds: float | None = None


def plan(facts: Facts, now: float) -> Plan:
    """Plan one pass over a prefetch; `now` is seconds since the epoch."""
    survey = Survey(facts.artifact, _standings(facts, now), facts.entries, facts.fault)
    pods = _Pods(facts, survey, now)
    pods.decide()
    status = describe(facts.prefetch, survey, now)
    waits = [*pods.waits, *_lapse_waits(facts, survey, now)]
    return Plan(
        status,
        tuple(pods.make),
        tuple(pods.remove),
        pinned_nodes(facts, survey.standings),
        pods.marks,
        min(waits, default=None),
    )


def pins(facts: Facts, now: float) -> frozenset[str]:
    """Return the nodes on which a prefetch keeps its digest, and plan nothing."""
    return pinned_nodes(facts, _standings(facts, now))


def pinned_nodes(facts: Facts, standings: Mapping[str, Standing]) -> frozenset[str]:
    """Return the targets to pin: all that have not lapsed, whether the copy is there yet or not."""
    if not (facts.prefetch.spec.retention.pinned and facts.may_pin and facts.digest):
        return frozenset()
    return frozenset(name for name, found in standings.items() if found is not Standing.LAPSED)


def _standings(facts: Facts, now: float) -> dict[str, Standing]:
    remembered = _remembered(facts)
    return {name: _standing(facts, name, now, gone=name in remembered) for name in facts.targets}


def _standing(facts: Facts, name: str, now: float, *, gone: bool) -> Standing:
    """Judge one target; `gone` says that its copy had lapsed when last seen."""
    entry = facts.entries.get(name) if facts.digest else None
    if entry is None:
        return Standing.LAPSED if gone else Standing.WAITING
    if entry.state is ModelState.READY:
        return Standing.LAPSED if _lapses_in(facts, entry, now) == 0 else Standing.READY
    return Standing.FAILED if entry.state is ModelState.FAILED else Standing.WAITING


def _remembered(facts: Facts) -> frozenset[str]:
    """Return the nodes whose copies lapsed under the prefetch as it is now."""
    prefetch = facts.prefetch
    same = prefetch.status.observed_generation == prefetch.metadata.generation
    if not (same and facts.digest) or prefetch.spec.retention.ttl_seconds is None:
        return frozenset()
    return frozenset(prefetch.status.lapsed_nodes)


def _lapses_in(facts: Facts, entry: ModelEntry, now: float) -> float | None:
    """Return in how many seconds an unused copy lapses; None if it does not."""
    ttl = facts.prefetch.spec.retention.ttl_seconds
    if ttl is None or entry.last_used_time is None or entry.referenced:
        return None
    return max(entry.last_used_time + USE_GRAIN_SECONDS + ttl - now, 0.0)


def _lapse_waits(facts: Facts, survey: Survey, now: float) -> Iterable[float]:
    for name in survey.named(Standing.READY):
        wait = _lapses_in(facts, facts.entries[name], now)
        if wait is not None:
            yield wait


class _Pods:
    """Decides over the Pods of one pass."""

    def __init__(self, facts: Facts, survey: Survey, now: float) -> None:
        self._facts = facts
        self._survey = survey
        self._now = now
        self.make: list[Attempt] = []
        self.remove: list[WarmUp] = []
        self.marks: dict[str, Mark] = {}
        self.waits: list[float] = []
        self._wanted: list[Attempt] = []

    def decide(self) -> None:
        """Go over every Pod and every target."""
        by_node: dict[str, list[WarmUp]] = {}
        for pod in sorted(self._facts.warm_ups, key=lambda pod: (pod.attempt, pod.metadata.name)):
            if pod.node in self._survey.standings and pod.digest == self._facts.digest:
                by_node.setdefault(pod.node, []).append(pod)
            elif not pod.metadata.terminating:
                self.remove.append(pod)
        for node, standing in self._survey.standings.items():
            pods = by_node.get(node, [])
            if standing in {Standing.READY, Standing.LAPSED}:
                self._settled(standing, pods)
            else:
                self._waiting(node, pods)
        self.make = self._wanted[:PODS_PER_PASS]
        if len(self._wanted) > len(self.make):
            self.waits.append(NEXT_BATCH_SECONDS)

    def _settled(self, standing: Standing, pods: Sequence[WarmUp]) -> None:
        """Clear a target that needs nothing more; a Pod that reads back may end its work."""
        for pod in pods:
            if pod.metadata.terminating:
                continue
            if not pod.is_live or standing is Standing.LAPSED or self._stalled(pod):
                self.remove.append(pod)

    def _waiting(self, node: str, pods: Sequence[WarmUp]) -> None:
        """See that a target that waits has one Pod at work, or will have."""
        live = [pod for pod in pods if pod.is_live]
        self.remove += live[1:]
        number = max((pod.attempt for pod in pods), default=0) + 1
        fingerprint = self._facts.fingerprints.get(node, "")
        if live:
            outdated = live[0].phase == "Pending" and live[0].fingerprint != fingerprint
            if fingerprint and (self._stalled(live[0]) or outdated):
                self._replace(live[:1], Attempt(node, number))
            return
        ended = [pod for pod in pods if not pod.metadata.terminating]
        wait = max(self._pause_left(ended), self._retry_left(node))
        if not fingerprint:
            return
        if wait > 0:
            self.waits.append(wait)
        else:
            self._replace(ended, Attempt(node, number))

    def _replace(self, old: Sequence[WarmUp], attempt: Attempt) -> None:
        """Want a Pod in place of others, which go when its turn has come."""
        if len(self._wanted) < PODS_PER_PASS:
            self.remove += old
        self._wanted.append(attempt)

    def _pause_left(self, ended: Sequence[WarmUp]) -> float:
        if not ended:
            return 0.0
        last = ended[-1]
        ended_at = self._now if last.finished_at is None else last.finished_at
        return ended_at + pause(last.attempt) - self._now

    def _retry_left(self, node: str) -> float:
        """Return how long a failed node itself waits before it would try again."""
        entry = self._facts.entries.get(node)
        if entry is None or entry.retry_time is None:
            return 0.0
        return entry.retry_time - self._now

    def _stalled(self, pod: WarmUp) -> bool:
        """Say whether nothing has moved for too long; remember when something last did."""
        entry = self._facts.entries.get(pod.node)
        evidence: Evidence = (
            pod.phase,
            entry.state if entry else "",
            entry.downloaded_bytes if entry else 0,
            entry.reason if entry else "",
        )
        uid = pod.metadata.uid
        mark = self._facts.marks.get(uid)
        if mark is None or mark.evidence != evidence:
            mark = Mark(evidence, self._now)
        self.marks[uid] = mark
        left = mark.since + STALL_SECONDS - self._now
        if left > 0:
            self.waits.append(left)
        return left <= 0


def pause(attempt: int) -> float:
    """Return how many seconds after its end an attempt is followed by the next."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempt - 1, 16), LONGEST_PAUSE_SECONDS)
