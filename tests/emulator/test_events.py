"""Events counted, combined and limited as Kubernetes' own components do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.events import Recorder

Json = dict[str, Any]
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Return a cluster without nodes on a clock that stands still."""
    with Cluster(clock=ManualClock()) as built:
        yield built


@pytest.fixture
def recorder(cluster: Cluster) -> Recorder:
    """Return a recorder of a component on a host."""
    return Recorder(cluster.client, cluster.clock, "kubelet", "node-a")


def told(cluster: Cluster) -> list[tuple[str, int]]:
    """Return messages and counts in the order in which the events were first written."""
    events = cluster.client.list("v1", "Event", namespace="default")
    events.sort(key=lambda event: event["metadata"]["name"])
    return [(event["message"], event["count"]) for event in events]


def advance(cluster: Cluster, seconds: float) -> None:
    """Move the cluster's time."""
    assert isinstance(cluster.clock, ManualClock)
    cluster.clock.advance(seconds)


def test_the_same_event_is_counted(cluster: Cluster, recorder: Recorder) -> None:
    """The second of two equal events raises the first one's count and last time."""
    recorder.warning(POD, "FailedMount", "no")
    advance(cluster, 60)
    recorder.warning(POD, "FailedMount", "no")
    (event,) = cluster.client.list("v1", "Event", namespace="default")
    assert (event["count"], event["type"], event["reason"]) == (2, "Warning", "FailedMount")
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["lastTimestamp"] == "2026-01-01T00:01:00Z"
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "u",
        "resourceVersion": "7",
    }  # fmt: skip
    assert event["source"] == {"component": "kubelet", "host": "node-a"}


def test_reason_type_object_and_field_tell_events_apart(
    cluster: Cluster, recorder: Recorder
) -> None:
    """Events that differ in anything but time are different events."""
    other = {**POD, "metadata": {**POD["metadata"], "name": "q", "uid": "v"}}
    recorder.normal(POD, "Started", "x")
    recorder.normal(POD, "Started", "x", "spec.containers{a}")
    recorder.warning(POD, "Started", "x")
    recorder.normal(POD, "Created", "x")
    recorder.normal(other, "Started", "x")
    assert told(cluster) == [("x", 1)] * 5


def test_similar_events_are_combined(cluster: Cluster, recorder: Recorder) -> None:
    """From the tenth message on they share one event with the latest text, until they pause."""
    for number in range(12):
        recorder.warning(POD, "FailedMount", f"{number:02} GiB")
    combined = ("(combined from similar events): 11 GiB", 3)
    assert told(cluster) == [(f"{number:02} GiB", 1) for number in range(9)] + [combined]
    advance(cluster, 601)
    recorder.warning(POD, "FailedMount", "12 GiB")
    assert ("12 GiB", 1) in told(cluster)


def test_one_object_may_not_fill_the_cluster(cluster: Cluster, recorder: Recorder) -> None:
    """25 events at once, then one every five minutes; another object has its own allowance."""
    for _ in range(40):
        recorder.warning(POD, "FailedMount", "no")
    assert told(cluster) == [("no", 25)]
    advance(cluster, 601)
    for _ in range(5):
        recorder.warning(POD, "FailedMount", "no")
    assert told(cluster) == [("no", 27)]
    other = {**POD, "metadata": {**POD["metadata"], "name": "q", "uid": "v"}}
    recorder.warning(other, "FailedMount", "no")
    assert told(cluster) == [("no", 27), ("no", 1)]


def test_an_event_that_was_deleted_is_written_anew(cluster: Cluster, recorder: Recorder) -> None:
    """Counting goes on with a new event when somebody deleted the old one."""
    recorder.warning(POD, "FailedMount", "no")
    (event,) = cluster.client.list("v1", "Event", namespace="default")
    cluster.client.delete("v1", "Event", event["metadata"]["name"], namespace="default")
    recorder.warning(POD, "FailedMount", "no")
    assert told(cluster) == [("no", 1)]


def test_a_namespace_that_is_not_there_costs_the_event_alone(
    cluster: Cluster, recorder: Recorder
) -> None:
    """An event that cannot be written is dropped, and the next one is written."""
    lost = {**POD, "metadata": {**POD["metadata"], "namespace": "nowhere"}}
    recorder.warning(lost, "FailedMount", "no")
    recorder.warning(POD, "FailedMount", "no")
    assert told(cluster) == [("no", 1)]
