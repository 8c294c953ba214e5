"""node-store#references-restart-and-collection: what a mount holds, across restarts too."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace

import pytest

from spec_tests.scenario import World
from spec_tests.worlds import TINY


def referenced(world: World, digest: str) -> bool:
    """Say what the node's object says about a digest's references now."""
    return world.node.entry(digest).get("referenced", False) is True


@pytest.mark.rule("NS-REF-01", "NS-RES-07")
def test_referenced_follows_mount_and_unmount(world: World) -> None:
    """An entry is referenced from the first mount to the last unmount, and not before or after."""
    artifact = world.artifact()
    first = world.node.mount(artifact, pod="first")
    second = world.node.mount(artifact, pod="second")
    world.until(lambda: referenced(world, artifact.digest), "the mounted digest is referenced")
    assert world.node.unpublish(first).ok
    world.advance(1)
    assert referenced(world, artifact.digest), "one Pod still mounts it"
    assert world.node.unpublish(second).ok
    world.until(lambda: not referenced(world, artifact.digest), "nothing mounts it any more")
    assert world.node.entry(artifact.digest)["state"] == "Ready", "the tree itself stays"


@pytest.mark.rule("NS-REF-03")
def test_a_mount_that_fails_leaves_nothing(world: World) -> None:
    """A bind that fails answers an error, with nothing mounted and nothing referenced."""
    artifact = world.artifact()
    world.node.unpublish(world.node.mount(artifact))
    world.node.mounts.fail_next(errno.EIO)
    call = world.node.call(artifact, pod="unlucky")
    assert not world.node.publish(call).ok
    assert world.node.mounted(call) == []
    world.until(lambda: not referenced(world, artifact.digest), "nothing is referenced")
    assert world.node.publish(call).ok, "the next call finds nothing in its way"


@pytest.mark.rule("NS-REF-03")
def test_a_reference_that_cannot_be_recorded_mounts_nothing(world: World) -> None:
    """A disk that makes no record durable makes the mount fail, with nothing bound."""
    artifact = world.artifact()
    world.node.unpublish(world.node.mount(artifact))
    world.node.disk.fail("sync_file", errno.EIO, below=world.node.cache_root)
    world.node.disk.fail("sync_directory", errno.EIO, below=world.node.cache_root)
    call = world.node.call(artifact, pod="unrecorded")
    answer = world.node.publish(call)
    assert not answer.ok, answer
    assert world.node.mounted(call) == []
    world.node.disk.heal()
    assert world.node.publish(call).ok


@pytest.mark.rule("NS-REF-04")
def test_unmounting_what_was_never_mounted_succeeds(world: World) -> None:
    """A target nobody mounted is unmounted with success, again and again."""
    call = world.node.call(world.artifact(), pod="never")
    for _ in range(3):
        assert world.node.unpublish(call).ok
    call.target.mkdir(parents=True)
    assert world.node.unpublish(call).ok, "a directory that is no mount"
    assert world.node.unpublish(call).ok


@pytest.mark.rule("NS-REF-04")
def test_unmounting_needs_the_target_alone(world: World) -> None:
    """A volume id that was never published unmounts the target all the same, and repeatedly."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    stranger = replace(call, volume_id="csi-" + "0" * 64)
    for _ in range(2):
        assert world.node.unpublish(stranger).ok
    assert world.node.mounted(call) == []
    world.until(lambda: not referenced(world, artifact.digest), "the reference went with it")


@pytest.mark.rule("NS-REF-04")
def test_unmounting_survives_a_removed_artifact_and_a_restart(world: World) -> None:
    """Nothing but the path is asked for: not the artifact, and not the process that mounted it."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    world.delete(artifact)
    world.node.restart_plugin()
    assert world.node.unpublish(call).ok
    assert world.node.mounted(call) == []


@pytest.mark.rule("NS-REF-05", "NS-RES-15")
def test_references_are_rebuilt_from_the_mounts(world: World) -> None:
    """A new plugin finds what is mounted, and what is not, and rewrites a status that lies."""
    kept, dropped = world.artifact("kept"), world.artifact("dropped", namespace="team-b")
    held = world.node.mount(kept)
    world.node.unpublish(world.node.mount(dropped, pod="gone"))
    world.node.stop_plugin()
    store = world.node.store()
    store["status"]["models"] = [
        {"digest": kept.digest, "state": "Failed", "reason": "AccessDenied", "message": "a lie"}
    ]
    store["status"]["capacity"]["storedBytes"] = 1
    world.api.update_status(store)
    world.node.start_plugin()
    world.until(
        lambda: referenced(world, kept.digest), "the live mount is found", within_seconds=30
    )
    entry = world.node.entry(kept.digest)
    assert (entry["state"], entry.get("reason", "")) == ("Ready", "")
    assert world.node.store()["status"]["capacity"]["storedBytes"] >= TINY.size_bytes
    assert world.node.read_all(held) == TINY.contents()


@pytest.mark.rule("NS-REF-05")
def test_a_mount_that_went_while_nobody_looked_is_no_reference(world: World) -> None:
    """What was unmounted while the plugin was away is not referenced when it comes back."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    world.node.stop_plugin()
    world.node.mounts.unmount(call.target)
    shutil.rmtree(call.target.parent)
    world.node.start_plugin()
    world.until(
        lambda: world.node.entry(artifact.digest) and not referenced(world, artifact.digest),
        "the reference is gone",
        within_seconds=30,
    )


@pytest.mark.rule("NS-REF-07")
def test_a_mounted_pod_reads_on_through_a_restart(world: World) -> None:
    """The mount is there, whole and readable, while the plugin is away and after it came back."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    world.node.stop_plugin()
    assert world.node.read_all(call) == TINY.contents()
    world.node.start_plugin()
    world.advance(30)
    assert world.node.read_all(call) == TINY.contents()
    assert len(world.node.mounted(call)) == 1
    assert world.node.publish(call).ok
    assert len(world.node.mounted(call)) == 1, "publishing again stacks nothing"


@pytest.mark.rule("NS-REF-07")
def test_a_mounted_pod_reads_on_when_the_plugin_was_killed(world: World) -> None:
    """A plugin that dies without a word leaves the mount as it is."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    world.node.kill_plugin()
    assert world.node.read_all(call) == TINY.contents()
    world.node.start_plugin()
    world.advance(30)
    assert world.node.read_all(call) == TINY.contents()
