"""The whole path: publish, download, mount, unpublish, restart."""

from __future__ import annotations

import stat
from dataclasses import replace
from itertools import count

import pytest

from gpustack_delivery.csi_wire import csi_pb2
from gpustack_delivery.errors import Unreachable
from tests.unit.fakes import eventually
from tests.unit.node.stage import COMMIT, FILES, Stage

SIZE = sum(map(len, FILES.values()))


def test_a_first_mount_downloads_and_a_later_one_mounts(stage: Stage) -> None:
    """Aborted with progress, then success; the files are what the hub has, sealed."""
    digest = stage.artifact()
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "ABORTED", "the attempt")
    eventually(lambda: "of 4.0 KiB received" in stage.publish(digest)[1], "progress")
    short = digest[:19]
    assert stage.publish(digest)[1].startswith(f"materializing {short}: ")
    assert not stage.mounts.mounts
    stage.hub.gate.set()
    stage.mounted(digest)
    assert stage.hub.listed == [("org/name", COMMIT, None)]
    assert sorted(stage.hub.fetched) == sorted(FILES)
    tree = stage.tree(digest)
    assert {path: (tree / path).read_bytes() for path in FILES} == FILES
    for path in [tree, *tree.rglob("*")]:
        mode = 0o555 if path.is_dir() else 0o444
        assert stat.S_IMODE(path.stat().st_mode) == mode
    mount = stage.mounts.at(stage.target())[0]
    assert (mount.root, mount.read_only) == (str(tree), True)
    assert stage.metric('gpustack_model_manager_mounts_total{result="materialized"}') == 1
    assert stage.metric('gpustack_model_manager_download_bytes_total{source="hub"}') == SIZE


def test_a_second_pod_is_served_from_the_cache(stage: Stage) -> None:
    """A hit asks the hub for nothing."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    asked = len(stage.hub.listed)
    assert stage.publish(digest, "u2") == ("OK", "")
    assert len(stage.hub.listed) == asked
    assert stage.metric('gpustack_model_manager_mounts_total{result="hit"}') == 1


def test_a_repeated_publish_stacks_nothing_even_after_a_revocation(stage: Stage) -> None:
    """Kubelet publishes running volumes again after its restart; other Pods are refused."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.artifact(resolved=False)
    others = count()  # one that came in time has its mount, and would be let in again
    eventually(
        lambda: stage.publish(digest, f"other-{next(others)}")[0] == "PERMISSION_DENIED",
        "the revocation",
    )
    for _ in range(3):
        assert stage.publish(digest) == ("OK", "")
    assert len(stage.mounts.at(stage.target())) == 1


def test_every_refusal_leaves_no_trace(stage: Stage) -> None:
    """Content on the node is no permission; a refused call makes no directory and no request."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    calls = len(stage.hub.listed)
    code, message = stage.publish(digest, "u9", namespace="team-b")
    assert code == "PERMISSION_DENIED"
    assert "ModelArtifact" in message
    assert not stage.target("u9").exists()
    assert len(stage.hub.listed) == calls
    assert stage.metric('gpustack_model_manager_mounts_total{result="denied"}') == 1


def test_forms_and_rules_have_their_codes(stage: Stage) -> None:
    """Lacking parts are InvalidArgument, broken rules PermissionDenied, the rest Unimplemented."""
    digest = stage.artifact()
    stage.start()
    block = csi_pb2.VolumeCapability(block=csi_pb2.VolumeCapability.BlockVolume())
    assert stage.publish(digest, volume_id="")[0] == "INVALID_ARGUMENT"
    assert stage.publish(digest, target_path="")[0] == "INVALID_ARGUMENT"
    assert stage.publish(digest, volume_capability=None)[0] == "INVALID_ARGUMENT"
    assert stage.publish(digest, volume_capability=block)[0] == "PERMISSION_DENIED"
    assert stage.publish(digest, target_path="/etc")[0] == "PERMISSION_DENIED"
    assert stage.publish(digest, target_path=f"{stage.pods}/x\0y")[0] == "PERMISSION_DENIED"
    assert stage.unpublish(volume_id="")[0] == "INVALID_ARGUMENT"
    assert stage.unpublish(target_path="")[0] == "INVALID_ARGUMENT"
    request = csi_pb2.NodeGetVolumeStatsRequest()
    assert stage.call("NodeGetVolumeStats", request)[0] == "UNIMPLEMENTED"


def test_a_symlink_out_of_the_kubelet_directory_is_refused(stage: Stage) -> None:
    """The parent is followed before the rule is asked."""
    digest = stage.artifact()
    stage.start()
    outside = stage.root / "outside"
    outside.mkdir()
    (stage.pods / "link").symlink_to(outside)
    code, message = stage.publish(digest, target_path=str(stage.pods / "link" / "mount"))
    assert (code, "kubelet directory" in message) == ("PERMISSION_DENIED", True)
    assert not list(outside.iterdir())


def test_mounts_wait_until_the_artifacts_are_read(stage: Stage) -> None:
    """Unavailable, not refused, while the API is away; ready only afterwards."""
    digest = stage.artifact()
    stage.kube.trouble.extend(Unreachable("away", code=503) for _ in range(40))
    stage.start(synced=False)
    assert stage.publish(digest)[0] == "UNAVAILABLE"
    assert stage.https("/readyz")[0] == 503
    assert stage.https("/livez")[0] == 200
    stage.kube.trouble.clear()

    def ready() -> bool:
        stage.clock.advance(60)
        return stage.https("/readyz")[0] == 200

    eventually(ready, "readiness")


def test_unpublish_needs_the_target_alone_and_always_succeeds(stage: Stage) -> None:
    """Mounted, again, never mounted, a file, a full directory, outside of everything."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"), "the reference")
    assert stage.unpublish(volume_id="another") == ("OK", "")
    assert not stage.mounts.mounts
    assert not stage.target().exists()
    eventually(lambda: stage.model(digest) and not stage.model(digest).get("referenced"))
    assert stage.unpublish() == ("OK", "")
    assert stage.unpublish("never") == ("OK", "")
    stage.target("file").write_text("x")
    assert stage.unpublish("file") == ("OK", "")
    full = stage.target("full")
    full.mkdir()
    (full / "data").write_text("x")
    assert stage.unpublish("full") == ("OK", "")
    assert (full / "data").read_text() == "x"
    assert stage.unpublish(target_path="/etc") == ("OK", "")


def test_references_survive_a_restart_and_follow_the_mounts(stage: Stage) -> None:
    """Kept, dropped and adopted as the live mount table says."""
    digest = stage.artifact()
    stage.start()
    for pod in ("u1", "u2"):
        stage.mounted(digest, pod)
    stage.stop()
    assert len(stage.mounts.mounts) == 2
    stage.mounts.unmount(stage.target("u1"))
    target = stage.target("u3")
    target.mkdir()
    stage.mounts.bind_read_only(stage.tree(digest), target)
    stage.start()
    eventually(lambda: stage.model(digest).get("referenced"))
    records = sorted(path.read_text() for path in (stage.cache / "ledger" / "refs").glob("*.json"))
    assert len(records) == 2
    assert str(stage.target("u1")) not in "".join(records)
    for pod in ("u2", "u3"):
        assert stage.unpublish(pod) == ("OK", "")
    eventually(lambda: stage.model(digest) and not stage.model(digest).get("referenced"))


def test_another_mount_at_the_target_is_replaced(stage: Stage) -> None:
    """Another digest's tree, or a foreign mount, never passes for ours."""
    other = stage.artifact("other", repository="org/other", files={"a": b"other"})
    digest = stage.artifact()
    stage.start()
    stage.mounted(other, "u2", name="other")
    stage.mounted(digest, "u1")
    target = stage.target("u2")
    stage.mounts.bind_read_only(stage.root, target)
    assert stage.publish(digest, "u2") == ("OK", "")
    assert [mount.root for mount in stage.mounts.at(target)] == [str(stage.tree(digest))]


@pytest.mark.parametrize("change", [{"read_only": False}, {"device": "9:9"}])
def test_a_mount_of_the_right_name_and_the_wrong_kind_is_replaced(
    stage: Stage, change: dict[str, object]
) -> None:
    """A writable one, or the same path on another filesystem."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.mounts.mounts = [replace(stage.mounts.mounts[0], **change)]  # type: ignore[arg-type]
    assert stage.publish(digest) == ("OK", "")
    (mount,) = stage.mounts.mounts
    assert (mount.read_only, mount.device) == (True, "8:1")


@pytest.mark.parametrize("call", ["bind", "table"])
def test_a_mount_that_fails_leaves_no_reference(stage: Stage, call: str) -> None:
    """Internal, nothing mounted, no target directory; the next call succeeds."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest, "u1")
    stage.mounts.fail = call
    assert stage.publish(digest, "u2")[0] == "INTERNAL"
    stage.mounts.fail = ""
    assert not stage.target("u2").exists()
    assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 1
    assert stage.publish(digest, "u2") == ("OK", "")


def test_a_reference_that_cannot_be_recorded_binds_nothing(stage: Stage) -> None:
    """Protected first, in use second."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest, "u1")
    stage.disk.fail_sync = lambda path: "refs" in path.parts
    assert stage.publish(digest, "u2")[0] == "INTERNAL"
    assert not stage.mounts.at(stage.target("u2"))
    stage.disk.fail_sync = lambda path: False
    assert stage.publish(digest, "u2") == ("OK", "")


@pytest.mark.parametrize(
    "damage",
    ["marker", "file", "size", "mode", "foreign", "listing", "link"],
)
def test_a_damaged_tree_is_delivered_again_before_it_is_mounted(stage: Stage, damage: str) -> None:
    """Each kind of damage is found, and the Pod that mounted the old tree keeps its mount."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest, "u1")
    tree = stage.tree(digest)
    tree.chmod(0o755)
    file = tree / "config.json"
    if damage == "marker":
        (tree.parent / "marker").unlink()
    elif damage == "listing":
        (tree.parent / "manifest.json").write_text("{}")
    elif damage == "file":
        file.unlink()
    elif damage == "size":
        file.chmod(0o644)
        file.write_bytes(b"longer than before, surely")
        file.chmod(0o444)
    elif damage == "mode":
        file.chmod(0o666)
    elif damage == "foreign":
        (tree / "extra").write_text("x")
        (tree / "extra").chmod(0o444)
    else:
        (tree / "link").symlink_to("/etc")
    tree.chmod(0o555)
    if damage == "listing":
        stage.stop()
        stage.start()
    assert stage.publish(digest, "u2")[0] == "ABORTED"
    stage.mounted(digest, "u2")
    assert (stage.tree(digest) / "config.json").read_bytes() == FILES["config.json"]
    assert not (stage.tree(digest) / "extra").exists()
    assert len(stage.mounts.at(stage.target("u1"))) == 1
