"""When the machine fails or we do: every door answers, says it once, and recovers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc
from gpustack_delivery.errors import HostFault
from gpustack_delivery.node.csi import driver_name
from tests.unit.fakes import eventually
from tests.unit.node.stage import NODE, Stage

CANARY = "hf_0123456789"


def test_identity_and_node_say_what_kubelet_asks(stage: Stage) -> None:
    """Names, no capability at all, and an answer to the probe."""
    stage.start()
    assert driver_name(stage.socket, timeout_seconds=10) == "model.csi.gpustack.ai"
    ask = stage.ask
    identity, node = csi_pb2_grpc.IdentityStub, csi_pb2_grpc.NodeStub
    info = ask(identity, "GetPluginInfo", csi_pb2.GetPluginInfoRequest())
    assert info.vendor_version
    capabilities = ask(identity, "GetPluginCapabilities", csi_pb2.GetPluginCapabilitiesRequest())
    assert not capabilities.capabilities
    assert not ask(identity, "Probe", csi_pb2.ProbeRequest()).HasField("ready")
    assert not ask(node, "NodeGetCapabilities", csi_pb2.NodeGetCapabilitiesRequest()).capabilities
    assert ask(node, "NodeGetInfo", csi_pb2.NodeGetInfoRequest()).node_id == NODE


def test_a_mistake_of_ours_in_a_call_is_internal_and_says_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of an unknown error may hold anything, so neither kubelet nor the log hears it."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)

    def broken() -> None:
        raise ZeroDivisionError(CANARY)

    stage.mounts.table = broken  # type: ignore[assignment, method-assign]
    code, message = stage.publish(digest, "u2", token=CANARY)
    del stage.mounts.table
    assert (code, CANARY in message) == ("INTERNAL", False)
    assert "ZeroDivisionError" in caplog.text
    assert CANARY not in caplog.text


def test_a_mistake_of_ours_in_an_attempt_ends_it_with_a_record(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It backs off like any failure, and the running set is empty again."""
    digest = stage.artifact()

    def broken(*args: object) -> None:
        raise ZeroDivisionError(CANARY)

    stage.hub.file_url = broken  # type: ignore[assignment, method-assign]
    stage.start()
    eventually(lambda: "an internal error" in stage.publish(digest, token=CANARY)[1])
    del stage.hub.file_url
    assert "ZeroDivisionError" in caplog.text
    assert CANARY not in caplog.text
    stage.clock.advance(61)
    stage.mounted(digest)


def test_a_mistake_in_a_round_does_not_silence_the_node(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The reporter logs it and tries again."""
    digest = stage.artifact()
    stage.start()
    eventually(lambda: stage.condition("Ready").get("reason") == "Serving")
    assert stage.plugin is not None
    partials = stage.plugin._store.partials

    def broken() -> dict[str, int]:
        raise ZeroDivisionError

    partials.sizes = broken  # type: ignore[method-assign]
    stage.mounted(digest)
    eventually(lambda: "a mistake of ours" in caplog.text)
    del partials.sizes
    stage.in_time(lambda: stage.model(digest).get("state") == "Ready")


def test_a_tree_that_vanished_is_delivered_again(stage: Stage) -> None:
    """Somebody's rm -rf is a kind of damage."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    directory = stage.tree(digest).parent
    directory.rename(stage.root / "elsewhere")
    assert stage.publish(digest, "u2")[0] == "ABORTED"
    stage.mounted(digest, "u2")


def test_a_target_in_the_way_of_a_directory_is_internal(stage: Stage) -> None:
    """Kubelet's file where the mount should be: nothing is bound, no reference stays."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.target("u2").write_text("x")
    assert stage.publish(digest, "u2")[0] == "INTERNAL"
    assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 1
    assert stage.target("u2").read_text() == "x"


def test_a_reference_that_was_told_is_taken_back_when_the_mount_fails(stage: Stage) -> None:
    """A report between the record and the bind tells of a mount that never comes to be."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    assert stage.unpublish() == ("OK", "")
    eventually(lambda: stage.model(digest) and not stage.model(digest).get("referenced"))

    def bind(source: Path, target: Path) -> None:
        assert stage.plugin is not None
        stage.plugin._reporter.changed()
        eventually(lambda: stage.model(digest).get("referenced"), "the report")
        raise HostFault("mount failed")

    stage.mounts.bind_read_only = bind  # type: ignore[method-assign]
    assert stage.publish(digest, "u2")[0] == "INTERNAL"
    eventually(lambda: not stage.model(digest).get("referenced"), "a true report")


def test_mounts_that_keep_coming_back_are_given_up(stage: Stage) -> None:
    """A table that never empties is an error, not an endless loop."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.mounts.unmount = lambda target: None  # type: ignore[method-assign]
    code, message = stage.unpublish()
    del stage.mounts.unmount
    assert (code, "more mounts" in message) == ("INTERNAL", True)
    assert stage.unpublish() == ("OK", "")


def test_no_credential_reaches_a_log_a_status_or_a_file(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Through success, failure, cancellation and restart, at the most talkative level."""
    caplog.set_level(logging.DEBUG)
    digest = stage.artifact()
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest, token=CANARY)[0] == "ABORTED")
    stage.publish(digest, "u2", token=CANARY, namespace="nobody")
    eventually(lambda: stage.hub.fetching == 1)
    stage.clock.advance(301)
    eventually(lambda: stage.hub.fetching == 0)
    stage.hub.gate.set()
    stage.mounted(digest, token=CANARY)
    assert {token.reveal() for token in stage.hub.tokens if token} == {CANARY}
    said = "".join(stage.https(path)[1].decode() for path in ("/metrics", "/model/downloads"))
    stage.stop()
    said += caplog.text + str(stage.kube.writes)
    said += "".join(
        path.read_bytes().decode("latin-1") for path in stage.cache.rglob("*") if path.is_file()
    )
    assert CANARY not in said
