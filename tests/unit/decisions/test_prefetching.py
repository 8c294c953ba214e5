"""Plans: which Pods come and go, what is pinned, and when to look again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpustack_delivery.decisions.pods import WarmUp
from gpustack_delivery.decisions.prefetching import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    NEXT_BATCH_SECONDS,
    PODS_PER_PASS,
    STALL_SECONDS,
    Facts,
    Mark,
    Plan,
    pause,
    pins,
    plan,
)
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from tests.unit.decisions.warm import DIGEST, HOUR, NOW, OTHER, artifact, entry, pod, prefetch

NODES = ("node-a", "node-b")
PINNED = {"pinned": True}
DOWNLOADING, FAILED = ModelState.DOWNLOADING, ModelState.FAILED


def facts(
    entries: Mapping[str, ModelEntry] | None = None,
    pods: Sequence[WarmUp] = (),
    *,
    targets: Sequence[str] = ("node-a",),
    **more: Any,
) -> Facts:
    """Return the facts of a prefetch of one resolved artifact."""
    usual: dict[str, Any] = {
        "prefetch": prefetch(),
        "artifact": artifact(),
        "fingerprints": dict.fromkeys(targets, "now"),
        "may_pin": True,
    }
    return Facts(targets=targets, entries=entries or {}, warm_ups=pods, **{**usual, **more})


def made(plan: Plan) -> list[tuple[str, int]]:
    """Return the Pods to be made: node and number."""
    return [(attempt.node, attempt.number) for attempt in plan.make]


def removed(plan: Plan) -> list[str]:
    """Return the names of the Pods to be removed."""
    return [pod.metadata.name for pod in plan.remove]


def test_every_waiting_target_gets_one_pod() -> None:
    """Also one that downloads for somebody else; a ready one gets none."""
    entries = {"node-b": entry(DOWNLOADING), "node-c": entry()}
    planned = plan(facts(entries, targets=("node-a", "node-b", "node-c")), NOW)
    assert made(planned) == [("node-a", 1), ("node-b", 1)]
    assert planned.again_seconds is None


def test_many_targets_come_in_batches() -> None:
    """Eight a pass, in order, and the next pass soon."""
    names = [f"node-{number:02}" for number in range(20)]
    planned = plan(facts(targets=names), NOW)
    assert made(planned) == [(name, 1) for name in names[:PODS_PER_PASS]]
    assert planned.again_seconds == NEXT_BATCH_SECONDS


def test_a_replacement_beyond_the_batch_keeps_the_old_pod() -> None:
    """What ended stays as the record until its successor's turn has come."""
    names = [f"node-{number}" for number in range(PODS_PER_PASS + 1)]
    old = [pod(name, "Failed", finished_at=NOW - HOUR) for name in names]
    planned = plan(facts(pods=old, targets=names), NOW)
    assert len(planned.make) == PODS_PER_PASS
    assert removed(planned) == [each.metadata.name for each in old[:-1]]


def test_one_pod_a_node_is_enough() -> None:
    """A live one keeps others from being made, and of two the later goes."""
    assert plan(facts(pods=[pod("node-a", "Pending")]), NOW).make == ()
    planned = plan(facts(pods=[pod("node-a", attempt=2), pod("node-a")]), NOW)
    assert (made(planned), removed(planned)) == ([], ["pod-node-a-2"])


def test_pods_of_no_target_or_another_digest_go() -> None:
    """Terminating ones are going already."""
    pods = [
        pod("elsewhere"),
        pod("node-a", attempt=2, digest=OTHER),
        pod("gone", terminating=True),
        pod("node-a", attempt=3),
    ]
    assert removed(plan(facts(pods=pods), NOW)) == ["pod-elsewhere-1", "pod-node-a-2"]
    assert removed(plan(facts(pods=pods, artifact=None), NOW)) == [
        "pod-elsewhere-1",
        "pod-node-a-2",
        "pod-node-a-3",
    ]


def test_a_terminating_attempt_does_not_hold_up_the_next() -> None:
    """It only has the number before."""
    planned = plan(facts(pods=[pod("node-a", attempt=4, terminating=True)]), NOW)
    assert (made(planned), removed(planned)) == ([("node-a", 5)], [])


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_attempt_is_replaced_after_its_pause(phase: str) -> None:
    """Not before; the wait is planned. A success that the node does not show yet counts alike."""
    ended = pod("node-a", phase, attempt=2, finished_at=NOW - 15.0)
    planned = plan(facts(pods=[ended]), NOW)
    assert (planned.make, planned.remove) == ((), ())
    assert planned.again_seconds == 5.0
    later = plan(facts(pods=[ended]), NOW + 5.0)
    assert (made(later), removed(later)) == ([("node-a", 3)], ["pod-node-a-2"])


def test_pauses_double_up_to_half_an_hour() -> None:
    """And no attempt number is too large for that."""
    assert [pause(number) for number in (1, 2, 3)] == [10.0, 20.0, 40.0]
    assert pause(1) == FIRST_PAUSE_SECONDS
    assert pause(50) == pause(10**9) == LONGEST_PAUSE_SECONDS


def test_an_ended_pod_without_a_time_begins_its_pause_now() -> None:
    """Its end is unknown, so it is taken to be just now."""
    planned = plan(facts(pods=[pod("node-a", "Failed")]), NOW)
    assert planned.again_seconds == FIRST_PAUSE_SECONDS


def test_a_failed_entry_is_not_hurried() -> None:
    """No Pod comes before the node would try again; then one does."""
    entries = {"node-a": entry(FAILED, retry_time=NOW + 60.0)}
    planned = plan(facts(entries), NOW)
    assert (planned.make, planned.again_seconds) == ((), 60.0)
    assert made(plan(facts(entries), NOW + 60.0)) == [("node-a", 1)]
    assert made(plan(facts({"node-a": entry(FAILED)}), NOW)) == [("node-a", 1)]


def test_settled_targets_are_cleared() -> None:
    """A Pod that still reads back may end its work; on a lapsed copy it may not."""
    pods = [
        pod("node-a", "Succeeded", finished_at=NOW),
        pod("node-a", attempt=2),
        pod("node-a", "Failed", attempt=3, terminating=True),
    ]
    ready = plan(facts({"node-a": entry()}, pods), NOW)
    assert removed(ready) == ["pod-node-a-1"]
    old = entry(last_used_time=NOW - 100 * HOUR)
    wish = prefetch(retention={"ttlAfterLastUse": "48h"})
    lapsed = plan(facts({"node-a": old}, pods, prefetch=wish), NOW)
    assert removed(lapsed) == ["pod-node-a-1", "pod-node-a-2"]


def test_an_outdated_pod_is_replaced_only_while_it_has_not_begun() -> None:
    """A running one reads with the old image as well as with any."""
    pending = pod("node-a", "Pending", fingerprint="before")
    planned = plan(facts(pods=[pending]), NOW)
    assert (made(planned), removed(planned)) == ([("node-a", 2)], ["pod-node-a-1"])
    assert plan(facts(pods=[pod("node-a", fingerprint="before")]), NOW).make == ()


def test_nothing_is_made_of_what_cannot_be_mounted() -> None:
    """Without a rendering Pods are neither made nor replaced, and what ended is left alone."""
    nothing: dict[str, Any] = {"fingerprints": {}}
    assert plan(facts(**nothing), NOW).make == ()
    pending = [pod("node-a", "Pending", fingerprint="before")]
    assert plan(facts(pods=pending, **nothing), NOW).remove == ()
    ended = [pod("node-a", "Failed", finished_at=NOW)]
    assert plan(facts(pods=ended, **nothing), NOW).again_seconds is None


def test_a_deadline_follows_progress() -> None:
    """A download of days is left alone while it moves; one that stands still for long is not."""
    pods = [pod("node-a", "Pending")]
    first = plan(facts({"node-a": entry(DOWNLOADING, downloaded_bytes=1)}, pods), NOW)
    assert first.again_seconds == STALL_SECONDS
    assert first.marks == {"uid-pod-node-a-1": Mark(("Pending", "Downloading", 1, ""), NOW)}
    later = NOW + STALL_SECONDS
    moved = facts({"node-a": entry(DOWNLOADING, downloaded_bytes=2)}, pods, marks=first.marks)
    assert plan(moved, later).make == ()
    assert plan(moved, later).marks["uid-pod-node-a-1"].since == later
    still = facts({"node-a": entry(DOWNLOADING, downloaded_bytes=1)}, pods, marks=first.marks)
    assert plan(still, later - 1).again_seconds == 1.0
    given_up = plan(still, later)
    assert (made(given_up), removed(given_up)) == ([("node-a", 2)], ["pod-node-a-1"])


def test_a_pod_that_never_ends_on_a_ready_node_is_given_up() -> None:
    """Reading back takes its time, and not for ever."""
    pods = [pod("node-a")]
    first = plan(facts({"node-a": entry()}, pods), NOW)
    assert removed(first) == []
    held = facts({"node-a": entry()}, pods, marks=first.marks)
    assert removed(plan(held, NOW + STALL_SECONDS)) == ["pod-node-a-1"]


def test_pins_come_before_the_copy() -> None:
    """Every target is pinned from the start, whatever its entry says."""
    entries = {"node-b": entry(FAILED)}
    wish = prefetch(retention=PINNED)
    planned = plan(facts(entries, targets=NODES, prefetch=wish), NOW)
    assert planned.pinned == frozenset(NODES)
    assert pins(facts(entries, targets=NODES, prefetch=wish), NOW) == frozenset(NODES)


@pytest.mark.parametrize(
    "change",
    [
        {"prefetch": prefetch()},
        {"may_pin": False},
        {"artifact": artifact(digest="")},
        {"artifact": None},
    ],
)
def test_no_pin_without_wish_right_and_digest(change: dict[str, Any]) -> None:
    """All three are needed."""
    usual: dict[str, Any] = {"prefetch": prefetch(retention=PINNED)}
    assert pins(facts(**{**usual, **change}), NOW) == frozenset()


def test_a_revoked_artifact_keeps_its_pins() -> None:
    """An outage of the hub, or a lost token, is no reason to let content go."""
    revoked = artifact(status="False")
    wish = prefetch(retention=PINNED)
    assert pins(facts(prefetch=wish, artifact=revoked), NOW) == frozenset({"node-a"})


@pytest.mark.parametrize(
    ("used", "more", "lapsed"),
    [
        (49 * HOUR, {}, True),
        (49 * HOUR - 1, {}, False),
        (90 * HOUR, {"referenced": True}, False),
        (None, {}, False),
    ],
)
def test_a_copy_lapses_an_hour_after_its_time(
    used: float | None, more: dict[str, Any], *, lapsed: bool
) -> None:
    """Times are cut to the hour, so that hour is given; what is mounted or was never used stays."""
    last = None if used is None else NOW - used
    wish = prefetch(retention={"pinned": True, "ttlAfterLastUse": "48h"})
    planned = plan(facts({"node-a": entry(last_used_time=last, **more)}, prefetch=wish), NOW)
    assert (planned.pinned == frozenset()) is lapsed
    assert (planned.status.lapsed_nodes == ("node-a",)) is lapsed
    assert planned.status.ready_nodes == (0 if lapsed else 1)
    assert planned.make == ()


def test_the_next_lapse_is_waited_for() -> None:
    """The earliest of all copies counts."""
    wish = prefetch(retention={"ttlAfterLastUse": "1h"})
    entries = {
        "node-a": entry(last_used_time=NOW),
        "node-b": entry(last_used_time=NOW - HOUR),
    }
    assert plan(facts(entries, targets=NODES, prefetch=wish), NOW).again_seconds == HOUR


def remembering(generation: int = 1, **retention: Any) -> Any:
    """Return a prefetch whose status remembers a lapse under a generation."""
    status = {"observedGeneration": generation, "lapsedNodes": ["node-a"]}
    return prefetch(status=status, retention=retention)


def test_a_lapsed_copy_that_was_collected_stays_lapsed() -> None:
    """It is not warmed again until somebody uses the content there."""
    wish = remembering(ttlAfterLastUse="48h")
    gone = plan(facts(prefetch=wish), NOW)
    assert (gone.make, gone.status.lapsed_nodes) == ((), ("node-a",))
    back = plan(facts({"node-a": entry(DOWNLOADING)}, prefetch=wish), NOW)
    assert back.status.lapsed_nodes == ()


@pytest.mark.parametrize(
    ("wish", "artifact_digest"),
    [
        (remembering(0, ttlAfterLastUse="48h"), DIGEST),
        (remembering(), DIGEST),
        (remembering(ttlAfterLastUse="48h"), ""),
    ],
)
def test_a_lapse_is_forgotten_with_what_it_belonged_to(wish: Any, artifact_digest: str) -> None:
    """A changed prefetch, one without a time to live, and another artifact begin afresh."""
    planned = plan(facts(prefetch=wish, artifact=artifact(digest=artifact_digest)), NOW)
    assert planned.status.lapsed_nodes == ()
    assert planned.status.downloading_nodes == 1
