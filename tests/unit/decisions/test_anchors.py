"""Anchors, claims, images and unknown sources through their lives."""

from __future__ import annotations

from dataclasses import replace

from gpustack_delivery.decisions.resolution import (
    Action,
    Credential,
    Passed,
    Refusal,
    Step,
)
from gpustack_delivery.errors import Verdict
from gpustack_delivery.vocabulary.artifact import RESOLVED, DigestSource, Resolved
from gpustack_delivery.vocabulary.conditions import find
from tests.unit.decisions.life import (
    CLAIM,
    DAY,
    DENIED,
    DIGEST,
    DOWN,
    HEALTHY,
    IMAGE,
    LISTING,
    NO_SECRET,
    OTHER,
    UNREADABLE,
    Life,
    settled,
)


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
