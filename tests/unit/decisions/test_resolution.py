"""An artifact's life, step by step on a clock of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpustack_delivery.decisions.resolution import (
    Action,
    Conclusion,
    Credential,
    Listing,
    Outcome,
    Pace,
    Passed,
    Refusal,
    Step,
    announce,
    conclude,
    plan,
)
from gpustack_delivery.errors import Verdict
from gpustack_delivery.vocabulary.artifact import (
    DEGRADED,
    RESOLVED,
    DigestSource,
    ModelArtifact,
    Resolved,
    Status,
)
from gpustack_delivery.vocabulary.conditions import find

DAY = 86400.0
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
COMMIT = "c" * 40
LISTING = Listing(COMMIT, DIGEST, 10, 999)
DENIED = Refusal(Verdict.ACCESS_DENIED, "HTTP 403")
DOWN = Refusal(Verdict.SOURCE_UNAVAILABLE, "HTTP 503")
NO_SECRET = Refusal(Verdict.SECRET_NOT_FOUND, "the Secret hf does not exist", from_hub=False)
UNREADABLE = Refusal(Verdict.SOURCE_UNAVAILABLE, "the Secret cannot be read", from_hub=False)
HUB = {"huggingFace": {"repository": "a/b", "revision": "main"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "w"}}
IMAGE = {"image": {"reference": "x@" + DIGEST}}


@dataclass
class Life:
    """One artifact and its worker's note, driven by hand.

    `now` moves only when a test moves it.
    """

    source: dict[str, Any] = field(default_factory=lambda: HUB)
    expected: str = ""
    now: float = 1000.0
    interval: float = DAY
    credential: Credential = field(default_factory=Credential)
    pace: Pace | None = None

    def __post_init__(self) -> None:
        spec = {"source": self.source, "expectedDigest": self.expected}
        metadata = {"name": "x", "generation": 1}
        self.artifact = ModelArtifact.from_wire({"metadata": metadata, "spec": spec})

    def plan(self) -> Step:
        """Ask what is next."""
        return plan(self.artifact, self.credential, self.pace, self.now, self.interval)

    def announce(self) -> Life:
        """Store the announcement."""
        self.artifact = replace(self.artifact, status=announce(self.artifact, self.now))
        return self

    def conclude(self, outcome: Outcome) -> Conclusion:
        """Store a conclusion and note its pace."""
        conclusion = conclude(self.artifact, outcome, self.now, self.interval)
        self.artifact = replace(self.artifact, status=conclusion.status)
        again = conclusion.again_seconds
        due = None if again is None else self.now + again
        self.pace = Pace(due, self.credential.version)
        return conclusion

    @property
    def said(self) -> str:
        """Return both conditions in short, such as `True/Resolved False/Healthy`."""
        found = (find(self.artifact.status.conditions, kind) for kind in (RESOLVED, DEGRADED))
        return " ".join(f"{item.status}/{item.reason}" for item in found if item)

    @property
    def resolved(self) -> Resolved:
        """Return the resolution, which must exist."""
        assert self.artifact.status.resolved is not None
        return self.artifact.status.resolved


HEALTHY = "True/Resolved False/Healthy"


def settled(**facts: Any) -> Life:
    """Return an artifact the hub resolved at 1000."""
    life = Life(**facts).announce()
    life.conclude(LISTING)
    return life


def test_announcement_comes_first() -> None:
    """Before any contact the artifact says that it is being resolved, and nothing else."""
    life = Life()
    assert life.plan().action is Action.ANNOUNCE
    life.announce()
    assert life.said == "Unknown/Resolving"
    assert life.artifact.status.observed_generation == 1
    assert life.plan() == Step(Action.RESOLVE)


def test_first_resolution() -> None:
    """A listing becomes the resolution, healthy, to be checked again after the interval."""
    life = settled()
    assert life.said == HEALTHY
    assert life.resolved == Resolved(1000, DIGEST, DigestSource.HUB, COMMIT, 10, 999, 1000)
    assert life.plan() == Step(Action.REST, wait_seconds=DAY)


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict.REVISION_NOT_FOUND,
        Verdict.ACCESS_DENIED,
        Verdict.INVALID_MANIFEST,
        Verdict.EMPTY_MANIFEST,
        Verdict.MANIFEST_TOO_LARGE,
    ],
)
def test_first_refusal(verdict: Verdict) -> None:
    """What the hub refuses at first is not resolved, and asked again in ten minutes."""
    life = Life().announce()
    conclusion = life.conclude(Refusal(verdict, "why"))
    assert life.said == f"False/{verdict} True/{verdict}"
    assert conclusion.again_seconds == 600
    assert life.artifact.status.resolved is None
    life.now += 600
    assert life.plan().action is Action.RESOLVE


def test_first_outage_is_retried_every_minute() -> None:
    """Without an anchor an outage is simply tried again."""
    life = Life().announce()
    for _ in range(3):
        assert life.conclude(DOWN).again_seconds == 60
        assert life.said == "False/SourceUnavailable True/SourceUnavailable"
        life.now += 60
    life.conclude(LISTING)
    assert life.said == HEALTHY


def test_probe_after_the_interval() -> None:
    """A healthy artifact is probed, and success moves the validation time alone."""
    life = settled()
    before = life.artifact.status
    life.now += DAY
    assert life.plan().action is Action.PROBE
    life.conclude(Passed())
    assert life.resolved == replace(before.resolved or life.resolved, last_validated_time=87400)
    assert life.artifact.status.conditions == before.conditions


def test_a_shorter_interval_holds_at_once() -> None:
    """A changed interval counts from the last check on, whatever was noted before."""
    life = settled()
    life.interval = 60
    life.now += 60
    assert life.plan().action is Action.PROBE


def test_refusal_revokes_only_when_confirmed() -> None:
    """The first refusal degrades; the same a minute later revokes; success restores everything."""
    life = settled()
    before = life.resolved
    life.now += DAY
    assert life.conclude(DENIED).again_seconds == 60
    assert life.said == "True/Resolved True/AccessDenied"
    life.now += 30
    assert life.plan() == Step(Action.REST, wait_seconds=30)
    assert life.conclude(DENIED).again_seconds == 30
    assert life.said == "True/Resolved True/AccessDenied"
    life.now += 30
    assert life.plan().action is Action.PROBE
    assert life.conclude(DENIED).again_seconds == 600
    assert life.said == "False/AccessDenied True/AccessDenied"
    assert life.plan() == Step(Action.REST, wait_seconds=600)
    life.now += 600
    life.conclude(Passed())
    assert life.said == HEALTHY
    assert replace(life.resolved, last_validated_time=before.last_validated_time) == before


def test_another_reason_starts_its_own_minute() -> None:
    """A refusal of another kind must be confirmed by itself."""
    life = settled()
    life.conclude(DENIED)
    life.now += 61
    life.conclude(Refusal(Verdict.REVISION_NOT_FOUND, "gone"))
    assert life.said == "True/Resolved True/RevisionNotFound"
    life.now += 60
    life.conclude(Refusal(Verdict.REVISION_NOT_FOUND, "gone"))
    assert life.said == "False/RevisionNotFound True/RevisionNotFound"


@pytest.mark.parametrize(
    "refusal", [DOWN, UNREADABLE, Refusal(Verdict.INVALID_MANIFEST, "odd tree")]
)
def test_outages_never_revoke(refusal: Refusal) -> None:
    """However long the hub or the API fails, the artifact stays mountable."""
    life = settled()
    for _ in range(5):
        assert life.conclude(refusal).again_seconds == 60
        assert life.said == f"True/Resolved True/{refusal.verdict}"
        life.now += 3600
    life.conclude(Passed())
    assert life.said == HEALTHY


def test_missing_secret_revokes_at_once() -> None:
    """A Secret that is gone needs no confirmation; its return is noticed at once."""
    life = settled(credential=Credential("7"))
    life.credential = Credential(refusal=NO_SECRET)
    assert life.plan() == Step(Action.SETTLE, NO_SECRET)
    assert life.conclude(NO_SECRET).again_seconds == 600
    assert life.said == "False/SecretNotFound True/SecretNotFound"
    life.credential = Credential("9")
    assert life.plan().action is Action.PROBE
    life.conclude(Passed())
    assert life.said == HEALTHY


def test_missing_secret_before_the_first_resolution() -> None:
    """A Secret may come later than its artifact."""
    life = Life(credential=Credential(refusal=NO_SECRET)).announce()
    life.conclude(NO_SECRET)
    assert life.said == "False/SecretNotFound True/SecretNotFound"
    life.credential = Credential("1")
    assert life.plan().action is Action.RESOLVE


def test_unreadable_secret_before_the_first_resolution() -> None:
    """An API that cannot be read says nothing about the artifact: it stays being resolved."""
    life = Life().announce()
    assert life.conclude(UNREADABLE).again_seconds == 60
    assert life.said == "Unknown/Resolving True/SourceUnavailable"


def test_changed_secret_is_asked_with_at_once() -> None:
    """A new Secret version does not wait for the interval, nor for a pause after a refusal."""
    life = settled(credential=Credential("7"))
    assert life.plan().action is Action.REST
    life.credential = Credential("8")
    assert life.plan().action is Action.PROBE


def test_after_a_restart() -> None:
    """Healthy public sources wait for their turn, private and unhealthy ones are asked at once."""
    life = settled()
    life.pace = None
    assert life.plan() == Step(Action.REST, wait_seconds=DAY)
    life.conclude(DENIED)
    life.pace = None
    assert life.plan().action is Action.PROBE
    private = settled(credential=Credential("7"))
    private.pace = None
    assert private.plan().action is Action.PROBE


def test_anchor_contradicted() -> None:
    """A listing that differs from the expected digest names both, and is asked again later."""
    life = Life(expected=OTHER).announce()
    assert life.conclude(LISTING).again_seconds == 600
    assert life.said == "False/DigestMismatch True/DigestMismatch"
    condition = find(life.artifact.status.conditions, RESOLVED)
    assert condition is not None
    assert DIGEST in condition.message
    assert OTHER in condition.message


def test_anchor_stands_in_for_an_unreachable_hub() -> None:
    """Two outages a minute apart make the expected digest the resolution, with nothing else."""
    life = Life(expected=DIGEST).announce()
    assert life.conclude(DOWN).again_seconds == 60
    life.now += 20
    assert life.conclude(DOWN).again_seconds == 40
    life.now += 40
    life.conclude(DOWN)
    assert life.said == HEALTHY
    assert life.resolved == Resolved(1060, DIGEST, DigestSource.EXPECTED)
    life.now += DAY
    before = life.artifact.status
    assert life.plan() == Step(Action.SETTLE, Passed())
    life.conclude(Passed())
    assert life.artifact.status == before


def test_anchored_artifact_still_needs_its_secret() -> None:
    """A missing Secret revokes an anchored artifact too, and its return restores it."""
    life = Life(expected=DIGEST).announce()
    life.conclude(DOWN)
    life.now += 60
    life.conclude(DOWN)
    anchored = life.artifact.status
    life.conclude(NO_SECRET)
    assert life.said == "False/SecretNotFound True/SecretNotFound"
    life.credential = Credential("1")
    assert life.plan() == Step(Action.SETTLE, Passed())
    life.conclude(Passed())
    assert life.said == HEALTHY
    assert life.resolved == anchored.resolved


def test_a_hub_that_answered_is_never_anchored_around() -> None:
    """A refusal between two outages starts the minute again."""
    life = Life(expected=DIGEST).announce()
    life.conclude(DOWN)
    life.now += 60
    life.conclude(DENIED)
    assert life.said == "False/AccessDenied True/AccessDenied"
    life.now += 600
    life.conclude(DOWN)
    assert life.said == "False/SourceUnavailable True/SourceUnavailable"
    life.now += 60
    life.conclude(DOWN)
    assert life.said == HEALTHY


def test_an_unreadable_secret_is_no_outage_of_the_hub() -> None:
    """Passes that never reached the hub do not count toward the anchor."""
    life = Life(expected=DIGEST).announce()
    life.conclude(UNREADABLE)
    life.now += 3600
    life.conclude(DOWN)
    life.now += 59
    assert life.conclude(DOWN).again_seconds == 1
    assert life.said == "False/SourceUnavailable True/SourceUnavailable"


def test_anchored_by_the_hub_is_listed_again() -> None:
    """With an expected digest the check is a full listing, whose digest must be the same."""
    life = settled(expected=DIGEST)
    life.now += DAY
    assert life.plan().action is Action.RELIST
    life.conclude(LISTING)
    assert life.resolved.last_validated_time == life.now
    changed = replace(LISTING, manifest_digest=OTHER)
    life.conclude(changed)
    assert life.said == "True/Resolved True/DigestMismatch"
    life.now += 60
    life.conclude(changed)
    assert life.said == "False/DigestMismatch True/DigestMismatch"
    assert life.resolved.manifest_digest == DIGEST


def test_claim() -> None:
    """A claim resolves by existing, is revoked by not existing, and has no digest."""
    life = Life(CLAIM).announce()
    assert life.plan() == Step(Action.FIND_CLAIM)
    missing = Refusal(Verdict.CLAIM_NOT_FOUND, "the claim w does not exist", from_hub=False)
    assert life.conclude(missing).again_seconds is None
    assert life.said == "False/ClaimNotFound True/ClaimNotFound"
    assert life.conclude(Passed()).again_seconds is None
    assert life.said == HEALTHY
    assert life.resolved == Resolved(1000)
    assert life.conclude(UNREADABLE).again_seconds == 60
    assert life.said == "True/Resolved True/SourceUnavailable"


def test_image() -> None:
    """A pinned image is its own proof."""
    life = Life(IMAGE).announce()
    assert life.plan() == Step(Action.SETTLE, Passed())
    assert life.conclude(Passed()).again_seconds is None
    assert life.resolved == Resolved(1000)


def test_unknown_source() -> None:
    """A source of a newer version is reported, not guessed at."""
    life = Life({"ftp": {}}).announce()
    step = life.plan()
    assert isinstance(step.outcome, Refusal)
    assert life.conclude(step.outcome).again_seconds is None
    assert life.said == "False/UnsupportedSource True/UnsupportedSource"


def test_a_rested_artifact_without_due_time_waits_for_a_change() -> None:
    """A pace without a time is only broken by a change."""
    life = Life().announce()
    life.pace = Pace(None, "")
    assert life.plan() == Step(Action.REST)


def test_stamps_never_lie_in_the_future() -> None:
    """A clock that was set back shows a refusal as new, not as older than time."""
    life = settled()
    life.conclude(DENIED)
    life.now -= 500
    assert life.conclude(DENIED).again_seconds == 60


def test_conditions_carry_the_generation() -> None:
    """Each condition says which generation it speaks of; unknown conditions survive."""
    status = settled().artifact.status
    assert {condition.observed_generation for condition in status.conditions} == {1}
    assert Status().conditions == ()
