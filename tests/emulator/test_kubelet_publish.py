"""Publish and unpublish of an ephemeral volume, held against the recording of a real kubelet."""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from emulator.kubelet.publishing import Place, attachment_id
from tests.emulator.csi_plugin import NAME, Call, Script
from tests.emulator.kubelet_world import World, anonymous, recorded, world

Json = dict[str, Any]
FILE = "31-csi-publish-unpublish"


@pytest.fixture
def there() -> Iterator[World]:
    """Return a world with the plugin registered and its CSIDriver."""
    with world() as built:
        built.add_driver()
        built.plugin.forget()
        yield built


def calls(made: list[Call]) -> list[Json]:
    """Return calls in the recording's form, without times."""
    listed = []
    for call in made:
        one: Json = {
            "call": call.method,
            "deadline": min((1, 5, 120), key=lambda s: abs(s - call.seconds_left)),
            "request": call.request,
        }
        if "target_path" in call.request:
            one["onDiskAtCall"] = call.disk
        listed.append(anonymous(one))
    return listed


def expected(exchange: Json) -> list[Json]:
    """Return a recording's calls in the same form."""
    listed = []
    for call in exchange["calls"]:
        one = {
            "call": call["call"].rpartition("/")[2],
            "deadline": round(call["deadline"]),
            "request": call["request"],
        }
        if "onDiskAtCall" in call:
            one["onDiskAtCall"] = call["onDiskAtCall"]
        listed.append(anonymous(one))
    return listed


FULL = {
    "readOnly": True,
    "volumeAttributes": {"share": "alpha", "size": "1Gi"},
    "nodePublishSecretRef": {"name": "pubsec"},
}


def test_publish_with_everything(there: World) -> None:
    """Capabilities are asked twice, then one publish has context, secrets and readonly."""
    there.add_pod("pv1", csi=FULL)
    name = "pod with readOnly, volumeAttributes and nodePublishSecretRef: calls"
    assert calls(there.plugin.calls) == expected(recorded(FILE, name))


def test_unpublish(there: World) -> None:
    """Deleting the Pod unpublishes the same id and target, and nothing stays on disk."""
    pod = there.add_pod("pv1", csi=FULL)
    there.plugin.forget()
    there.delete_pod("pv1")
    assert calls(there.plugin.calls) == expected(recorded(FILE, "pod deleted: calls"))
    assert there.pod("pv1") is None
    assert not (there.node.kubelet_dir / "pods" / pod["metadata"]["uid"]).exists()


def test_publish_with_nothing(there: World) -> None:
    """Without attributes, secret and readOnly, only kubelet's own context is left."""
    there.add_pod("pv2")
    recording = recorded(FILE, "minimal volume (no attributes, no secret, readOnly unset): calls")
    assert calls(there.plugin.calls) == expected(recording)[:3]  # a fourth asks for statistics
    there.plugin.forget()
    there.delete_pod("pv2")
    assert calls(there.plugin.calls) == expected(recorded(FILE, "minimal volume: unpublish"))


def test_a_group_that_the_emulator_would_have_to_apply() -> None:
    """Nothing is published to a Pod whose group kubelet would make the owner of the files."""
    with world() as there:
        there.add_driver(fsGroupPolicy="File")
        csi = {"fsType": "ext4", "volumeAttributes": {"a": "b"}}
        there.add_pod("pv4", csi=csi, securityContext={"fsGroup": 1234})
        assert there.plugin.named("NodePublishVolume") == []
        (event,) = there.events("pv4")
        assert "the emulator does not change the owner of a volume" in event["message"]


def test_without_pod_info_the_context_is_the_pods_own() -> None:
    """A driver that does not want the Pod's facts gets the attributes alone."""
    with world() as there:
        there.add_driver(podInfoOnMount=False)
        there.plugin.forget()
        there.add_pod("pv3", csi={"volumeAttributes": {"a": "b"}})
        assert calls(there.plugin.calls) == expected(recorded(FILE, "podInfoOnMount=false: calls"))


def test_a_pod_cannot_pretend_kubelets_keys(there: World) -> None:
    """What a Pod's own attributes say under kubelet's keys is written over."""
    pretended = {
        "csi.storage.k8s.io/pod.namespace": "other",
        "csi.storage.k8s.io/ephemeral": "false",
    }
    there.add_pod("pv", csi={"volumeAttributes": pretended})
    context = there.plugin.named("NodePublishVolume")[0].request["volume_context"]
    assert context["csi.storage.k8s.io/pod.namespace"] == "n1"
    assert context["csi.storage.k8s.io/ephemeral"] == "true"


def test_a_driver_that_sets_the_group_gets_it() -> None:
    """fsGroup goes to a driver with VOLUME_MOUNT_GROUP, and nothing is staged."""
    names = ("VOLUME_MOUNT_GROUP", "GET_VOLUME_STATS", "STAGE_UNSTAGE_VOLUME")
    with world(Script(capabilities=names)) as there:
        there.add_driver(fsGroupPolicy="File")
        there.plugin.forget()
        there.add_pod(
            "pv5", csi={"volumeAttributes": {"a": "b"}}, securityContext={"fsGroup": 1234}
        )
        recording = recorded(
            FILE,
            "driver with VOLUME_MOUNT_GROUP, GET_VOLUME_STATS and STAGE_UNSTAGE_VOLUME, "
            "fsGroup 1234: "
            "calls in 75 s (no NodeStageVolume for an ephemeral volume)",
        )
        assert calls(there.plugin.calls) == expected(recording)[:3]  # the others ask for statistics


def test_an_owner_that_the_emulator_does_not_set_is_refused() -> None:
    """fsGroup with policy File is not ignored: the Pod's event says what to change."""
    with world() as there:
        there.add_driver(fsGroupPolicy="File")
        there.add_pod("pv4", securityContext={"fsGroup": 1234})
        (event,) = there.events("pv4", "FailedMount")
        assert "set fsGroupPolicy None" in event["message"]
        assert there.plugin.named("NodePublishVolume") == []


def test_files_kept_for_a_volume(there: World) -> None:
    """The volume's folder is 0750 and holds vol_data.json, as long as the recorded one."""
    pod = there.add_pod("pv1", csi=FULL)
    place = Place(there.node.kubelet_dir, pod["metadata"]["uid"], "vol")
    recording = recorded(FILE, "files kubelet keeps for the volume")
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o750
    assert stat.S_IMODE(place.folder.parent.stat().st_mode) == 0o750
    assert sorted(path.name for path in place.folder.iterdir()) == ["mount", "vol_data.json"]
    text = place.data.read_text("utf-8")
    assert anonymous(json.loads(text)) == anonymous(recording["vol_data_json"])
    assert len(text) == 280


def test_ids_are_those_of_a_real_kubelet() -> None:
    """The attachment's id follows from the volume's id, driver and node exactly as recorded."""
    data = recorded(FILE, "files kubelet keeps for the volume")["vol_data_json"]
    found = attachment_id(data["volumeHandle"], data["driverName"], data["nodeName"])
    assert found == data["attachmentID"]


def test_what_the_container_sees(there: World) -> None:
    """Through the mount a container reads what the driver serves, and cannot write."""
    pod = there.add_pod("pv1", csi=FULL)
    mount = there.node.pod_mount(pod)
    assert mount.files() == ["hello"]
    assert mount.read("hello") == b"hi"
    assert there.node.read_file(there.node.target(pod), "hello") == b"hi"
    with pytest.raises(OSError, match="Read-only") as caught:
        mount.write("hello", b"no")
    assert caught.value.errno == errno.EROFS
    with pytest.raises(OSError, match="leads out"):
        mount.read("../../etc/passwd")
    with pytest.raises(LookupError, match="name one CSI volume"):
        there.node.target(pod, "other")
    there.delete_pod("pv1")
    with pytest.raises(LookupError, match="nothing is mounted"):
        there.node.pod_mount(pod)


def plain(status: Json) -> Json:
    """Return a status without what differs between nodes, clocks and runtimes."""
    kept = {
        k: v
        for k, v in status.items()
        if k not in {"hostIP", "hostIPs", "podIP", "podIPs", "resources", "startTime"}
    }
    kept["conditions"] = [
        {k: v for k, v in condition.items() if k not in {"lastTransitionTime", "lastProbeTime"}}
        for condition in status.get("conditions", [])
    ]
    kept["containerStatuses"] = [
        {
            **{
                k: v
                for k, v in container.items()
                if k not in {"imageID", "containerID", "resources", "state"}
            },
            "state": {
                state: {k: v for k, v in facts.items() if k in {"reason", "exitCode"}}
                for state, facts in container["state"].items()
            },
        }
        for container in status.get("containerStatuses", [])
    ]
    return kept


def test_a_pods_life_as_a_watch_sees_it(there: World) -> None:
    """Every state of the Pod comes in the recorded order with the recorded status."""
    watch = there.cluster.client.watch("v1", "Pod", namespace="n1")
    there.add_pod("pv1", csi=FULL)
    there.delete_pod("pv1")
    seen: list[tuple[str, Json]] = []
    for kind, pod in watch:
        metadata = pod["metadata"]
        facts = {
            "generation": metadata.get("generation"),
            "grace": metadata.get("deletionGracePeriodSeconds"),
            "status": plain(pod["status"]),
        }
        seen.append((kind, facts))
        if kind == "DELETED":
            break
    watch.close()
    wanted = []
    for event in recorded(FILE, "pod watch events over its life (managedFields left out)")[
        "events"
    ]:
        metadata = event["object"]["metadata"]
        facts = {
            "generation": metadata.get("generation"),
            "grace": metadata.get("deletionGracePeriodSeconds"),
            "status": plain(event["object"]["status"]),
        }
        wanted.append((event["type"], facts))
    assert seen == wanted


def test_events_about_a_pod(there: World) -> None:
    """The events of a Pod's life have the recorded reasons, messages, counts and sources."""
    there.add_pod("pv1", csi=FULL)
    there.delete_pod("pv1")
    recording = recorded(FILE, "events written about the pod")["events"]

    def facts(event: Json) -> Json:
        parts = (
            "reason",
            "message",
            "source",
            "count",
            "type",
            "eventTime",
            "reportingComponent",
            "reportingInstance",
        )
        about = ("kind", "namespace", "name", "apiVersion", "fieldPath")
        found = {part: event[part] for part in parts}
        return found | {part: event["involvedObject"][part] for part in about}

    assert [facts(event) for event in there.events("pv1")] == [facts(event) for event in recording]
    versions = {event["involvedObject"]["resourceVersion"] for event in there.events("pv1")}
    assert len(versions) == 1


def test_the_driver_is_asked_for_by_its_own_name(there: World) -> None:
    """Another driver's volume is not this plugin's business."""
    there.add_pod("other", csi={"driver": "absent.csi.example.io"})
    assert NAME in there.node.drivers
    assert there.plugin.calls == []
