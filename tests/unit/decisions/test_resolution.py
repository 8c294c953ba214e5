"""An artifact's life: resolved once, checked again, revoked, restored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack_delivery.decisions.resolution import (
    Action,
    Credential,
    Outcome,
    Pace,
    Passed,
    Refusal,
    Step,
)
from gpustack_delivery.errors import Verdict
from gpustack_delivery.vocabulary.artifact import DigestSource, Resolved, Status
from tests.unit.decisions.life import (
    COMMIT,
    DAY,
    DENIED,
    DIGEST,
    DOWN,
    HEALTHY,
    LISTING,
    NO_SECRET,
    UNREADABLE,
    Life,
    settled,
)


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
    life.now += 10
    assert life.conclude(Refusal(Verdict.REVISION_NOT_FOUND, "gone")).again_seconds == 50
    assert life.said == "True/Resolved True/RevisionNotFound"
    life.now += 50
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


@pytest.mark.parametrize("last", [LISTING, DENIED, DOWN])
def test_a_clock_that_was_set_back_postpones_nothing(last: Outcome) -> None:
    """What was due in years is due now; the check then stands at the time it is."""
    life = Life(now=400 * DAY).announce()
    life.conclude(LISTING)
    life.conclude(last)
    life.now = DAY
    assert life.plan().action is Action.PROBE
    life.conclude(Passed())
    assert life.plan().wait_seconds == life.interval


@pytest.mark.parametrize(
    ("left", "action"), [(True, Action.PROBE), (False, Action.RESOLVE)], ids=["facts", "nothing"]
)
def test_a_status_that_was_taken_away_is_made_again_at_once(action: Action, *, left: bool) -> None:
    """What was due in a day was due for another status than the one that stands now."""
    life = settled()
    resolved = life.resolved if left else None
    life.artifact = replace(life.artifact, status=Status(resolved=resolved))
    assert life.plan().action is Action.ANNOUNCE
    life.announce()
    assert life.plan().action is action


def test_a_refusal_noted_ahead_of_the_clock_is_confirmed() -> None:
    """A refusal of a time that never was counts as one of before; a little ahead is waited for."""
    life = Life(now=400 * DAY).announce()
    life.conclude(LISTING)
    life.conclude(DENIED)
    life.now -= 30
    life.conclude(DENIED)
    assert life.said == "True/Resolved True/AccessDenied"
    life.now = DAY
    life.conclude(DENIED)
    assert life.said == "False/AccessDenied True/AccessDenied"


def test_conditions_carry_the_generation() -> None:
    """Each condition says which generation it speaks of; unknown conditions survive."""
    status = settled().artifact.status
    assert {condition.observed_generation for condition in status.conditions} == {1}
    assert Status().conditions == ()
