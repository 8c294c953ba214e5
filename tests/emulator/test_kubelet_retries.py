"""How kubelet tries again, code by code, held against the recording of a real kubelet."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from emulator.kubelet.retries import Retries
from tests.emulator.csi_plugin import Refuse, Script, refuse_in_turn
from tests.emulator.kubelet_world import World, anonymous, recorded, world

Json = dict[str, Any]
FILE = "32-csi-publish-retry-cadence"
CODES = (
    "ABORTED", "UNAVAILABLE", "PERMISSION_DENIED", "FAILED_PRECONDITION", "INVALID_ARGUMENT",
    "INTERNAL", "NOT_FOUND", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ALREADY_EXISTS",
    "UNAUTHENTICATED", "CANCELLED", "UNKNOWN", "UNIMPLEMENTED",
)  # fmt: skip


def always(code: str) -> Script:
    """Return a plugin that refuses every publish with a code."""

    def refuse(_: Json) -> None:
        raise Refuse(code)

    return Script(publish=refuse)


def times(there: World, method: str) -> list[float]:
    """Return when a method was called, counted from its first call."""
    called = [call.at for call in there.plugin.named(method)]
    return [at - called[0] for at in called]


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_retried_alike_and_leaves_its_own(code: str) -> None:
    """Attempts, the counted event and whether a deleted Pod is unpublished are as recorded."""
    recording = recorded(FILE, code)
    with world(always(code)) as there:
        there.add_driver()
        name = recording["events"][0]["involvedObject"]["name"]
        there.add_pod(name, csi={"volumeAttributes": {"fail": code}})
        there.advance(recording["observedForSeconds"])

        attempts = recording["publishAttemptsAtSeconds"]
        assert times(there, "NodePublishVolume") == pytest.approx(attempts, abs=0.35)
        requests = [anonymous(call.request) for call in there.plugin.named("NodePublishVolume")]
        assert requests == [anonymous(recording["firstRequest"])] * len(attempts)

        pod = there.pod(name)
        assert pod is not None
        assert pod["status"]["phase"] == recording["podPhase"]
        assert pod["status"]["containerStatuses"][0]["state"] == recording["containerWaiting"]
        (event,) = there.events(name)
        wanted = recording["events"][0]
        parts = (
            "reason",
            "message",
            "source",
            "count",
            "type",
            "reportingComponent",
            "reportingInstance",
        )
        assert {part: event[part] for part in parts} == {part: wanted[part] for part in parts}

        there.delete_pod(name)
        after = [anonymous(call.request) for call in there.plugin.named("NodeUnpublishVolume")]
        wanted_after = [
            anonymous(call["request"]) for call in recording["afterPodDelete"]["unpublishCalls"]
        ]
        assert after == wanted_after
        assert there.pod(name) is None


def test_the_wait_stops_growing_after_two_minutes() -> None:
    """The back-off doubles up to two minutes and two seconds and stays there."""
    with world(always("UNAVAILABLE")) as there:
        there.add_driver()
        there.add_pod("p")
        there.advance(700)
        gaps = [later - earlier for earlier, later in pairwise(times(there, "NodePublishVolume"))]
        assert gaps[7:] == pytest.approx([64.1, 122.1, 122.1, 122.1, 122.1], abs=0.1)


def test_a_publish_that_works_after_two_refusals() -> None:
    """Two refusals count in one event; then the Pod runs and its starting is told."""
    recording = recorded(FILE, "ABORTED twice, then OK")
    with world(Script(publish=refuse_in_turn("ABORTED", "ABORTED"))) as there:
        there.add_driver()
        there.add_pod("f-then-ok", csi={"volumeAttributes": {"fail": "ABORTED:2"}})
        there.advance(5)
        wanted = [call["secondsSinceStart"] for call in recording["calls"]]
        assert times(there, "NodePublishVolume") == pytest.approx(wanted, abs=0.35)
        disks = [call.disk for call in there.plugin.named("NodePublishVolume")]
        assert disks == [call["onDiskAtCall"] for call in recording["calls"]]
        pod = there.pod("f-then-ok")
        assert pod is not None
        assert pod["status"]["phase"] == "Running"
        found = [(e["reason"], e["message"], e["count"]) for e in there.events("f-then-ok")]
        assert found == [(e["reason"], e["message"], e["count"]) for e in recording["events"]]


def test_a_failing_unpublish_keeps_the_pod() -> None:
    """NodeUnpublishVolume is called until it works, and only then the object goes."""
    codes = ("ABORTED", "INTERNAL", "UNAVAILABLE", "PERMISSION_DENIED")
    name = (
        "NodeUnpublishVolume failing with "
        "ABORTED, INTERNAL, UNAVAILABLE, PERMISSION_DENIED, then OK"
    )
    recording = recorded(FILE, name)
    with world(Script(unpublish=refuse_in_turn(*codes))) as there:
        there.add_driver()
        there.add_pod("p")
        there.delete_pod("p")
        there.advance(7)
        assert there.pod("p") is not None
        there.advance(3)
        assert there.pod("p") is None
        assert times(there, "NodeUnpublishVolume") == pytest.approx(
            recording["attemptsAtSeconds"], abs=0.35
        )
        disks = [call.disk for call in there.plugin.named("NodeUnpublishVolume")]
        assert disks == [call["onDiskAtCall"] for call in recording["calls"]]
        assert [event["reason"] for event in there.events("p")].count("FailedMount") == 0


def test_changing_messages_are_separate_events_until_they_are_combined() -> None:
    """Each new text is a new event; from the tenth on they are one, combined, and counted."""
    turn = iter(range(1, 100))

    def progress(_: Json) -> None:
        raise Refuse("ABORTED", f"{next(turn)} GiB received")

    with world(Script(publish=progress)) as there:
        there.add_driver()
        there.add_pod("p")
        there.advance(400)  # attempts at 0, 0.6, 1.7, ... 128, 250, 372
        events = there.events("p", "FailedMount")
        assert [event["count"] for event in events] == [1] * 9 + [2]
        assert events[-1]["message"].startswith(
            "(combined from similar events): MountVolume.SetUp failed"
        )
        assert events[-1]["message"].endswith("11 GiB received")


def test_the_first_tick_after_the_wait_is_the_next_attempt() -> None:
    """The loop looks at fixed times; another operation starts over at once."""
    retries = Retries(tick_seconds=1.0, started=10.0)
    assert retries.seconds_left("mount", 10.0) == 0
    retries.failed("mount", 10.0)
    assert retries.seconds_left("mount", 10.0) == 1.0
    retries.failed("mount", 11.0)
    assert retries.seconds_left("mount", 11.0) == 2.0
    assert retries.seconds_left("unmount", 11.0) == 0
    retries.failed("unmount", 11.0)
    assert retries.seconds_left("unmount", 11.0) == 1.0
    retries.succeeded()
    assert retries.seconds_left("unmount", 11.0) == 0
