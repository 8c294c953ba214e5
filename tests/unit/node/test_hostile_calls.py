"""Every field of every call with everything wrong for it: one clear answer, and nothing lost.

`PUBLISH` and `UNPUBLISH` have a row for each field of the message; a field without one fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc
import pytest

from gpustack_delivery.csi_wire import (
    csi_pb2,
    csi_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)
from gpustack_delivery.node.registrar import Registrar
from tests.unit.node.stage import Stage

CANARY: Final = "canary-4711"
HUGE: Final = "x" * 1_000_000
ODD: Final = "模\n\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\x7f"
TEXTS: Final = (
    "",
    " ",
    "..",
    "a\nb",
    "\0",
    ODD,
    "x" * 10_000,
    HUGE,
    "\N{GRINNING FACE}",
    "%s%n{0}",
)
TARGETS: Final = (
    *("", " ", ".", "/", "//", "relative", "../up", "{kubelet}", "{kubelet}/", "{kubelet}/pods/.."),
    *("{kubelet}/../etc", "{kubelet}-not/x", "/etc/passwd", "{kubelet}/../kubelet/../x", "\0"),
    *("{kubelet}/a\0b", "{kubelet}/pods/out/x"),
    *("{kubelet}/" + "x" * 10_000, "{kubelet}/" + "x/" * 5_000 + "x", "/" + HUGE),
)
BLOCK: Final = csi_pb2.VolumeCapability(block=csi_pb2.VolumeCapability.BlockVolume())
MODES: Final = csi_pb2.VolumeCapability.AccessMode
MOUNT: Final = csi_pb2.VolumeCapability.MountVolume


def capability(mode: int = 0, **mount: object) -> Any:
    """Return a mount capability."""
    return csi_pb2.VolumeCapability(mount=MOUNT(**mount), access_mode=MODES(mode=mode))


KEYS: Final = (
    *("artifact", "artifactUID", "manifestDigest", "csi.storage.k8s.io/ephemeral"),
    "csi.storage.k8s.io/pod.namespace",
)
REFUSED: Final = {"INVALID_ARGUMENT", "PERMISSION_DENIED"}
SERVED: Final = {"OK"}
PUBLISH: Final[Mapping[str, tuple[tuple[object, ...], set[str]]]] = {
    "volume_id": (("",), REFUSED),
    "target_path": (TARGETS, REFUSED),
    "volume_capability": (
        (None, csi_pb2.VolumeCapability(), BLOCK),
        REFUSED,
    ),
    # What the contract gives no meaning to changes nothing: the mount is read-only anyhow.
    "readonly": ((False,), SERVED),
    "publish_context": (({"k": "v"}, {ODD.strip("\0"): HUGE}), SERVED),
    "staging_target_path": (("relative", "/x", ODD), SERVED),
    "secrets": (({"token": ODD}, {"token": HUGE}, {"other": CANARY}, {"": ""}), SERVED),
    "volume_context": ((), REFUSED),  # each key has rows of its own below
}
UNPUBLISH: Final = {
    "volume_id": (("",), {"INVALID_ARGUMENT"}),
    "target_path": (("",), {"INVALID_ARGUMENT"}),
}
HARMLESS: Final[tuple[tuple[str, object], ...]] = (
    *(("volume_id", text) for text in TEXTS if text),
    *(("volume_capability", capability(mode)) for mode in range(8)),
    ("volume_capability", capability(2**31 - 1)),
    ("volume_capability", capability(fs_type=ODD, mount_flags=["rw", "dev", HUGE])),
)


def fields(message: Any) -> set[str]:
    """Return the names of a message's fields."""
    return set(message.DESCRIPTOR.fields_by_name)


def test_every_field_has_its_row() -> None:
    """The tables and the protocol name the same fields."""
    assert fields(csi_pb2.NodePublishVolumeRequest) == set(PUBLISH)
    assert fields(csi_pb2.NodeUnpublishVolumeRequest) == set(UNPUBLISH)


@pytest.fixture
def digest(stage: Stage) -> str:
    """Start a plugin that has one tree and one mount of it."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest, "kept")
    (stage.pods / "loop").symlink_to("loop")
    (stage.pods / "out").symlink_to("/tmp")
    (stage.pods / "file").touch()
    return digest


def written(stage: Stage, value: object) -> object:
    """Return a value with the stage's own kubelet directory in it."""
    return value.replace("{kubelet}", str(stage.kubelet)) if isinstance(value, str) else value


def judged(stage: Stage, answer: tuple[str, str], codes: set[str], value: object) -> None:
    """Check an answer: its code, one line that says why, no secret, and nothing mounted."""
    shown = str(value)[:80]
    code, message = answer
    assert code in codes, (shown, answer)
    assert CANARY not in message
    if code != "OK":
        assert message, shown
        assert message.isprintable(), (shown, message)
        assert len(message) < 500, shown
        assert [mount.target for mount in stage.mounts.mounts] == [stage.target("kept")], shown


@pytest.mark.parametrize("field", [name for name in PUBLISH if PUBLISH[name][0]])
def test_publish_with_a_wrong_field(stage: Stage, digest: str, field: str) -> None:
    """It is answered by its code, and the next good call is served."""
    before = sorted(stage.root.rglob("*"))
    values, codes = PUBLISH[field]
    for value in values:
        changes: dict[str, Any] = {"token": CANARY} if field != "secrets" else {}
        changes |= {field: written(stage, value)}
        judged(stage, stage.publish(digest, "kept2", **changes), codes, value)
        stage.unpublish("kept2")
    if codes is REFUSED:
        made = {stage.target("kept2").parent, *stage.target("kept2").parents}
        assert set(stage.root.rglob("*")) - set(before) <= made
    assert stage.publish(digest, "next") == ("OK", "")


@pytest.mark.parametrize("name", ["loop", "file"])
def test_publish_where_the_filesystem_refuses(stage: Stage, digest: str, name: str) -> None:
    """A loop of links or a file among the directories is said in the system's words."""
    answer = stage.publish(digest, "new", target_path=str(stage.pods / name / "mount"))
    judged(stage, answer, {"INTERNAL"}, name)
    assert answer[1].startswith("the target directory cannot be made: ")
    assert stage.unpublish("new", target_path=str(stage.pods / name / "mount")) == ("OK", "")
    assert stage.publish(digest, "new") == ("OK", "")


@pytest.mark.parametrize("key", KEYS)
def test_publish_with_a_wrong_attribute(stage: Stage, digest: str, key: str) -> None:
    """Missing, empty, huge or hostile: refused by the rule that it breaks."""
    good = {
        "artifact": "qwen",
        "artifactUID": "uid-team-a-qwen",
        "manifestDigest": digest,
        "csi.storage.k8s.io/pod.namespace": "team-a",
        "csi.storage.k8s.io/ephemeral": "true",
    }
    missing = {name: value for name, value in good.items() if name != key}
    for context in (missing, *(good | {key: text} for text in TEXTS), good | {key: "TRUE"}):
        answer = stage.publish(digest, "new", volume_context=context)
        judged(stage, answer, REFUSED, context.get(key))
    assert stage.publish(digest, "new", volume_context={})[0] == "PERMISSION_DENIED"
    extra = good | {ODD: HUGE, "artifact ": "other", "csi.storage.k8s.io/pod.name": HUGE}
    assert stage.publish(digest, "new", volume_context=extra) == ("OK", "")


def test_what_means_nothing_is_served_and_survives_a_restart(stage: Stage, digest: str) -> None:
    """Odd volume ids and capabilities are kubelet's affair; the references hold them whole."""
    for number, (field, value) in enumerate(HARMLESS):
        answer = stage.publish(digest, f"p{number}", **{field: value})  # type: ignore[arg-type]
        judged(stage, answer, SERVED, value)
    stage.stop()
    stage.start()
    assert len(stage.mounts.mounts) == len(HARMLESS) + 1
    for number in range(len(HARMLESS)):
        assert stage.unpublish(f"p{number}", volume_id="another") == ("OK", "")
    assert [mount.target for mount in stage.mounts.mounts] == [stage.target("kept")]


@pytest.mark.parametrize("field", UNPUBLISH)
def test_unpublish_with_a_wrong_field(stage: Stage, digest: str, field: str) -> None:
    """Only an empty one is an error; whatever else was never mounted is a success."""
    values, codes = UNPUBLISH[field]
    for value in values:
        judged(stage, stage.unpublish("kept", **{field: value}), codes, value)
    for target in TARGETS:
        if target:
            answer = stage.unpublish("x", target_path=str(written(stage, target)))
            judged(stage, answer, SERVED, target)
    assert [mount.target for mount in stage.mounts.mounts] == [stage.target("kept")]
    assert (stage.pods / "file").exists()


@pytest.mark.parametrize("method", ["NodePublishVolume", "NodeUnpublishVolume", "NodeGetInfo"])
def test_bytes_that_are_no_message(stage: Stage, digest: str, method: str) -> None:
    """A broken frame ends its own call, and the next is served."""
    with grpc.insecure_channel(f"unix:{stage.socket}") as channel:
        call = channel.unary_unary(f"/csi.v1.Node/{method}")
        for frame in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f"):
            with pytest.raises(grpc.RpcError):
                call(frame, timeout=20)
    assert stage.publish(digest, "next") == ("OK", "")


@pytest.mark.parametrize(
    "method",
    [name for name in dir(csi_pb2_grpc.NodeServicer) if name.startswith("Node")],
)
def test_an_empty_request_is_answered(stage: Stage, digest: str, method: str) -> None:
    """Each method of the service, those that the plugin has no capability for included."""
    request = getattr(csi_pb2, f"{method}Request")()
    code, _ = stage.call(method, request)
    own = {"NodeGetInfo": "OK", "NodeGetCapabilities": "OK"}
    of_volumes = {
        "NodePublishVolume": "INVALID_ARGUMENT",
        "NodeUnpublishVolume": "INVALID_ARGUMENT",
    }
    assert code == (own | of_volumes).get(method, "UNIMPLEMENTED")


def test_the_registrar_hears_anything(stage: Stage, digest: str) -> None:
    """Kubelet's words are kept and logged in one line; the next acceptance clears them."""
    registry = stage.kubelet / "plugins_registry"
    registry.mkdir()
    registrar = Registrar(stage.socket, registry)
    registrar.start()
    with grpc.insecure_channel(f"unix:{registry}/model.csi.gpustack.ai-reg.sock") as channel:
        stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
        for text in TEXTS:
            status = pluginregistration_pb2.RegistrationStatus(error=text)
            stub.NotifyRegistrationStatus(status, timeout=20)
            assert registrar.refused == text
        accepted = pluginregistration_pb2.RegistrationStatus(plugin_registered=True, error=ODD)
        stub.NotifyRegistrationStatus(accepted, timeout=20)
        assert registrar.refused == ""
        info = stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=20)
        assert info.name == "model.csi.gpustack.ai"
    registrar.stop()
