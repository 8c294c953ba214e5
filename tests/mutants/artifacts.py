"""Broken resolutions of artifacts: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.adapters import modelscope
from gpustack_delivery.decisions import census, resolution
from gpustack_delivery.errors import Verdict
from gpustack_delivery.worker import webhooks
from gpustack_delivery.worker.artifacts import Artifacts
from tests.mutants.seams import Patch, breaks


class _Agreeing(str):
    """A commit that is no other than any other."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


@breaks("AR-MS-01")
def believes_the_hub_alone(patch: Patch) -> None:
    """Let git agree with whatever the hub names."""
    patch.setattr(modelscope, "advertised_commit", lambda *_: _Agreeing())


@breaks("AR-MS-02")
def takes_a_cut_listing_for_whole(patch: Patch) -> None:
    """Never list a directory by itself."""
    patch.setattr(modelscope, "PAGE_ENTRIES", 1 << 30)


@breaks("AR-MS-03")
def knows_no_codes(patch: Patch) -> None:
    """Go by the HTTP status alone."""
    patch.setattr(modelscope, "_code", lambda answer: 200 if answer.status == 200 else 0)


@breaks("AR-REV-01")
def ignores_new_secrets(patch: Patch) -> None:
    """Wait for the interval, whatever becomes of the Secret."""
    due = resolution._due

    def unmoved(status: Any, credential: Any, pace: Any, interval: float) -> float | None:
        version = pace.credential_version if pace else ""
        return due(status, resolution.Credential(version), pace, interval)

    patch.setattr(resolution, "_due", unmoved)


@breaks("AR-REV-02")
def revokes_at_the_first_refusal(patch: Patch) -> None:
    """Confirm nothing."""
    patch.setattr(resolution, "_held_seconds", lambda *_: resolution.CONFIRM_SECONDS)


@breaks("AR-REV-03")
def revokes_in_an_outage(patch: Patch) -> None:
    """Take a hub that is away for one that refuses."""
    patch.setattr(resolution, "_REVOKING", frozenset(Verdict))


@breaks("AR-ANC-01")
def expects_nothing(patch: Patch) -> None:
    """Hold no listing against the digest it must have."""
    patch.setattr(resolution, "_compare", lambda spec, status, outcome: outcome)


@breaks("AR-RES-07")
def counts_every_percent(patch: Patch) -> None:
    """Show progress in steps of one."""
    patch.setattr(census, "STEP_PERCENT", 1)


@breaks("AR-RES-02")
def lets_specs_change(patch: Patch) -> None:
    """Judge no update."""
    patch.setattr(webhooks, "judge_artifact_update", lambda *_: ())


@breaks("AR-RES-08")
def lets_go_what_is_named(patch: Patch) -> None:
    """Release an artifact whoever uses it."""
    patch.setattr(Artifacts, "_is_named", lambda *_: False)
