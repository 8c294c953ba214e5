"""Plugin registration, held against the recording of a real kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.kubelet.registration import _version_fault
from tests.emulator.csi_plugin import NAME, Call, Refuse, Script, refuse_in_turn
from tests.emulator.kubelet_world import anonymous, recorded, world

Json = dict[str, Any]
FILE = "30-csi-plugin-registration"


def said(made: list[Call]) -> list[Json]:
    """Return calls in the recording's form: method, deadline, request."""
    return [
        anonymous(
            {
                "call": call.method,
                "deadline": min((1, 5, 120), key=lambda s: abs(s - call.seconds_left)),
                "request": call.request,
            }
        )
        for call in made
    ]


def expected(exchange: Json, key: str = "calls") -> list[Json]:
    """Return a recording's calls in the same form."""
    return [
        anonymous(
            {
                "call": call["call"].rpartition("/")[2],
                "deadline": round(call["deadline"]),
                "request": call["request"],
            }
        )
        for call in exchange[key]
        if "call" in call
    ]


def info_times(exchange: Json) -> list[float]:
    """Return when GetInfo of the registration service was called, counted from the first call."""
    name = "/pluginregistration.Registration/GetInfo"
    at = [c["secondsSinceStart"] for c in exchange["calls"] if c.get("call") == name]
    return [one - at[0] for one in at]


def test_before_anything_registers() -> None:
    """A new CSINode has no drivers, but its owner and annotation; the Node has kubelet's."""
    with world(started=False) as there:
        recording = recorded(FILE, "CSINode before")["object"]
        csinode = there.csinode()
        assert csinode["spec"] == recording["spec"]
        for part in ("annotations", "ownerReferences"):
            assert anonymous(csinode["metadata"][part]) == anonymous(recording["metadata"][part])
        annotations = there.node_object()["metadata"]["annotations"]
        wanted = recorded(FILE, "Node annotations before")["annotations"]
        assert annotations == {
            k: v for k, v in wanted.items() if k != "node.alpha.kubernetes.io/ttl"
        }


def test_registration_in_order() -> None:
    """GetInfo, NodeGetInfo, the objects, then the good news, all as recorded."""
    with world() as there:
        assert said(there.plugin.calls) == expected(recorded(FILE, "calls on registration"))
        assert there.csinode()["spec"] == recorded(FILE, "CSINode after")["object"]["spec"]
        wanted = recorded(FILE, "Node after (annotations and topology labels)")
        metadata = there.node_object()["metadata"]
        key = "csi.volume.kubernetes.io/nodeid"
        assert metadata["annotations"][key] == wanted["annotations"][key]
        assert metadata["labels"] == wanted["labels"]
        assert there.node.drivers == {NAME}


def test_a_driver_leaves_with_its_socket() -> None:
    """When the sockets go, so do the CSINode's entry and the annotation, at once."""
    with world() as there:
        there.plugin.stop()
        assert there.cluster.settle()
        wanted = recorded(FILE, "plugin stops and removes its sockets: CSINode 4 s later")
        assert there.csinode()["spec"] == wanted["object"]["spec"]
        assert (
            "csi.volume.kubernetes.io/nodeid" not in there.node_object()["metadata"]["annotations"]
        )
        assert there.node.drivers == set()


@pytest.mark.parametrize(
    ("name", "script"),
    [
        (
            "registration while NodeGetInfo fails twice with UNAVAILABLE",
            Script(node_info=refuse_in_turn("UNAVAILABLE", "UNAVAILABLE")),
        ),
        (
            "registration while GetInfo fails once with INTERNAL",
            Script(info=refuse_in_turn("INTERNAL")),
        ),
    ],
)
def test_a_failing_registration_starts_over(name: str, script: Script) -> None:
    """A failure is told to the plugin; then everything begins again after the recorded wait."""
    recording = recorded(FILE, name)
    with world(script) as there:
        assert there.node.drivers == set()
        there.advance(5)
        assert said(there.plugin.calls) == expected(recording)
        at = [call.at for call in there.plugin.named("GetInfo")]
        assert at == pytest.approx(info_times(recording), abs=0.2)
        assert there.node.drivers == {NAME}


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("supported_versions [0.3.0]", Script(versions=("0.3.0",))),
        ("unknown plugin type", Script(type="Bogus")),
        ("empty node_id", Script(node_id="")),
    ],
)
def test_what_cannot_be_registered_is_told_why(name: str, script: Script) -> None:
    """Each refusal has kubelet's own words, and nothing enters the CSINode."""
    recording = expected(recorded(FILE, name))
    with world(script) as there:
        there.advance(3.5)
        assert said(there.plugin.calls)[: len(recording)] == recording
        assert there.csinode()["spec"] == {"drivers": None}
        assert there.node.drivers == set()


def test_a_killed_plugin_stays_until_it_comes_back() -> None:
    """Stale sockets keep the CSINode as it is; sockets made anew register anew."""
    recording = recorded(
        FILE, "plugin killed (stale sockets stay), then started again (sockets re-created)"
    )
    with world() as there:
        there.plugin.kill()
        there.advance(10)
        assert there.csinode()["spec"] == recording["csinodeSpecWhileDead"]
        there.plugin.forget()
        there.plugin.start()
        assert there.cluster.settle()
        assert said(there.plugin.calls) == expected(recording, "callsAfterRestart")
        assert there.csinode()["spec"] == recording["csinodeSpecWhileDead"]


def test_stale_sockets_at_a_kubelets_start_are_tried_and_left() -> None:
    """A socket that nobody listens on does not keep a new kubelet from its work."""
    with world() as there:
        there.add_driver()
        there.plugin.kill()
        there.node.restart_kubelet()
        assert there.cluster.settle()
        assert there.node.drivers == set()
        there.add_pod("p")
        (event,) = there.events("p", "FailedMount")
        assert "not found in the list of registered CSI drivers" in event["message"]


@pytest.mark.parametrize(
    ("versions", "fault"),
    [
        (["1.0.0"], None),
        (["0.3.0", "1.12.0"], None),
        (["v1.0"], None),
        (["2.0.0", "1.0.0"], "highest supported version reported is 2.0.0, must be v1.x"),
        (["one"], 'could not parse "one" as version'),
        ([], "could not find any versions"),
    ],
)
def test_versions(versions: list[str], fault: str | None) -> None:
    """The highest version that a plugin speaks must be 1.x."""
    assert _version_fault(versions) == fault


def test_a_refusal_in_the_middle_of_a_call_is_a_grpc_error() -> None:
    """The text that a plugin is told holds the code and message of its own refusal."""

    def refuse() -> None:
        raise Refuse("INTERNAL", "no disk")

    with world(Script(node_info=refuse)) as there:
        (told,) = there.plugin.named("NotifyRegistrationStatus")
        assert told.request["error"].endswith("rpc error: code = Internal desc = no disk")


def test_two_nodes_know_their_own_plugins_only() -> None:
    """A plugin registers where its socket lies, and nowhere else."""
    with world() as there:
        other = there.cluster.add_node("node-b")
        assert there.cluster.settle()
        assert other.drivers == set()
        assert there.node.drivers == {NAME}
