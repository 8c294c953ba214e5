"""When the machine fails or we do: every door answers, says it once, and recovers."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc
from gpustack_delivery.errors import AttemptFault, DeliveryError, HostFault, Reason
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


@pytest.mark.parametrize(
    ("number", "reason"),
    [(28, "InsufficientCapacity"), (122, "InsufficientCapacity"), (5, "SourceUnavailable")],
)
def test_a_full_disk_and_a_broken_one_are_told_apart(
    stage: Stage, number: int, reason: str
) -> None:
    """ENOSPC and EDQUOT are no room; EIO is a failure of the node."""
    digest = stage.artifact()
    stage.start()

    def sync(path: Path) -> bool:
        if path.name == "marker.tmp":
            raise HostFault("sync failed") from OSError(number, "failed")
        return False

    stage.disk.fail_sync = sync
    eventually(lambda: reason in stage.publish(digest)[1], "the failure")


@pytest.mark.parametrize(
    ("number", "reason"), [(28, "InsufficientCapacity"), (5, "SourceUnavailable")]
)
@pytest.mark.parametrize("place", ["published", "marker", "manifest.json"])
def test_a_rename_that_fails_publishes_nothing_and_keeps_the_partial(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, place: str, number: int, reason: str
) -> None:
    """Of the tree to its place, or of what is written beside it; the next attempt publishes."""
    digest = stage.artifact()
    name = digest.removeprefix("sha256:")
    stage.start()

    def failing(call: Callable[..., None]) -> Callable[..., None]:
        def moved(source: Path, target: Path) -> None:
            if place in (Path(target).name, Path(target).parent.name):
                raise OSError(number, os.strerror(number))
            call(source, target)

        return moved

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", failing(os.rename))
        broken.setattr(os, "replace", failing(os.replace))
        eventually(lambda: reason in stage.publish(digest)[1], "the failure")
        assert list((stage.cache / "published").iterdir()) == []
        (partial,) = (stage.cache / "partial" / name).iterdir()
        assert {path.name for path in (partial / "tree").iterdir()} == {
            "config.json",
            "weights",
            "empty",
        }
    stage.clock.advance(61)
    stage.mounted(digest)
    assert not partial.exists()


def test_a_publication_that_cannot_be_synced_is_a_partial_again(stage: Stage) -> None:
    """It may be lost with the power, so nobody may mount it; its bytes need not come again."""
    digest = stage.artifact()
    name = digest.removeprefix("sha256:")
    stage.start()

    def sync(path: Path) -> bool:
        if path.name == "published" and (path / name).exists():
            raise HostFault("sync failed") from OSError(5, "failed")
        return False

    stage.disk.fail_sync = sync
    eventually(lambda: "SourceUnavailable" in stage.publish(digest)[1], "the failure")
    assert list((stage.cache / "published").iterdir()) == []
    (partial,) = (stage.cache / "partial" / name).iterdir()
    assert (partial / "tree" / "weights").exists()
    stage.disk.fail_sync = lambda path: False
    stage.clock.advance(61)
    stage.mounted(digest)
    assert not partial.exists()


def test_an_outcome_that_cannot_be_written_holds_for_this_process(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Backoff without a ledger is still backoff; the log says what is wrong."""
    digest = stage.artifact()
    stage.start()

    def fetch(*args: object, **named: object) -> None:
        stage.disk.fail_sync = lambda path: "digests" in path.parts
        raise AttemptFault(Reason.SOURCE_UNAVAILABLE, "HTTP 503")

    stage.hub.fetch = fetch  # type: ignore[method-assign]
    stage.configure(generation=2, hub={"huggingFaceEndpoint": "https://next.example"})
    eventually(lambda: stage.status().get("observedGeneration") == 2)
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    assert "outcome not written" in caplog.text
    stage.disk.fail_sync = lambda path: False


def test_a_ledger_that_cannot_be_written_ends_the_attempt_with_its_reason(stage: Stage) -> None:
    """What cannot be remembered asks no hub; Pod and status hear why, and then it goes on."""
    digest = stage.artifact()
    stage.start()
    stage.disk.fail_sync = lambda path: "digests" in path.parts
    assert stage.publish(digest)[0] == "ABORTED"
    eventually(lambda: "the node's disk failed: EIO" in stage.publish(digest)[1], "the failure")
    eventually(lambda: stage.model(digest).get("reason") == "SourceUnavailable", "the report")
    assert not stage.hub.listed
    stage.disk.fail_sync = lambda path: False
    stage.clock.advance(61)
    stage.mounted(digest)


def test_records_that_cannot_be_removed_hold_up_no_unmount(stage: Stage) -> None:
    """On a filesystem that has become read-only Pods still end, and the status says so."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"), "the reference")
    stage.disk.fail_sync = lambda path: "refs" in path.parts
    assert stage.unpublish() == ("OK", "")
    assert stage.mounts.mounts == []
    eventually(lambda: not stage.model(digest).get("referenced"), "a true report")
    stage.disk.fail_sync = lambda path: False


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("what", ["marker", "manifest.json", "tree"])
def test_a_tree_that_cannot_be_looked_at_for_want_of_files_is_not_damaged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str, number: int
) -> None:
    """A process that can open nothing more knows nothing of a tree, and takes none out."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    stage.start()
    read, look = Path.read_bytes, os.scandir

    def unless_exhausted(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def called(path: Any) -> Any:
            if str(path).endswith(f"/{what}"):
                raise OSError(number, os.strerror(number))
            return call(path)

        return called

    with monkeypatch.context() as exhausted:
        exhausted.setattr(Path, "read_bytes", unless_exhausted(read))
        exhausted.setattr(os, "scandir", unless_exhausted(look))
        code, message = stage.publish(digest, "u2")
    assert (code, "no more files" in message) == ("INTERNAL", True)
    assert stage.publish(digest, "u2") == ("OK", "")


@pytest.mark.parametrize("place", ["partial", "refs", "digests"])
def test_a_folder_that_cannot_be_read_is_told_by_its_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """While the plugin runs nothing is collected, and a start ends in one line."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    look = os.scandir

    def failing(path: Any) -> Any:
        if str(path).endswith(f"/{place}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(path)

    monkeypatch.setattr(os, "scandir", failing)
    assert stage.plugin is not None
    skipped = stage.plugin._collector.collect().skipped
    assert skipped == ("the filesystem failed" if place == "partial" else "")
    stage.stop()
    with pytest.raises(DeliveryError, match=r"cannot be (used|read): Input/output error"):
        stage.start()
    assert "mistake of ours" not in caplog.text


def test_a_last_use_that_cannot_be_written_costs_no_mount(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """An age is worth less than a running Pod."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.disk.fail_sync = lambda path: "digests" in path.parts
    assert stage.publish(digest, "u2") == ("OK", "")
    assert "last use not written" in caplog.text
    stage.disk.fail_sync = lambda path: False


def test_a_filesystem_that_cannot_be_measured_collects_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The report comes with the next measure that succeeds; mounts go on."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"))
    stage.disk.fail_usage = True
    assert stage.publish(digest, "u2") == ("OK", "")
    eventually(lambda: "report failed" in caplog.text)
    assert stage.plugin is not None
    assert stage.plugin._collector.collect().skipped == "the filesystem failed"
    stage.disk.fail_usage = False
    assert stage.unpublish("u1") == ("OK", "")
    assert stage.unpublish("u2") == ("OK", "")
    stage.in_time(lambda: not stage.model(digest).get("referenced"))


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
