"""Broken lives of artifacts, from their resolution on: each breaks one seam, as its name says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions import census, resolution
from gpustack_delivery.decisions.resolution import Action, Passed, Step
from gpustack_delivery.errors import Verdict
from gpustack_delivery.vocabulary.artifact import DEGRADED, RESOLVED, Status
from gpustack_delivery.vocabulary.conditions import find
from gpustack_delivery.worker import errands
from gpustack_delivery.worker.artifacts import Artifacts
from tests.mutants.seams import Patch, breaks


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


@breaks("AR-REV-04")
def gives_a_missing_secret_a_minute(patch: Patch) -> None:
    """Confirm that a Secret is gone as if a hub had refused."""
    patch.setattr(resolution, "_REVOKING", resolution._REVOKING | {Verdict.SECRET_NOT_FOUND})
    outside = resolution._refused_outside

    def refused(spec: Any, status: Any, refusal: Any, now: float) -> Any:
        if status.resolved is None:
            return outside(spec, status, refusal, now)
        return resolution._revalidation_refused(status, refusal, now)

    patch.setattr(resolution, "_refused_outside", refused)


@breaks("AR-ANC-01")
def expects_nothing(patch: Patch) -> None:
    """Hold no listing against the digest it must have."""
    patch.setattr(resolution, "_compare", lambda spec, status, outcome: outcome)


@breaks("AR-ANC-02")
def counts_outages_across_a_refusal(patch: Patch) -> None:
    """Begin the anchor's minute with the first outage, whatever the hub said since."""
    held = resolution._held_seconds

    def held_seconds(status: Any, types: Any, verdict: Any, now: float) -> float | None:
        unresolved = find(status.conditions, RESOLVED)
        if types != (DEGRADED, RESOLVED) or unresolved is None:
            return held(status, types, verdict, now)
        return now - (unresolved.transition_time or 0.0)

    patch.setattr(resolution, "_held_seconds", held_seconds)


@breaks("AR-ANC-02")
def anchors_around_refusals(patch: Patch) -> None:
    """Take a refusal that lasts for a hub that cannot be reached."""
    refused = resolution._refused

    def unreached(spec: Any, status: Any, refusal: Any, *times: float) -> Any:
        if status.resolved is None and refusal.verdict is Verdict.ACCESS_DENIED:
            return resolution._unavailable(spec, status, refusal, *times)
        return refused(spec, status, refusal, *times)

    patch.setattr(resolution, "_refused", unreached)


@breaks("AR-ANC-03")
def probes_what_is_anchored(patch: Patch) -> None:
    """Check access to an anchored artifact, and not what it holds."""
    ask = resolution._ask

    def asked(spec: Any, status: Any) -> Step:
        step = ask(spec, status)
        return Step(Action.PROBE) if step.action is Action.RELIST else step

    patch.setattr(resolution, "_ask", asked)


@breaks("AR-ANC-03")
def lists_the_branch_again(patch: Patch) -> None:
    """List an anchored artifact where its branch is now."""
    ask = errands._ask_hub

    def asked(hub: Any, artifact: Any, source: Any, action: Any, token: Any) -> Any:
        if action is Action.RELIST:
            artifact = replace(artifact, status=Status())
        return ask(hub, artifact, source, action, token)

    patch.setattr(errands, "_ask_hub", asked)


@breaks("AR-CLM-01")
def takes_anybodys_claim(patch: Patch) -> None:
    """Find a claim by its name, in whichever namespace."""

    def found(self: Any, artifact: Any) -> Any:
        names = {name for _, name in self._copies.claims.items()}
        return Passed() if self.claim_of(artifact) in names else find(self, artifact)

    find = errands.Errands._find_claim
    patch.setattr(errands.Errands, "_find_claim", found)


@breaks("AR-RES-07")
def counts_every_percent(patch: Patch) -> None:
    """Show progress in steps of one."""
    patch.setattr(census, "STEP_PERCENT", 1)


@breaks("AR-RES-08")
def lets_go_what_is_named(patch: Patch) -> None:
    """Release an artifact whoever uses it."""
    patch.setattr(Artifacts, "_is_named", lambda *_: False)
