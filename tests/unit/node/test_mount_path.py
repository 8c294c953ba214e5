"""The whole path: publish, download, mount, unpublish, restart."""

from __future__ import annotations

import stat

import pytest

from gpustack_delivery.csi_wire import csi_pb2
from gpustack_delivery.errors import AttemptFault, HubFault, Reason, Unreachable, Verdict
from gpustack_delivery.redaction import Token
from tests.unit.fakes import eventually
from tests.unit.node.stage import COMMIT, FILES, Stage, manifest_of

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
    eventually(lambda: stage.publish(digest, "u2")[0] == "PERMISSION_DENIED", "the revocation")
    for _ in range(3):
        assert stage.publish(digest) == ("OK", "")
    assert len(stage.mounts.mounts) == 1


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


def test_concurrent_mounts_join_one_attempt_and_bring_their_own_credentials(stage: Stage) -> None:
    """One listing and one download, with the newest token of the artifact that asked first."""
    digest = stage.artifact()
    stage.artifact("copy", "team-b", repository="other/copy")
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest, token="first")[0] == "ABORTED")
    assert stage.publish(digest, "u2", namespace="team-b", name="copy", token="b")[0] == "ABORTED"
    assert stage.publish(digest, token="rotated")[0] == "ABORTED"
    eventually(lambda: stage.hub.fetching == 1, "the download")
    stage.hub.gate.set()
    stage.mounted(digest)
    assert [repository for repository, _, _ in stage.hub.listed] == ["org/name"]
    assert set(stage.hub.tokens) == {Token("rotated")}


def test_a_refused_source_gives_way_to_the_next_artifact(stage: Stage) -> None:
    """Tokens never cross: each source is listed with its own."""
    digest = stage.artifact()
    stage.artifact("copy", "team-b", repository="other/copy")
    entered = stage.hub.gate
    seen: list[Token | None] = []

    def judge(token: Token | None) -> HubFault | None:
        seen.append(token)
        if token == Token("bad"):
            entered.wait(20)
            return HubFault(Verdict.ACCESS_DENIED, "HTTP 403")
        return None

    stage.hub.fault_of_token = judge
    entered.clear()
    stage.start()
    eventually(lambda: stage.publish(digest, token="bad")[0] == "ABORTED")
    assert (
        stage.publish(digest, "u2", namespace="team-b", name="copy", token="good")[0] == "ABORTED"
    )
    entered.set()
    stage.mounted(digest, "u2", namespace="team-b", name="copy")
    assert seen == [Token("bad"), Token("good")]
    assert [repository for repository, _, _ in stage.hub.listed] == ["org/name", "other/copy"]


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict.ACCESS_DENIED, "AccessDenied"),
        (Verdict.SOURCE_UNAVAILABLE, "SourceUnavailable"),
        (Verdict.REVISION_NOT_FOUND, "IntegrityMismatch"),
        (Verdict.INVALID_MANIFEST, "IntegrityMismatch"),
    ],
)
def test_a_listing_that_fails_has_its_reason(stage: Stage, verdict: Verdict, reason: str) -> None:
    """In the answer and in the status, with the tenant-free detail."""
    digest = stage.artifact()
    stage.hub.listing_fault = HubFault(verdict, "HTTP 418", detail="https://hub/org/name")
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    message = stage.publish(digest)[1]
    assert f"failed, {reason}: " in message
    assert "HTTP 418" in message
    eventually(lambda: stage.model(digest).get("state") == "Failed")
    entry = stage.model(digest)
    assert (entry["reason"], "org/name" in str(stage.status())) == (reason, False)


def test_a_listing_of_other_files_downloads_nothing(stage: Stage) -> None:
    """The digest binds the listing before the first file is asked for."""
    digest = stage.artifact()
    stage.hub.repositories["org/name"]["config.json"] = b"changed"
    stage.start()
    eventually(lambda: "IntegrityMismatch" in stage.publish(digest)[1], "the mismatch")
    assert not stage.hub.fetched


def test_an_anchored_artifact_never_asks_the_hub(stage: Stage) -> None:
    """Without peers no node holds it; the message names the digest in full."""
    digest = stage.artifact(revision="")
    stage.start()
    eventually(lambda: "SourceUnavailable" in stage.publish(digest)[1], "the failure")
    assert digest in stage.publish(digest)[1]
    assert not stage.hub.listed


def test_backoff_doubles_survives_a_restart_and_ends_with_a_success(stage: Stage) -> None:
    """Until the retry time nothing is asked of the hub."""
    digest = stage.artifact()
    stage.hub.fetch_fault = AttemptFault(Reason.SOURCE_UNAVAILABLE, "HTTP 503")
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    listed = len(stage.hub.listed)
    stage.clock.advance(59)
    stage.stop()
    stage.start()
    assert stage.publish(digest)[0] == "UNAVAILABLE"
    assert len(stage.hub.listed) == listed
    stage.clock.advance(1)
    eventually(lambda: len(stage.hub.listed) == listed + 1 or not stage.publish(digest))
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the second failure")
    stage.clock.advance(119)
    assert stage.publish(digest)[0] == "UNAVAILABLE"
    stage.hub.fetch_fault = None
    stage.clock.advance(1)
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("state") == "Ready")
    assert "retryTime" not in stage.model(digest)


def test_an_attempt_nobody_asks_for_is_canceled_and_resumes_at_once(stage: Stage) -> None:
    """After five minutes; the partial stays, and nothing is listed as failed."""
    digest = stage.artifact()
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1, "the download")
    stage.clock.advance(299)
    assert stage.publish(digest)[0] == "ABORTED"
    stage.clock.advance(299)
    assert stage.hub.fetching == 1
    stage.clock.advance(2)
    eventually(lambda: stage.hub.fetching == 0, "the cancellation")
    name = 'gpustack_model_manager_materializations_total{result="Canceled"}'
    eventually(lambda: stage.metric(name) == 1)
    eventually(lambda: not stage.model(digest), "an empty status")
    assert (stage.cache / "partial" / digest.removeprefix("sha256:")).is_dir()
    stage.hub.gate.set()
    stage.mounted(digest)


def test_a_mount_published_before_stays_mountable_under_an_invalid_spec(stage: Stage) -> None:
    """No download starts, and the reason is said in the answer and in the status."""
    digest = stage.artifact()
    other = stage.artifact("other", repository="org/other", files={"a": b"other"})
    stage.start()
    stage.mounted(digest)
    stage.configure(generation=2, download={"concurrency": 0})
    eventually(lambda: stage.condition("Ready").get("reason") == "InvalidConfiguration")
    assert stage.status()["observedGeneration"] == 2
    assert stage.publish(digest, "u2") == ("OK", "")
    code, message = stage.publish(other, "u3", name="other")
    assert (code, "InvalidRequest" in message) == ("UNAVAILABLE", True)
    eventually(lambda: stage.model(other).get("reason") == "InvalidRequest")
    stage.configure(generation=3)
    eventually(lambda: stage.condition("Ready").get("reason") == "Serving")
    stage.mounted(other, "u3", name="other")


def test_manifest_helper_matches_the_plugin(stage: Stage) -> None:
    """The stage's digests are the product's own."""
    assert stage.artifact() == manifest_of(FILES).digest
