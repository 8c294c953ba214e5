"""Broken failures and backoffs: each breaks one seam, in the way its name says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.adapters import huggingface
from gpustack_delivery.decisions import backoff, capacity, reporting
from gpustack_delivery.errors import HubFault, Reason, Verdict, Waiting
from gpustack_delivery.node import attempts, collector
from gpustack_delivery.node.attempt import Attempt
from gpustack_delivery.node.attempts import Attempts
from gpustack_delivery.node.downloading import answers
from gpustack_delivery.node.downloading.fetching import Fetcher
from gpustack_delivery.node.downloading.keeping import Keeper
from gpustack_delivery.node.ledger import Ledger
from tests.mutants.seams import Patch, breaks


@breaks("NS-DL-26")
def never_backs_off(patch: Patch) -> None:
    """Try again at every mount."""
    patch.setattr(attempts, "holds_back", lambda *_: False)


@breaks("NS-DL-24")
def doubles_without_end(patch: Patch) -> None:
    """Let a digest wait for days in the end."""
    patch.setattr(backoff, "LONGEST_SECONDS", 1e6)


@breaks("NS-DL-24")
def never_forgives(patch: Patch) -> None:
    """Count failures on after a success."""
    remember = Ledger.remember

    def remembered(self: Any, digest: str, **changes: Any) -> Any:
        if not changes.get("failures", 1):
            del changes["failures"]
        return remember(self, digest, **changes)

    patch.setattr(Ledger, "remember", remembered)


@breaks("NS-DL-25")
def counts_afresh_at_a_start(patch: Patch) -> None:
    """Keep the time of the next attempt, and forget how many have failed."""
    load = Ledger.load

    def loaded(self: Any) -> None:
        load(self)
        self._memories = {d: replace(memory, failures=0) for d, memory in self._memories.items()}

    patch.setattr(Ledger, "load", loaded)


@breaks("NS-DL-25")
def tries_again_after_a_start(patch: Patch) -> None:
    """Keep how many have failed, and forget when the next may try."""
    load = Ledger.load

    def loaded(self: Any) -> None:
        load(self)
        self._memories = {d: replace(memory, retry_at=None) for d, memory in self._memories.items()}

    patch.setattr(Ledger, "load", loaded)


@breaks("NS-DL-27")
def keeps_the_first_secret(patch: Patch) -> None:
    """Use the credential that an artifact brought first, in every later attempt too."""
    join = Attempt.join
    first: dict[str, Any] = {}

    def joined(self: Any, grant: Any, token: Any, now: float) -> None:
        join(self, grant, first.setdefault(grant.artifact_uid, token), now)

    patch.setattr(Attempt, "join", joined)


@breaks("NS-DL-28")
def holds_back_the_cancelled(patch: Patch) -> None:
    """Take a cancelled attempt for a failed one."""
    patch.setattr(backoff, "FREE_OF_BACKOFF", frozenset({Reason.INVALID_REQUEST}))


@breaks("NS-DL-28")
def holds_back_the_misconfigured(patch: Patch) -> None:
    """Take a configuration that cannot be executed for a failure of the digest."""
    patch.setattr(backoff, "FREE_OF_BACKOFF", frozenset({Reason.CANCELED}))


@breaks("NS-DL-29")
def cancels_by_age(patch: Patch) -> None:
    """Count five minutes from the first mount that asked."""
    patch.setattr(Attempt, "asked", property(lambda attempt: attempt.started))


@breaks("NS-DL-29", "NS-FR-06")
def clears_up_after_the_cancelled(patch: Patch) -> None:
    """Remove what a cancelled attempt had brought."""
    conclude = Attempts._conclude

    def concluded(self: Any, attempt: Any, fault: Any) -> None:
        conclude(self, attempt, fault)
        if fault is not None and fault.reason is Reason.CANCELED:
            self._around.store.partials.discard(attempt.digest)

    patch.setattr(Attempts, "_conclude", concluded)


@breaks("NS-FR-01")
def takes_a_bad_configuration_for_an_outage(patch: Patch) -> None:
    """Back off from what only a change of the configuration mends."""

    def refused(self: Any, digest: str, fault: str) -> None:
        self._record(digest, Reason.SOURCE_UNAVAILABLE, fault)
        raise Waiting(fault)

    patch.setattr(Attempts, "_refuse_invalid", refused)


@breaks("NS-FR-02")
def takes_masks_for_digests(patch: Patch) -> None:
    """Believe a gated listing's asterisks."""
    patch.setattr(huggingface, "_MASKED", "")


@breaks("NS-FR-03")
def takes_throttling_for_a_refusal(patch: Patch) -> None:
    """Read 429 as any other 4xx."""
    refusal = huggingface._refusal

    def refused(answer: Any) -> HubFault:
        found = refusal(answer)
        return HubFault(Verdict.ACCESS_DENIED, str(found)) if answer.status == 429 else found

    patch.setattr(huggingface, "_refusal", refused)
    patch.setattr(answers, "_DENIED", answers._DENIED | {429})


@breaks("NS-FR-04")
def keeps_wrong_content(patch: Patch) -> None:
    """Leave a file in place whose hash is wrong, and what is noted about it."""
    stop = Keeper.stop

    def stopped(self: Any, file: Any) -> None:
        file.wrong, file.finished = False, file.finished or file.wrong
        stop(self, file)

    patch.setattr(Keeper, "stop", stopped)


@breaks("NS-FR-05")
def fills_the_disk_to_the_brim(patch: Patch) -> None:
    """Hold a reservation against the filesystem's size."""
    fits = capacity.fits

    def fitted(usage: Any, more_bytes: int, percent: int) -> bool:
        return fits(usage, more_bytes, 100 if more_bytes else percent)

    patch.setattr(collector, "fits", fitted)


@breaks("NS-FR-07")
def gives_no_reason(patch: Patch) -> None:
    """Answer for a failed attempt in its own words alone."""

    def message(digest: str, _reason: Any, message: str, _retry_at: float) -> str:
        return f"materializing {reporting._short(digest)} failed: {message}"

    patch.setattr(attempts, "backoff_message", message)


@breaks("NS-FR-08")
def logs_where_it_was_sent(patch: Patch) -> None:
    """Tell the log which URL a redirect led to, its signature included."""
    ask = Fetcher._ask

    def asked(self: Any, segment: Any, wanted: int) -> Any:
        found = ask(self, segment, wanted)
        attempts._log.info("fetching %s", found.stream.url)
        return found

    patch.setattr(Fetcher, "_ask", asked)
