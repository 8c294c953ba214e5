"""node-store#download-and-verification: nothing unverified or unfinished is ever mounted."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, Final

import pytest

from emulator.hubs.broken_bodies import Flip, Stall
from emulator.hubs.wrong_answers import WrongRange
from spec_tests.nodes import lose
from spec_tests.oracle import File, Tree, large
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY

MODEL: Final = "model.safetensors"


def failed(world: World, artifact: Artifact) -> dict[str, Any]:
    """Wait until the attempt for an artifact's digest has failed, and return its entry."""
    return world.until(
        lambda: (
            entry if (entry := world.node.entry(artifact.digest)).get("state") == "Failed" else None
        ),
        "the attempt has failed",
        within_seconds=60,
    )


def holding(root: Path, content: bytes) -> list[Path]:
    """Return the files below a folder that hold some content, whatever they are called."""
    return [path for path in root.rglob("*") if path.is_file() and content in path.read_bytes()]


SPOILT: Final = {
    "a flipped byte of an LFS file": (MODEL, Flip(offset=123_456)),
    "a flipped byte of a git file": ("tokenizer/vocab.txt", Flip(offset=77)),
    "another size than was listed": (MODEL, WrongRange(total_by=1)),
}


@pytest.mark.rule("NS-DL-16", "NS-FR-04")
@pytest.mark.parametrize("name", SPOILT)
def test_a_file_that_does_not_match_is_discarded(world: World, name: str) -> None:
    """A wrong hash or size fails the attempt as IntegrityMismatch, and the file is not kept."""
    path, fault = SPOILT[name]
    world.hub.faults.add(fault, path=path)
    artifact = world.artifact()
    call = world.node.call(artifact)
    world.node.publish(call)
    assert failed(world, artifact)["reason"] == "IntegrityMismatch"
    answer = world.node.publish(call)
    assert answer.code == "UNAVAILABLE"
    assert "IntegrityMismatch" in answer.message
    content = TINY.contents()[path]
    assert holding(world.node.cache_root, content[-40:]) == []
    assert world.node.mounted(call) == []


@pytest.mark.rule("NS-FR-04")
def test_a_large_file_that_does_not_match_is_discarded(world: World) -> None:
    """A file that was written while it arrived goes from the disk when its hash is wrong."""
    content = large(10, seed=9)
    tree = Tree((File(MODEL, content, lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/large", tree))
    world.hub.faults.add(Flip(offset=9 * 2**20), path=MODEL)
    world.node.publish(world.node.call(artifact))
    assert failed(world, artifact)["reason"] == "IntegrityMismatch"
    assert holding(world.node.cache_root, content[1000:1040]) == []


@pytest.mark.rule("NS-DL-16")
def test_a_mended_hub_delivers_after_the_backoff(world: World) -> None:
    """What was refused once is fetched again, verified and mounted."""
    rule = world.hub.faults.add(Flip(offset=1000), path=MODEL)
    artifact = world.artifact()
    call = world.node.call(artifact)
    world.node.publish(call)
    failed(world, artifact)
    world.hub.faults.remove(rule)
    world.advance(61)
    world.node.mount(artifact)
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-DL-17")
def test_nothing_is_read_back_to_verify(world: World) -> None:
    """A byte that changes on disk after it arrived goes unnoticed, so nobody looked at it again.

    This is no promise of the contract. It is the one way to see from outside that the hash was
    taken of what arrived, and not of what was read back.
    """
    content = large(200, seed=4)
    tree = Tree((File(MODEL, content, lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/large", tree))
    world.hub.faults.add(Stall(offset=150 * 2**20), path=MODEL)
    call = world.node.call(artifact)
    world.node.publish(call)
    world.until(lambda: world.hub.faults.gate.waiting, "the download is held up", within_seconds=5)
    world.advance(1)
    mark = 10 * 2**20
    (partial,) = holding(world.node.cache_root, content[mark : mark + 4096])
    with partial.open("r+b") as file:
        file.seek(mark)
        file.write(bytes([content[mark] ^ 0xFF]))
    world.hub.faults.clear()
    world.node.mount(artifact)
    assert world.node.read_all(call)[MODEL][mark] == content[mark] ^ 0xFF


@pytest.mark.rule("NS-DL-19")
def test_all_is_synced_before_the_rename(world: World) -> None:
    """Every file, and a marker naming the digest, is made durable under the unpublished name."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    published = world.node.tree(call)
    before = [
        sync.path
        for sync in world.node.disk.syncs
        if sync.operation == "sync_file" and not sync.path.is_relative_to(published)
    ]
    for path in TINY.contents():
        assert any(synced.as_posix().endswith(f"/{path}") for synced in before), f"{path} unsynced"
    # A marker may be written under another name first; it keeps the beginning of its own.
    beside = tuple(path.name for path in world.node.markers(call, artifact))
    assert [path for path in before if path.name.startswith(beside)], "the marker is not durable"
    folders = [s.path for s in world.node.disk.syncs if s.operation == "sync_directory"]
    assert any(published.is_relative_to(folder) for folder in folders), "the rename is not durable"


@pytest.mark.rule("NS-DL-19")
@pytest.mark.parametrize("operation", ["sync_file", "sync_directory"])
def test_a_sync_that_fails_publishes_nothing(world: World, operation: str) -> None:
    """Whichever sync fails, the tree is not mounted; when the disk works again it is."""
    world.hub.faults.add(Stall(offset=1000), path=MODEL)
    artifact = world.artifact()
    call = world.node.call(artifact)
    world.node.publish(call)
    world.until(lambda: world.hub.faults.gate.waiting, "the download is held up", within_seconds=5)
    world.node.disk.fail(operation, errno.EIO, below=world.node.cache_root, times=1)
    world.hub.faults.clear()
    failed(world, artifact)
    assert not world.node.publish(call).ok
    assert world.node.mounted(call) == []
    world.node.disk.heal()
    world.advance(61)
    world.node.mount(artifact)
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-DL-19")
@pytest.mark.parametrize("offset", [0, 1, 150_000, 299_999])
def test_a_killed_plugin_leaves_nothing_mountable(world: World, offset: int) -> None:
    """A plugin that dies in the middle publishes nothing; its successor finishes the work."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=offset), path=MODEL)
    call = world.node.call(artifact)
    world.node.publish(call)
    world.until(lambda: world.hub.faults.gate.waiting, "the download is held up", within_seconds=5)
    world.node.kill_plugin()
    world.node.start_plugin()
    world.advance(5)
    assert world.node.entry(artifact.digest).get("state") != "Ready"
    assert not world.node.publish(call).ok
    world.hub.faults.clear()
    world.node.mount(artifact)
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-DL-20")
def test_a_tree_without_its_marker_is_not_mounted(world: World) -> None:
    """Take the marker from a published tree, and the node no longer holds it."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    found = world.node.markers(call, artifact)
    assert found, "no file beside the tree names the digest"
    assert world.node.unpublish(call).ok
    world.node.stop_plugin()
    lose(found)
    asked = len(world.hub_requests())
    world.node.start_plugin()
    world.advance(5)
    assert world.node.entry(artifact.digest).get("state") != "Ready"
    answer = world.node.publish(call)
    assert answer.code == "ABORTED", answer
    world.node.mount(artifact)
    assert world.node.read_all(call) == TINY.contents()
    assert len(world.hub_requests()) > asked
