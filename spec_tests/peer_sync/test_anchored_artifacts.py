"""node-store#download-and-verification: an artifact that resolved to its own anchor."""

from __future__ import annotations

from typing import Any

import pytest

from spec_tests.conftest import Builder
from spec_tests.peers import Impostor, free_port
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY

pytestmark = pytest.mark.feature("peer-sync")


def anchored(world: World) -> Artifact:
    """Return an artifact whose digest is expected and was never resolved at the hub."""
    artifact = world.artifact("anchored")
    stored = world.stored(artifact)
    resolved = stored["status"]["resolved"]
    stored["status"]["resolved"] = {
        "manifestDigest": resolved["manifestDigest"],
        "digestSource": "Expected",
        "resolvedTime": resolved["resolvedTime"],
    }
    world.api.update_status(stored)
    world.advance(0)
    return artifact


@pytest.mark.rule("NS-DL-05")
def test_an_anchored_tree_comes_from_a_peer_alone(worlds: Builder) -> None:
    """Listing and files are the peer's, and the hub hears nothing of it."""
    world = worlds(nodes=("node-a", "node-b"), peer_port=free_port())
    first, second = world.nodes.values()
    first.mount(world.artifact("resolved", namespace="team-b"))
    artifact = anchored(world)
    world.until(
        lambda: first.entry(artifact.digest).get("state") == "Ready", "it is told", within_seconds=9
    )
    asked = len(world.hub_requests())
    call = second.mount(artifact)
    assert second.read_all(call) == TINY.contents()
    assert len(world.hub_requests()) == asked


@pytest.mark.rule("NS-DL-05")
def test_a_forged_listing_is_not_trusted(worlds: Builder) -> None:
    """A peer that lists other files under the digest is passed over for one that does not."""
    world = worlds(peer_port=free_port())
    artifact = anchored(world)
    asked = len(world.hub_requests())
    with (
        Impostor(world, "liar-1", TINY, listing=_other_files),
        Impostor(world, "liar-2", TINY, listing=_other_files),
        Impostor(world, "honest", TINY) as honest,
    ):
        call = world.node.mount(artifact)
        assert honest.sent_bytes == TINY.size_bytes
    assert world.node.read_all(call) == TINY.contents()
    assert len(world.hub_requests()) == asked


@pytest.mark.rule("NS-DL-05")
@pytest.mark.parametrize("lied", [False, True], ids=["nobody-has-it", "a-liar-has-it"])
def test_without_a_true_peer_it_fails_and_the_hub_is_not_asked(
    worlds: Builder,
    lied: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """SourceUnavailable, with the digest in the message."""
    world = worlds(peer_port=free_port())
    artifact = anchored(world)
    asked = len(world.hub_requests())
    if lied:
        with Impostor(world, "liar", TINY, listing=_other_files):
            _expect_failure(world, artifact)
    else:
        _expect_failure(world, artifact)
    assert len(world.hub_requests()) == asked


@pytest.mark.rule("NS-DL-05")
def test_an_anchored_tree_cannot_come_where_peer_sync_is_off(worlds: Builder) -> None:
    """There is nobody else to ask."""
    world = worlds()
    artifact = anchored(world)
    asked = len(world.hub_requests())
    _expect_failure(world, artifact)
    assert len(world.hub_requests()) == asked


def _expect_failure(world: World, artifact: Artifact) -> None:
    world.node.publish(world.node.call(artifact))
    entry = world.until(
        lambda: _failed(world, artifact.digest), "the failure is told", within_seconds=60
    )
    assert entry["reason"] == "SourceUnavailable"
    assert artifact.digest in entry["message"]
    answer = world.node.publish(world.node.call(artifact))
    assert answer.code == "UNAVAILABLE"


def _failed(world: World, digest: str) -> dict[str, Any]:
    entry = world.node.entry(digest)
    return entry if entry.get("state") == "Failed" else {}


def _other_files(listing: dict[str, object]) -> dict[str, object]:
    other = {"path": "evil.bin", "size": 1, "digest": "sha256:" + "0" * 64}
    return {**listing, "entries": [other]}
