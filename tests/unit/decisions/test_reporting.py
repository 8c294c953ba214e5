"""Reporting: what the status says, and when it is written."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from gpustack_delivery.decisions.reporting import (
    MEANING,
    Facts,
    backoff_message,
    content,
    failure_message,
    progress_message,
    worth_writing,
)
from gpustack_delivery.errors import Reason
from gpustack_delivery.vocabulary.conditions import Condition, find
from gpustack_delivery.vocabulary.node_store import (
    Capacity,
    ModelEntry,
    ModelState,
    Status,
)

NOW = 1_800_000_000.5


def entry(name: str, state: ModelState = ModelState.READY, **fields: object) -> ModelEntry:
    """Return an entry whose digest is `name`."""
    return ModelEntry(name, state, **fields)  # type: ignore[arg-type]


def facts(*models: ModelEntry, **fields: object) -> Facts:
    """Return the facts of a serving node with these entries."""
    return replace(Facts(3, Capacity(1000, 100, 40), models), **fields)  # type: ignore[arg-type]


def message(status: Status, kind: str = "Ready") -> str:
    """Return the message of a condition."""
    found = find(status.conditions, kind)
    assert found is not None
    return found.message


def test_a_serving_node_says_so_in_exactly_two_conditions() -> None:
    """Ready and CapacityLow, stamped to the second, and the generation it applies."""
    status = content(facts(), (), now=NOW)
    assert status.observed_generation == 3
    assert status.conditions == (
        Condition("Ready", "True", "Serving", "", 1_800_000_000.0),
        Condition("CapacityLow", "False", "WithinWatermarks", "", 1_800_000_000.0),
    )


def test_transition_times_stay_while_the_status_stays() -> None:
    """A condition of another writer is dropped: the status is replaced whole."""
    first = content(facts(), (Condition("Foreign", "True", "x"),), now=NOW).conditions
    again = content(facts(cap_note="capped"), first, now=NOW + 60).conditions
    assert [c.transition_time for c in again] == [c.transition_time for c in first]
    turned = content(facts(invalid="bad"), again, now=NOW + 60).conditions
    assert find(turned, "Ready") == Condition(
        "Ready",
        "False",
        "InvalidConfiguration",
        "no download starts until the configuration is corrected: bad",
        1_800_000_060.0,
    )


def test_a_cache_that_fails_is_not_said_to_serve() -> None:
    """Its trouble comes first, then the configuration's, each named for what it is."""
    failing = facts(trouble="the disk is gone", skipped="the filesystem failed", cap_note="capped")
    said = "nothing new is mounted or downloaded: the disk is gone"
    skip = "collection skipped: the filesystem failed"
    assert find(content(failing, (), now=NOW).conditions, "Ready") == Condition(
        "Ready", "False", "InvalidConfiguration", f"{said}; {skip}", 1_800_000_000.0
    )
    wrong = "no download starts until the configuration is corrected: bad"
    assert message(content(replace(failing, invalid="bad"), (), now=NOW)) == (
        f"{said}; {wrong}; {skip}"
    )


def test_times_are_cut() -> None:
    """The last use to the hour, the retry to the second; absent ones stay absent."""
    models = facts(entry("a", last_used_time=7322.9, retry_time=61.7), entry("b"))
    cut = content(models, (), now=NOW).models
    assert [(m.last_used_time, m.retry_time) for m in cut] == [(7200.0, 61.0), (None, None)]


def test_referenced_entries_come_first_then_the_recently_used_then_by_digest() -> None:
    """The order in which entries are kept when there are too many."""
    models = facts(
        entry("d"),
        entry("c"),
        entry("b", last_used_time=7200.0),
        entry("a", referenced=True),
        entry("e", last_used_time=3600.0),
    )
    assert [m.digest for m in content(models, (), now=NOW).models] == ["a", "b", "e", "c", "d"]


def test_a_long_list_is_cut_at_256_and_the_rest_is_counted() -> None:
    """The one referenced entry survives whatever its digest."""
    many = [entry(f"{n:04}") for n in range(300)]
    status = content(facts(*many, entry("zz", referenced=True)), (), now=NOW)
    assert len(status.models) == 256
    assert status.models[0].digest == "zz"
    assert message(status).startswith("45 more models")


def test_the_ready_message_joins_what_there_is_to_know() -> None:
    """Cap note first, then the collection that was skipped."""
    status = content(facts(cap_note="capped", skipped="no configuration yet"), (), now=NOW)
    assert message(status) == "capped; collection skipped: no configuration yet"


def test_saturation_is_a_condition() -> None:
    """Above the high watermark with nothing to remove."""
    status = content(facts(nothing_to_remove=True), (), now=NOW)
    low = find(status.conditions, "CapacityLow")
    assert low is not None
    assert (low.status, low.reason) == ("True", "NothingToRemove")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_meaning(reason: Reason) -> None:
    """With a detail behind it, or alone."""
    assert failure_message(reason, "") == MEANING[reason]
    assert failure_message(reason, "HTTP 503") == f"{MEANING[reason]}: HTTP 503"


def running(received: int, stored: int = 0, size: int = 1000) -> Status:
    """Return a status with one download that has received so much."""
    download = entry("a", ModelState.DOWNLOADING, size_bytes=size, downloaded_bytes=received)
    return Status(1, Capacity(10_000, stored, 40), (entry("b"), download))


@pytest.mark.parametrize(
    ("before", "after", "seconds", "write"),
    [
        (running(0), running(0), inf, False),
        (running(0), running(49), inf, False),
        (running(0), running(50), inf, True),
        (running(0), running(50), 30.0, True),
        (running(0), running(50), 29.9, False),
        (running(500), running(100), 30.0, True),
        (running(0, stored=1), running(0, stored=2), inf, False),
        (running(0, size=0), running(99, size=0), inf, False),
        (Status(), running(0), 0.0, True),
        (running(0), replace(running(0), observed_generation=2), 0.0, True),
        (running(0), replace(running(9), capacity=Capacity(10_000, 0, 45)), 0.0, True),
        (
            Status(capacity=Capacity(10, 1, 0)),
            Status(capacity=Capacity(10, 2, 0)),
            0.0,
            True,
        ),
    ],
)
def test_progress_waits_for_its_thresholds_and_nothing_else_does(
    before: Status, after: Status, seconds: float, *, write: bool
) -> None:
    """30 seconds and 5 percent for progress; at once for every other difference."""
    assert worth_writing(before, after, seconds_since_write=seconds) is write


@pytest.mark.parametrize(
    ("received", "size", "text"),
    [
        (0, None, "listing the files"),
        (0, 0, "0 B of 0 B received"),
        (1023, 1024, "1023 B of 1.0 KiB received"),
        (2**31 + 2**27, 15 * 2**30, "2.1 GiB of 15.0 GiB received"),
        (2**20 - 1, 2**20, "1023.9 KiB of 1.0 MiB received"),
        (0, 2**70, "0 B of 1024.0 EiB received"),
    ],
)
def test_progress_is_told_in_binary_units(received: int, size: int | None, text: str) -> None:
    """One decimal, cut down, so that a part never reads as the whole."""
    digest = "sha256:" + "0f3c" * 16
    assert progress_message(digest, received, size) == f"materializing sha256:0f3c0f3c0f3c: {text}"


def test_a_backoff_names_reason_meaning_and_next_attempt() -> None:
    """What a person on call needs from the event alone."""
    message = failure_message(Reason.SOURCE_UNAVAILABLE, "HTTP 503")
    text = backoff_message("sha256:" + "ab" * 32, Reason.SOURCE_UNAVAILABLE, message, 0.0)
    assert text == (
        "materializing sha256:abababababab failed, SourceUnavailable: no source delivered the "
        "content: HTTP 503; next attempt at 1970-01-01T00:00:00Z"
    )
