"""node-store#download-and-verification: what one attempt asks for, and answers meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import pytest

from emulator.hubs.broken_bodies import Stall
from spec_tests import oracle
from spec_tests.oracle import File, Tree, large
from spec_tests.scenario import World
from spec_tests.worlds import TINY

MODEL: Final = "model.safetensors"
LARGE: Final = 200
"""Mebibytes of a file that nobody would fetch in one request."""


@pytest.mark.rule("NS-DL-01", "NS-FR-07")
def test_the_first_mount_starts_one_attempt_and_says_how_far_it_is(world: World) -> None:
    """The first call answers Aborted with the digest, and later ones show figures."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=200_000), path=MODEL)
    call = world.node.call(artifact)
    first = world.node.publish(call)
    assert first.code == "ABORTED", first
    said = oracle.PROGRESS.search(first.message)
    assert said, first.message
    assert artifact.digest.startswith(said["digest"])
    world.until(lambda: world.hub.faults.gate.waiting, "the download is held up")
    world.advance(1)
    later = world.node.publish(call)
    figures = oracle.PROGRESS.search(later.message)
    assert later.code == "ABORTED"
    assert figures is not None
    assert oracle.reads_as(figures["total"], TINY.size_bytes), later.message
    assert not oracle.reads_as(figures["received"], 0), later.message


@pytest.mark.rule("NS-DL-02")
def test_the_first_call_after_publication_mounts(world: World) -> None:
    """Once the tree is published the next call mounts it, whole."""
    artifact = world.artifact()
    call = world.node.call(artifact)
    assert world.node.publish(call).code == "ABORTED"
    world.until(
        lambda: world.node.entry(artifact.digest).get("state") == "Ready",
        "the tree is published",
        within_seconds=30,
    )
    assert world.node.publish(call).ok
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-DL-02")
def test_a_published_tree_mounts_at_once(world: World) -> None:
    """A second Pod on the node mounts with its first call, and the hub hears nothing of it."""
    artifact = world.artifact()
    world.node.mount(artifact)
    asked = len(world.hub_requests())
    call = world.node.call(artifact, pod="second")
    assert world.node.publish(call).ok
    assert world.node.read_all(call) == TINY.contents()
    assert len(world.hub_requests()) == asked


@pytest.mark.rule("NS-DL-03")
def test_the_listing_is_asked_at_the_commit_with_the_mounts_token(world: World) -> None:
    """The tree is listed at the resolved commit, also after the branch moved."""
    repository = world.repository("acme/private", private=True)
    artifact = world.artifact(repository=repository)
    repository.hub.commit({"config.json": b"moved on"})
    call = world.node.mount(artifact)
    listings = world.hub_requests("/api/models/acme/private/tree/*")
    assert listings
    for entry in listings:
        assert entry.path.rpartition("/")[2] == repository.commit
        assert entry.headers.get("Authorization") == f"Bearer {repository.token}"
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-DL-03")
def test_the_listing_is_filtered_by_the_patterns(world: World) -> None:
    """Only the files that the artifact's patterns keep are downloaded and mounted."""
    artifact = world.artifact(
        spec={"allowPatterns": ["*.json", "tokenizer/"], "ignorePatterns": ["README*"]},
        keep=("config.json", "tokenizer/vocab.txt"),
    )
    call = world.node.mount(artifact)
    assert world.node.read_all(call).keys() == {"config.json", "tokenizer/vocab.txt"}
    assert world.hub_requests(f"*/{MODEL}") == []


@pytest.mark.rule("NS-DL-04", "NS-FR-04")
def test_a_listing_of_another_digest_downloads_nothing(world: World) -> None:
    """A listing that is not what the artifact resolved to fails before any file is asked for."""
    artifact = world.artifact(digest="sha256:" + "5" * 64)
    call = world.node.call(artifact)
    assert world.node.publish(call).code == "ABORTED"
    entry = world.until(
        lambda: (
            world.node.entry(artifact.digest).get("reason") and world.node.entry(artifact.digest)
        ),
        "the attempt has failed",
        within_seconds=30,
    )
    assert (entry["state"], entry["reason"]) == ("Failed", "IntegrityMismatch")
    answer = world.node.publish(call)
    assert answer.code == "UNAVAILABLE"
    assert "IntegrityMismatch" in answer.message
    assert world.hub_requests("*/resolve/*") == []


NAMES: Final = (
    "with space.txt",
    "hash#tag.txt",
    "question?mark.txt",
    "percent%41.txt",
    "plus+sign.txt",
    "at@colon:semi;.txt",
    "quote'\"s.txt",
    "emoji-🦜.txt",
    "nfc-é.txt",
    "nfd-é.txt",
    "dots..txt",
    "deep/er/and#er/x.txt",
)


@pytest.mark.rule("NS-DL-10")
def test_every_path_is_escaped_once(world: World) -> None:
    """Any name that a manifest allows is asked for and arrives under that very name."""
    tree = Tree(tuple(File(name, name.encode(), lfs=False) for name in NAMES))
    repository = world.repository("acme/odd-names", tree)
    call = world.node.mount(world.artifact(repository=repository))
    assert world.node.read_all(call) == tree.contents()
    base = f"/acme/odd-names/resolve/{repository.commit}/"
    asked = {entry.path for entry in world.hub_requests(base + "*", host="hub")}
    assert asked == {base + name for name in NAMES}
    assert all(entry.query == "" for entry in world.hub_requests(base + "*", host="hub"))


@pytest.mark.rule("NS-DL-10")
def test_redirects_are_followed(world: World) -> None:
    """A large file comes from the host that the hub redirects to."""
    world.node.mount(world.artifact())
    assert world.hub_requests(f"*/resolve/*/{MODEL}", host="hub")
    assert sum(entry.sent_bytes for entry in world.hub_requests(host="cdn")) >= 300_000


@pytest.mark.rule("NS-DL-14")
def test_a_large_file_comes_as_parallel_ranges(world: World) -> None:
    """Several ranges of one file are under way at once, and together they are the file once."""
    size = LARGE * 2**20
    tree = Tree((File(MODEL, large(LARGE, seed=3), lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/large", tree))
    world.hub.faults.add(Stall(offset=size // 2), path=MODEL, times=1)
    call = world.node.call(artifact)
    assert world.node.publish(call).code == "ABORTED"
    world.until(lambda: world.hub.faults.gate.waiting, "one range is held up", within_seconds=5)
    world.until(lambda: len(_ranges(world)) > 1, "others are asked for meanwhile")
    world.hub.faults.release()
    world.node.mount(artifact)
    spans = sorted(_ranges(world))
    assert spans[0][0] == 0
    assert spans[-1][1] == size - 1
    for (_, last), (first, _) in pairwise(spans):
        assert first == last + 1, "ranges neither overlap nor leave a gap"
    assert world.hub.requests.peak(host="cdn") > 1


def _ranges(world: World) -> list[tuple[int, int]]:
    found = []
    for entry in world.hub_requests(host="cdn"):
        first, _, last = entry.range.removeprefix("bytes=").partition("-")
        found.append((int(first), int(last)))
    return found


@pytest.mark.rule("NS-DL-21")
def test_concurrent_mounts_share_one_attempt(world: World) -> None:
    """Eight Pods that ask at once get one download: every file is asked for once."""
    artifact = world.artifact()
    calls = [world.node.call(artifact, pod=f"pod-{number}") for number in range(8)]
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(world.node.publish, calls))
    assert {answer.code for answer in answers} <= {"ABORTED", "OK"}
    for number in range(8):
        world.node.mount(artifact, pod=f"pod-{number}")
    assert world.hub.requests.sent_bytes(f"*{MODEL}*", host="cdn") == 300_000
    for path in ("config.json", "README.md", "tokenizer/vocab.txt"):
        assert len(world.hub_requests(f"*/resolve/*/{path}")) == 1, path
    assert len(world.hub_requests("/api/models/*/tree/*")) == 1


@pytest.mark.rule("NS-DL-21")
def test_two_namespaces_share_the_bytes(world: World) -> None:
    """Two tenants' artifacts of one digest, asked for at once, are one download on the node."""
    first = world.artifact(namespace="team-a")
    second = world.artifact(namespace="team-b")
    assert first.digest == second.digest
    world.hub.faults.add(Stall(offset=200_000), path=MODEL, times=1)
    world.node.publish(world.node.call(first))
    world.until(lambda: world.hub.faults.gate.waiting, "the download hangs", within_seconds=5)
    assert world.node.publish(world.node.call(second)).code == "ABORTED"
    world.hub.faults.release()
    world.node.mount(first)
    world.node.mount(second)
    assert world.hub.requests.sent_bytes(f"*{MODEL}*", host="cdn") == 300_000
    for path in ("config.json", "README.md", "tokenizer/vocab.txt"):
        assert len(world.hub_requests(f"*/resolve/*/{path}")) == 1, path
