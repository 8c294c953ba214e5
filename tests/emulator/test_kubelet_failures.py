"""Volumes that cannot be published for other reasons, restarts and deadlines, as recorded."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from emulator.clock import ManualClock
from emulator.contracts import DeleteOptions
from tests.emulator.csi_plugin import Script
from tests.emulator.kubelet_world import World, anonymous, recorded, world

Json = dict[str, Any]
FILE = "33-csi-other-failures"


@pytest.mark.parametrize(
    ("name", "pod", "csi", "driver"),
    [
        (
            "nodePublishSecretRef to a missing secret",
            "m-nosec",
            {"nodePublishSecretRef": {"name": "missing-secret"}},
            {},
        ),
        ("driver not registered on the node", "m-nodrv", {"driver": "absent.csi.example.io"}, {}),
        ("driver registered but no CSIDriver object", "m-noobj", {}, None),
        (
            "CSIDriver without Ephemeral in volumeLifecycleModes",
            "m-mode",
            {},
            {"volumeLifecycleModes": ["Persistent"]},
        ),
    ],
)
def test_reasons_outside_the_driver(name: str, pod: str, csi: Json, driver: Json | None) -> None:
    """The event says what is missing in kubelet's words and counts; nothing is published."""
    (wanted,) = recorded(FILE, name)["events"]
    with world() as there:
        if driver is not None:
            there.add_driver(**driver)
        there.plugin.forget()
        there.add_pod(pod, csi=csi)
        there.advance(8)
        (event,) = there.events(pod)
        parts = ("reason", "message", "source", "count", "type")
        assert {part: event[part] for part in parts} == {part: wanted[part] for part in parts}
        assert there.plugin.calls == []
        there.delete_pod(pod)
        assert there.pod(pod) is None
        assert there.plugin.calls == []


def test_what_was_missing_may_come() -> None:
    """Once the secret exists, the next attempt publishes with it."""
    with world() as there:
        there.add_driver()
        there.add_pod("p", csi={"nodePublishSecretRef": {"name": "late"}})
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "late", "namespace": "n1"},
        }
        there.cluster.apply({**secret, "stringData": {"token": "t"}})
        there.advance(1)
        (call,) = there.plugin.named("NodePublishVolume")
        assert call.request["secrets"] == {"token": "t"}


def test_a_volume_that_no_container_mounts() -> None:
    """It is never published, and the Pod runs without it."""
    recording = recorded(FILE, "a volume that no container mounts is never published")
    with world() as there:
        there.add_driver()
        there.plugin.forget()
        there.add_pod("p", containers=[{"name": "c", "image": "rig.local/pause:1"}])
        pod = there.pod("p")
        assert pod is not None
        assert pod["status"]["phase"] == recording["podPhase"]
        assert there.plugin.calls == recording["calls"]


def methods(there: World) -> list[str]:
    """Return the methods called so far."""
    return [call.method for call in there.plugin.calls]


def recorded_methods(recording: Json) -> list[str]:
    """Return the methods called in a recording."""
    return [c["call"].rpartition("/")[2] for c in recording["calls"] if "call" in c]


def test_a_restarted_plugin_gets_no_republish() -> None:
    """A plugin's restart costs the running Pod nothing, and nothing is published again."""
    recording = recorded(FILE, "plugin restart while a pod uses its volume: calls afterwards")
    with world() as there:
        there.add_driver()
        there.add_pod("m-restart")
        there.plugin.forget()
        there.plugin.stop()
        there.advance(7)
        assert there.csinode()["spec"] == recording["csinodeSpecWhileDown"]
        there.plugin.start()
        there.advance(120)
        assert methods(there) == recorded_methods(recording)
        pod = there.pod("m-restart")
        assert pod is not None
        assert pod["status"]["phase"] == recording["podPhase"]


def test_a_pod_deleted_while_the_plugin_is_down() -> None:
    """It stays until the plugin is back and has unpublished its volume."""
    recording = recorded(FILE, "pod deleted while the plugin is down, plugin back after 12 s")
    with world() as there:
        there.add_driver()
        there.add_pod("m-restart")
        there.plugin.stop()
        there.plugin.forget()
        there.delete_pod("m-restart")
        there.advance(12)
        assert there.pod("m-restart") is not None
        there.plugin.start()
        there.advance(6)
        assert there.pod("m-restart") is None
        assert methods(there) == recorded_methods(recording)
        found = [(e["reason"], e["message"], e["count"]) for e in there.events("m-restart")]
        assert found == [(e["reason"], e["message"], e["count"]) for e in recording["events"]]


def test_a_restarted_kubelet_publishes_again() -> None:
    """A new kubelet registers the plugin and publishes a running Pod's volume once more."""
    recording = recorded(FILE, "kubelet restart while a pod uses its volume: calls afterwards")
    with world() as there:
        there.add_driver()
        there.add_pod("m-restart", csi={"volumeAttributes": {"a": "b"}})
        there.plugin.forget()
        there.node.restart_kubelet()
        there.advance(2)
        assert methods(there) == recorded_methods(recording)
        (call,) = there.plugin.named("NodePublishVolume")
        wanted = recording["calls"][-1]
        assert anonymous(call.request) == anonymous(wanted["request"])
        assert call.disk == wanted["onDiskAtCall"]
        pod = there.pod("m-restart")
        assert pod is not None
        assert pod["status"]["phase"] == recording["podPhase"]
        assert there.events("m-restart", "FailedMount") == []
        assert len(there.events("m-restart", "Started")) == 1

        there.plugin.forget()
        there.delete_pod("m-restart")
        assert methods(there) == recorded_methods(recorded(FILE, "then the pod is deleted"))
        assert there.pod("m-restart") is None


def test_a_pod_deleted_while_kubelet_is_down() -> None:
    """The next kubelet takes the deleted Pod's volume down and lets the object go."""
    with world() as there:
        there.add_driver()
        there.add_pod("p")
        there.node.stop_kubelet()
        there.delete_pod("p")
        assert there.pod("p") is not None
        there.node.start_kubelet()
        assert there.cluster.settle()
        assert there.pod("p") is None
        assert len(there.plugin.named("NodeUnpublishVolume")) == 1
        assert list((there.node.kubelet_dir / "pods").iterdir()) == []


def test_a_pod_forced_away_while_kubelet_is_down() -> None:
    """What is on disk without a Pod is unpublished and removed."""
    with world() as there:
        there.add_driver()
        there.add_pod("p")
        there.node.stop_kubelet()
        forced = DeleteOptions(grace_period_seconds=0)
        there.cluster.client.delete("v1", "Pod", "p", namespace="n1", options=forced)
        assert there.pod("p") is None
        there.node.start_kubelet()
        there.advance(1)
        assert len(there.plugin.named("NodeUnpublishVolume")) == 1
        assert list((there.node.kubelet_dir / "pods").iterdir()) == []


class SlowPlugin:
    """A publish that takes time on the cluster's clock, the first time it is called."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._condition = threading.Condition()
        self._calls = 0
        self.clock: ManualClock | None = None

    def publish(self, _: Json) -> None:
        """Wait, at the first call."""
        self._calls += 1
        clock = self.clock
        if self._calls > 1 or clock is None:
            return
        due = clock.monotonic() + self._seconds
        with self._condition:
            while (left := due - clock.monotonic()) > 0:
                clock.wait(self._condition, left)


def test_a_publish_that_takes_longer_than_two_minutes() -> None:
    """After 120 s kubelet hangs up, says so, and calls again while the first call still runs."""
    recording = recorded(
        FILE, "NodePublishVolume answered only after 125 s (kubelet timeout 2 min)"
    )
    slow = SlowPlugin(125)
    with world(Script(publish=slow.publish)) as there:
        slow.clock = there.clock
        there.add_driver()
        there.add_pod("m-slow")
        there.advance(130)
        calls = there.plugin.named("NodePublishVolume")
        at = [call.at - calls[0].at for call in calls]
        wanted = [c["secondsSinceStart"] for c in recording["calls"]]
        assert at == pytest.approx(wanted, abs=0.25)
        assert [anonymous(call.request) for call in calls] == [
            anonymous(c["request"]) for c in recording["calls"]
        ]
        pod = there.pod("m-slow")
        assert pod is not None
        assert pod["status"]["phase"] == "Running"
        found = [(e["reason"], e["message"], e["count"]) for e in there.events("m-slow")]
        assert found == [(e["reason"], e["message"], e["count"]) for e in recording["events"]]


def test_a_pod_deleted_during_a_slow_publish_is_unpublished_after_it() -> None:
    """The publish under way is waited for; then the volume is taken down and the Pod goes."""
    slow = SlowPlugin(60)
    with world(Script(publish=slow.publish)) as there:
        slow.clock = there.clock
        there.add_driver()
        there.add_pod("p")
        there.delete_pod("p")
        there.advance(59)
        assert there.plugin.named("NodeUnpublishVolume") == []
        assert there.pod("p") is not None
        there.advance(2)
        assert len(there.plugin.named("NodeUnpublishVolume")) == 1
        assert there.pod("p") is None
