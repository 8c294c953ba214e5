"""An artifact's life: resolved once, then asked about again and again.

`plan` says what to do next with an artifact; the worker does it, and `conclude` turns what came of
it into the next status and the time to look again. Neither touches a hub.

An artifact is announced (Resolved=Unknown) before the first contact with its source. A hub source
is then resolved to a commit and a digest, for good: afterwards only access to it is checked. A
refusal must be confirmed a minute later before it revokes, a failure to reach the hub never
revokes, and a Secret that is gone revokes at once. An artifact that names its expected digest
becomes mountable on that digest alone once the hub stayed unreachable for a minute.

Rules: AR-HF-01, AR-REV-01..04, AR-ANC-01..03, AR-CLM-01, AR-RES-05.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from gpustack_delivery.errors import Verdict
from gpustack_delivery.vocabulary.artifact import (
    DEGRADED,
    RESOLVED,
    ClaimSource,
    DigestSource,
    HubSource,
    ImageSource,
    ModelArtifact,
    Resolved,
    Spec,
    Status,
)
from gpustack_delivery.vocabulary.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    assign,
    find,
    holds,
)

CONFIRM_SECONDS: Final = 60.0
UNAVAILABLE_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 600.0

_REVOKING: Final = frozenset(
    {Verdict.ACCESS_DENIED, Verdict.REVISION_NOT_FOUND, Verdict.DIGEST_MISMATCH}
)


class Action(Enum):
    """What to do with an artifact next."""

    ANNOUNCE = auto()  # say that resolution has begun
    RESOLVE = auto()  # resolve the revision and list its tree
    PROBE = auto()  # check that the credential still reads the commit
    RELIST = auto()  # list the commit again and compare its digest
    FIND_CLAIM = auto()  # look whether the claim exists
    SETTLE = auto()  # conclude with `Step.outcome`: nothing has to be asked
    REST = auto()  # nothing before `Step.wait_seconds`; None waits for a change


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step did not succeed.

    `from_hub` is False when the hub was not even asked, as with a Secret that could not be read:
    such a pass never counts toward an anchor.
    """

    verdict: Verdict
    message: str
    from_hub: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """What a revision turned out to be: its commit, and the filtered manifest in three numbers."""

    revision: str
    manifest_digest: str
    file_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Passed:
    """The step succeeded and has nothing to add: a probe passed, a claim exists."""


Outcome: TypeAlias = Refusal | Listing | Passed


@dataclass(frozen=True, slots=True)
class Credential:
    """What reading the artifact's Secret came to, without the token.

    `version` is the Secret's resourceVersion, "" for public access; `refusal` says why there is no
    token.
    """

    version: str = ""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """When an artifact is due again (None: on a change), and with which credential it was asked."""

    due: float | None
    credential_version: str


@dataclass(frozen=True, slots=True)
class Step:
    """The next action; SETTLE comes with its outcome, REST with how long."""

    action: Action
    outcome: Outcome | None = None
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The status to store, and in how many seconds to look again; None waits for a change."""

    status: Status
    again_seconds: float | None


def plan(
    artifact: ModelArtifact,
    credential: Credential,
    pace: Pace | None,
    now: float,
    interval_seconds: float,
) -> Step:
    """Say what to do with an artifact now.

    Args:
        artifact: the artifact as stored.
        credential: what reading its Secret came to.
        pace: what was noted after the last conclusion; None after a restart or a lost write.
        now: seconds since the epoch.
        interval_seconds: how often a healthy artifact is revalidated.
    """
    if find(artifact.status.conditions, RESOLVED) is None:
        return Step(Action.ANNOUNCE)
    match artifact.spec.source:
        case None:
            message = "this version knows no source of this kind; upgrade the worker"
            return Step(Action.SETTLE, Refusal(Verdict.UNSUPPORTED_SOURCE, message))
        case ImageSource():
            return Step(Action.SETTLE, Passed())
        case ClaimSource():
            return Step(Action.FIND_CLAIM)
    return _plan_hub(artifact, credential, pace, now, interval_seconds)


def _plan_hub(
    artifact: ModelArtifact,
    credential: Credential,
    pace: Pace | None,
    now: float,
    interval_seconds: float,
) -> Step:
    if credential.refusal is not None:
        return Step(Action.SETTLE, credential.refusal)
    due = _due(artifact.status, credential, pace, interval_seconds)
    # What is due later than anything in this state was noted before the clock was set back, or
    # before somebody took the status away.
    longest = max(REFUSED_SECONDS, interval_seconds if artifact.status.is_resolved else 0.0)
    if due is None or 0 < due - now <= longest:
        return Step(Action.REST, wait_seconds=None if due is None else due - now)
    return _ask(artifact.spec, artifact.status)


def _due(
    status: Status, credential: Credential, pace: Pace | None, interval_seconds: float
) -> float | None:
    """Return when the source is to be asked; the past means now."""
    same_credential = pace is not None and pace.credential_version == credential.version
    if not same_credential and (pace is not None or credential.version):
        # The Secret changed, or may have changed while no worker looked.
        return 0.0
    checked = status.resolved.last_validated_time if status.resolved else None
    if checked is not None and status.is_resolved and not holds(status.conditions, DEGRADED):
        # What is healthy waits for its turn, also after a restart: a new leader does not ask about
        # everything at once, and a changed interval holds from the last check on.
        return checked + interval_seconds
    return pace.due if pace is not None else 0.0


def _ask(spec: Spec, status: Status) -> Step:
    resolved = status.resolved
    if resolved is None:
        return Step(Action.RESOLVE)
    if resolved.digest_source is DigestSource.EXPECTED:
        # There is no commit to ask about: the digest is its own proof.
        return Step(Action.SETTLE, Passed())
    return Step(Action.RELIST if spec.expected_digest else Action.PROBE)


def conclude(
    artifact: ModelArtifact, outcome: Outcome, now: float, interval_seconds: float
) -> Conclusion:
    """Turn what came of a step into the next status and the time to look again."""
    spec = artifact.spec
    status = replace(artifact.status, observed_generation=artifact.metadata.generation)
    outcome = _compare(spec, status, outcome)
    if isinstance(outcome, Refusal):
        return _refused(spec, status, outcome, now, interval_seconds)
    resolved = status.resolved or _first_facts(outcome, now)
    if resolved.digest_source is DigestSource.HUB:
        resolved = replace(resolved, last_validated_time=float(int(now)))
    again = interval_seconds if isinstance(spec.source, HubSource) else None
    return Conclusion(_healthy(status, resolved, now), again)


def announce(artifact: ModelArtifact, now: float) -> Status:
    """Return the status that stands while the source is asked for the first time."""
    status = replace(artifact.status, observed_generation=artifact.metadata.generation)
    return _say(status, UNKNOWN, "Resolving", "the source has not been asked yet", now)


def _first_facts(outcome: Listing | Passed, now: float) -> Resolved:
    if isinstance(outcome, Passed):
        return Resolved(resolved_time=float(int(now)))
    return Resolved(
        resolved_time=float(int(now)),
        manifest_digest=outcome.manifest_digest,
        digest_source=DigestSource.HUB,
        revision=outcome.revision,
        file_count=outcome.file_count,
        size_bytes=outcome.size_bytes,
    )


def _compare(spec: Spec, status: Status, outcome: Outcome) -> Outcome:
    """Hold a listing against the digest it must have: the one resolved before, or the anchor."""
    if not isinstance(outcome, Listing):
        return outcome
    listed = outcome.manifest_digest
    known = status.resolved.manifest_digest if status.resolved else spec.expected_digest
    if known in {"", listed}:
        return outcome
    message = f"the hub lists {listed}, but {known} is expected"
    return Refusal(Verdict.DIGEST_MISMATCH, message)


def _refused(
    spec: Spec, status: Status, refusal: Refusal, now: float, interval_seconds: float
) -> Conclusion:
    verdict = refusal.verdict
    if verdict is Verdict.SECRET_NOT_FOUND or not isinstance(spec.source, HubSource):
        return _refused_outside(spec, status, refusal, now)
    if status.resolved is not None:
        return _revalidation_refused(status, refusal, now)
    if verdict is not Verdict.SOURCE_UNAVAILABLE:
        return Conclusion(_revoke(status, refusal, now), REFUSED_SECONDS)
    return _unavailable(spec, status, refusal, now, interval_seconds)


def _unavailable(
    spec: Spec, status: Status, refusal: Refusal, now: float, interval_seconds: float
) -> Conclusion:
    """Conclude that an artifact never resolved could not be resolved now: it waits, or anchors."""
    if not refusal.from_hub:
        return Conclusion(_degrade(status, refusal, now), UNAVAILABLE_SECONDS)
    since = _held_seconds(status, (DEGRADED, RESOLVED), refusal.verdict, now)
    if not spec.expected_digest or since is None:
        return Conclusion(_revoke(status, refusal, now), UNAVAILABLE_SECONDS)
    if since < CONFIRM_SECONDS:
        return Conclusion(_revoke(status, refusal, now), CONFIRM_SECONDS - since)
    anchor = Resolved(
        resolved_time=float(int(now)),
        manifest_digest=spec.expected_digest,
        digest_source=DigestSource.EXPECTED,
    )
    return Conclusion(_healthy(status, anchor, now), interval_seconds)


def _refused_outside(spec: Spec, status: Status, refusal: Refusal, now: float) -> Conclusion:
    """Conclude a refusal that no hub spoke: a missing Secret or claim, or an unknown source."""
    if refusal.verdict is Verdict.SOURCE_UNAVAILABLE:
        return Conclusion(_degrade(status, refusal, now), UNAVAILABLE_SECONDS)
    again = REFUSED_SECONDS if isinstance(spec.source, HubSource) else None
    return Conclusion(_revoke(status, refusal, now), again)


def _revalidation_refused(status: Status, refusal: Refusal, now: float) -> Conclusion:
    if refusal.verdict not in _REVOKING:
        return Conclusion(_degrade(status, refusal, now), UNAVAILABLE_SECONDS)
    since = _held_seconds(status, (DEGRADED,), refusal.verdict, now)
    if since is not None and since >= CONFIRM_SECONDS:
        return Conclusion(_revoke(status, refusal, now), REFUSED_SECONDS)
    wait = CONFIRM_SECONDS if since is None else CONFIRM_SECONDS - since
    return Conclusion(_degrade(status, refusal, now), wait)


def _held_seconds(
    status: Status, types: tuple[str, ...], verdict: Verdict, now: float
) -> float | None:
    """Return how long these conditions all have had this reason; None if one has not."""
    held = []
    for kind in types:
        condition = find(status.conditions, kind)
        if condition is None or condition.reason != verdict:
            return None
        seconds = now - (condition.transition_time or 0.0)
        # A little ahead is another machine's clock and is waited for; far ahead, ours was set back.
        held.append(-seconds if seconds < -REFUSED_SECONDS else seconds)
    return max(0.0, min(held))


def _healthy(status: Status, resolved: Resolved, now: float) -> Status:
    message = ""
    if resolved.digest_source is DigestSource.EXPECTED:
        message = "the hub could not be reached; the expected digest stands in for it"
    settled = _say(replace(status, resolved=resolved), TRUE, "Resolved", message, now)
    return _say_degraded(settled, FALSE, "Healthy", "", now)


def _revoke(status: Status, refusal: Refusal, now: float) -> Status:
    degraded = _degrade(status, refusal, now)
    return _say(degraded, FALSE, refusal.verdict, refusal.message, now)


def _degrade(status: Status, refusal: Refusal, now: float) -> Status:
    return _say_degraded(status, TRUE, refusal.verdict, refusal.message, now)


def _say(status: Status, value: str, reason: str, message: str, now: float) -> Status:
    return _with_condition(status, Condition(RESOLVED, value, reason, message), now)


def _say_degraded(status: Status, value: str, reason: str, message: str, now: float) -> Status:
    return _with_condition(status, Condition(DEGRADED, value, reason, message), now)


def _with_condition(status: Status, wanted: Condition, now: float) -> Status:
    stored = find(status.conditions, wanted.type)
    # Degraded is stamped anew with each new reason: a refusal is confirmed against its own start.
    restamp = wanted.type == DEGRADED and stored is not None and stored.reason != wanted.reason
    wanted = replace(wanted, observed_generation=status.observed_generation)
    conditions = assign(status.conditions, wanted, now=now, restamp=restamp)
    return replace(status, conditions=conditions)
