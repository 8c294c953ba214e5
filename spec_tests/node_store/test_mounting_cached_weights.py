"""node-store#mounting-cached-weights: the volume as a Pod sees it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace

import pytest

from spec_tests import oracle
from spec_tests.scenario import World
from spec_tests.worlds import TINY

Worlds = Callable[..., World]


@pytest.mark.rule("NS-MNT-03", "NS-AUT-12")
def test_a_hand_written_pod_mounts_under_the_same_rules(world: World) -> None:
    """A Pod that anybody wrote gets the files, or the refusal that any other Pod gets."""
    artifact = world.artifact(namespace="team-a")
    pod = world.pod(artifact)
    pod.wait_until_running()
    for path, content in TINY.contents().items():
        assert world.node.read_pod(pod, path) == content
    stranger = world.pod(artifact, name="stranger", namespace="team-b")
    world.advance(30)
    assert stranger.phase() == "Pending"
    assert stranger.failed_mounts()


@pytest.mark.rule("NS-MNT-03", "NS-OWN-01", "AR-HF-01", "NS-DL-02")
def test_the_whole_way_from_an_artifact_to_a_file(worlds: Worlds) -> None:
    """With worker and plugin: resolved, configured, downloaded once, mounted on two nodes."""
    world = worlds(nodes=("node-a", "node-b"), worker=True)
    artifact = world.artifact()
    first = world.pod(artifact, name="first")
    first.wait_until_running()
    sent = world.hub.requests.sent_bytes()
    second = world.pod(artifact, name="second")
    second.wait_until_running()
    assert world.hub.requests.sent_bytes() == sent, "the second Pod on a node costs the hub nothing"
    other = world.pod(artifact, name="other", node=world.nodes["node-b"])
    other.wait_until_running()
    for pod, node in ((first, "node-a"), (second, "node-a"), (other, "node-b")):
        content = world.nodes[node].read_pod(pod, "model.safetensors")
        assert content == TINY.contents()["model.safetensors"]
    for holder in world.nodes.values():
        assert holder.entry(artifact.digest)["state"] == "Ready"
        assert holder.entry(artifact.digest)["referenced"] is True


@pytest.mark.rule("NS-MNT-03")
def test_a_deleted_pod_leaves_nothing_mounted(world: World) -> None:
    """kubelet unmounts a deleted Pod's volume, and the Pod goes."""
    pod = world.pod(world.artifact())
    pod.wait_until_running()
    assert world.node.mounts.seen_at(pod.target)
    pod.delete()
    world.until(pod.is_gone, "the Pod is gone", within_seconds=120)
    assert world.node.mounts.seen_at(pod.target) is None
    assert not pod.target.exists()


@pytest.mark.rule("NS-MNT-04")
def test_the_driver_object_says_how_it_mounts(world: World) -> None:
    """attachRequired false, podInfoOnMount true, Ephemeral, and fsGroupPolicy None."""
    spec = world.api.get("storage.k8s.io/v1", "CSIDriver", oracle.DRIVER)["spec"]
    assert spec["attachRequired"] is False
    assert spec["podInfoOnMount"] is True
    assert "Ephemeral" in spec["volumeLifecycleModes"]
    assert spec["fsGroupPolicy"] == "None"


@pytest.mark.rule("NS-MNT-05")
def test_the_tree_is_read_only_and_anybodys_to_read(world: World) -> None:
    """The mount is read-only; files are readable and folders passable to all; nobody may write."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    (mount,) = world.node.mounted(call)
    assert mount.read_only
    root = world.node.tree(call)
    for path in (root, *root.rglob("*")):
        facts = path.stat()
        wanted = 0o555 if path.is_dir() else 0o444
        assert stat.S_IMODE(facts.st_mode) & wanted == wanted, path
        assert not facts.st_mode & 0o022, f"{path} may be written by others"
        assert facts.st_uid == os.geteuid(), "the plugin's ownership is kept"


@pytest.mark.rule("NS-MNT-05")
def test_the_mount_is_read_only_whatever_is_asked(world: World) -> None:
    """A volume that does not ask for readOnly is mounted read-only all the same."""
    artifact = world.artifact()
    world.node.mount(artifact, pod="first")
    call = world.node.call(artifact, pod="second")
    assert world.node.publish(replace(call, read_only=False)).ok
    (mount,) = world.node.mounted(call)
    assert mount.read_only


@pytest.mark.rule("NS-MNT-05")
@pytest.mark.needs("kernel-mounts")
def test_the_kernel_refuses_to_write(worlds: Worlds) -> None:
    """Through a real bind mount, root itself can read every file and write none."""
    world = worlds(kernel_mounts=True)
    artifact = world.artifact()
    call = world.node.mount(artifact)
    flags = os.statvfs(call.target).f_flag
    assert flags & os.ST_RDONLY
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    for path, content in TINY.contents().items():
        assert (call.target / path).read_bytes() == content
        with pytest.raises(OSError, match="Read-only"), (call.target / path).open("ab"):
            pass
    with pytest.raises(OSError, match="Read-only"):
        (call.target / "new").touch()
    assert world.node.unpublish(call).ok
    assert not call.target.exists()
