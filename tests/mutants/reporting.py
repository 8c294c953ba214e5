"""Broken statuses of nodes: each breaks one seam, in the way its name says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions import reporting
from gpustack_delivery.errors import AttemptFault, Waiting
from gpustack_delivery.node import configuration, reporter
from gpustack_delivery.node.attempt import Attempt
from gpustack_delivery.node.attempts import Attempts
from gpustack_delivery.node.markers import Marker
from gpustack_delivery.node.mounting import Mounting
from gpustack_delivery.node.partials import Partials
from gpustack_delivery.node.references import References
from gpustack_delivery.vocabulary.node_store import ByteSource
from tests.mutants.seams import Patch, breaks


@breaks("NS-RES-04")
def tells_a_generation_with_other_news(patch: Patch) -> None:
    """Write no status for the generation's sake."""
    worth_writing = reporting.worth_writing

    def worth(stored: Any, new: Any, **facts: Any) -> bool:
        unchanged = replace(new, observed_generation=stored.observed_generation)
        return worth_writing(stored, unchanged, **facts)

    patch.setattr(reporter, "worth_writing", worth)


@breaks("NS-RES-07")
def forgets_who_still_mounts(patch: Patch) -> None:
    """Take a digest for unused when the first of its Pods lets go."""
    drop = References.drop

    def dropped(self: Any, target: str) -> Any:
        gone = drop(self, target)
        for reference in list(self._by_target.values()):
            if gone is not None and reference.digest == gone.digest:
                drop(self, reference.target)
        return gone

    patch.setattr(References, "drop", dropped)


@breaks("NS-RES-08")
def rounds_the_last_use(patch: Patch) -> None:
    """Tell the hour that is nearest."""
    cut = reporting._cut

    def rounded(entry: Any) -> Any:
        used = entry.last_used_time
        return cut(entry if used is None else replace(entry, last_used_time=used + 1800))

    patch.setattr(reporting, "_cut", rounded)


@breaks("NS-RES-13")
def says_which_file_failed(patch: Patch) -> None:
    """Give a failure's public text what the log alone may have."""
    patch.setattr(AttemptFault, "__str__", lambda fault: f"{fault.args[0]} {fault.detail}")


@breaks("NS-RES-15")
def trusts_the_old_status(patch: Patch) -> None:
    """Leave a status alone that says something already."""
    worth_writing = reporting.worth_writing

    def worth(stored: Any, new: Any, **facts: Any) -> bool:
        return not stored.models and worth_writing(stored, new, **facts)

    patch.setattr(reporter, "worth_writing", worth)


@breaks("NS-RES-06")
def tells_usage_exactly(patch: Patch) -> None:
    """Say the usage to the percent."""
    patch.setattr(
        reporter, "used_percent", lambda usage: 100 * usage.used_bytes // usage.total_bytes
    )


@breaks("NS-RES-05")
def stores_nothing_before_it_is_whole(patch: Patch) -> None:
    """Leave partial downloads out of the stored bytes."""
    patch.setattr(Partials, "sizes", lambda _: {})


@breaks("NS-RES-09")
def counts_a_resume_from_nothing(patch: Patch) -> None:
    """Leave out what an earlier attempt had brought."""
    listed = Attempt.listed
    patch.setattr(Attempt, "listed", lambda self, size, _held: listed(self, size, 0))


@breaks("NS-RES-10")
def cuts_every_time_to_the_hour(patch: Patch) -> None:
    """Treat the next attempt's time as the last use's."""
    cut = reporting._cut

    def coarse(entry: Any) -> Any:
        retry = entry.retry_time
        return cut(entry if retry is None else replace(entry, retry_time=retry // 3600 * 3600))

    patch.setattr(reporting, "_cut", coarse)


@breaks("NS-RES-11")
def says_hub_where_nothing_is_known(patch: Patch) -> None:
    """Give a tree from before the field a source."""
    read = Marker.from_wire

    def sourced(wire: Any) -> Marker:
        return read({"source": ByteSource.HUB.value, **wire})

    patch.setattr(Marker, "from_wire", sourced)


@breaks("NS-RES-14")
def tells_the_whole_error(patch: Patch) -> None:
    """Put file and URL into the public message, as a helpful log line has them."""
    outcome = Attempts._outcome

    def told(self: Any, attempt: Any) -> AttemptFault | None:
        fault = outcome(self, attempt)
        return fault and AttemptFault(fault.reason, f"{fault} {fault.detail}", detail=fault.detail)

    patch.setattr(Attempts, "_outcome", told)


@breaks("NS-RES-16")
def writes_whatever_moved(patch: Patch) -> None:
    """Write progress every thirty seconds, however small it is."""
    patch.setattr(reporting, "PROGRESS_PERCENT", 0)


@breaks("NS-RES-17")
def writes_every_step_at_once(patch: Patch) -> None:
    """Write each five percent as they come."""
    patch.setattr(reporting, "PROGRESS_SECONDS", 0.0)


@breaks("NS-RES-18")
def takes_usage_for_progress(patch: Patch) -> None:
    """Let a changed usage wait until something else is written."""
    without_progress = reporting._without_progress

    def without(status: Any) -> Any:
        found = without_progress(status)
        return replace(found, capacity=replace(found.capacity, used_percent=0))

    patch.setattr(reporting, "_without_progress", without)


@breaks("NS-RES-18")
def writes_news_with_old_progress(patch: Patch) -> None:
    """Write a changed entry at once, and every other download as it stood at the last write."""
    report, content = reporter.Reporter._report, reporting.content
    last: dict[str, int] = {}

    def reported(self: Any, sources: Any, body: Any, collection: Any) -> None:
        models = (body.get("status") or {}).get("models") or ()
        last.clear()
        last.update({model["digest"]: model.get("downloadedBytes", 0) for model in models})
        report(self, sources, body, collection)

    def old(*given: Any, **more: Any) -> Any:
        found = content(*given, **more)
        models = (
            replace(entry, downloaded_bytes=last.get(entry.digest) or entry.downloaded_bytes)
            for entry in found.models
        )
        return replace(found, models=tuple(models))

    patch.setattr(reporter.Reporter, "_report", reported)
    patch.setattr(reporter, "content", old)


@breaks("NS-RES-19")
def stamps_every_round(patch: Patch) -> None:
    """Say with every look that everything is as it has been since now."""
    content = reporting.content
    patch.setattr(reporter, "content", lambda facts, _stored, *, now: content(facts, (), now=now))


@breaks("NS-RES-20")
def lists_the_recent_before_the_mounted(patch: Patch) -> None:
    """Cut the list by last use alone."""
    rank = reporting._rank
    patch.setattr(reporting, "_rank", lambda entry: rank(replace(entry, referenced=False)))


@breaks("NS-RES-21")
def serves_in_silence(patch: Patch) -> None:
    """Cap the high watermark and leave Ready without a word."""
    ready = reporting._ready
    patch.setattr(reporting, "_ready", lambda facts, more: ready(replace(facts, cap_note=""), more))


@breaks("NS-RES-22")
def overlooks_a_missing_bundle(patch: Patch) -> None:
    """Take a CA ConfigMap that is not there for an empty one."""
    bundle = configuration._bundle
    patch.setattr(configuration, "_bundle", lambda *given: (bundle(*given)[0], ""))


@breaks("NS-RES-23")
def mounts_nothing_while_invalid(patch: Patch) -> None:
    """Let every mount wait for a configuration that can be executed."""
    judge_and_mount = Mounting._judge_and_mount

    def mounted(self: Any, request: Any, token: Any) -> None:
        if fault := self._around.attempts._around.configuration.fault:
            raise Waiting(fault)
        judge_and_mount(self, request, token)

    patch.setattr(Mounting, "_judge_and_mount", mounted)
