"""artifact#the-manifest-digest: the same files have the same digest wherever they live."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import pytest

from emulator.hubs.wrong_answers import Rewrite
from spec_tests.deciding import healthy
from spec_tests.model_scope import ModelScope
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.scenario import World
from spec_tests.worlds import TINY

Worlds = Callable[..., World]

QWEN: Final = """\
.gitattributes 1519 gitsha1:a6344aac8c09253b3b630fb776ae94478aa0275b
LICENSE 11343 gitsha1:6634c8cc3133b3848ec74b9f275acaaa1ea618ab
README.md 4917 gitsha1:4b8373851d093eb9f3017443f27781c6971eff24
config.json 659 gitsha1:0dbb161213629a23f0fc00ef286e6b1e366d180f
generation_config.json 242 gitsha1:dfc11073787daf1b0f9c0f1499487ab5f4c93738
merges.txt 1671839 gitsha1:20024bfe7c83998e9aeaf98a0cd6a2ce6306c2f0
model.safetensors 988097824 sha256:fdf756fa7fcbe7404d5c60e26bff1a0c8b8aa1f72ced49e7dd0210fe288fb7fe
tokenizer.json 7031645 gitsha1:443909a61d429dff23010e5bddd28ff530edda00
tokenizer_config.json 7305 gitsha1:07bfe0640cb5a0037f9322287fbfc682806cf672
vocab.json 2776833 gitsha1:4783fe10ac3adce15ac8f358ef5462739852c569
"""
"""Qwen/Qwen2.5-0.5B-Instruct at commit 7ae557604adf67be50417f59c2c2f167def9a775."""
QWEN_DIGEST: Final = "sha256:669ed7b128b6ad1658d735326bd172a33497ecdb8bbd72dd0b23c98b58469448"
QWEN_FILTERED: Final = "sha256:79233f49816c89aac83af752d1701837f4fbeba3248d75c842cc7b279821aeb0"


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and a hub."""
    return worlds(nodes=(), worker=True)


def listing(lines: str) -> list[dict[str, Any]]:
    """Return a tree page of the hub for lines of path, size and digest, in reverse order."""
    entries = []
    for line in lines.splitlines():
        path, size, digest = line.rsplit(" ", 2)
        algorithm, _, value = digest.partition(":")
        entry: dict[str, Any] = {"type": "file", "path": path, "size": int(size), "oid": value}
        if algorithm == "sha256":
            entry["oid"] = hashlib.sha1(value.encode()).hexdigest()  # noqa: S324 - a pointer's id
            entry["lfs"] = {"oid": value, "size": int(size), "pointerSize": 134}
        entries.append(entry)
    return entries[::-1]


@pytest.mark.rule("AR-DIG-01")
def test_the_digest_is_the_canonical_manifests(world: World) -> None:
    """Digest, file count and size are what the oracle works out, for LFS and git files together."""
    artifact = world.artifact()
    resolved = world.resolved(artifact)
    assert resolved["manifestDigest"] == TINY.digest
    assert (resolved["fileCount"], resolved["sizeBytes"]) == (len(TINY.files), TINY.size_bytes)
    assert resolved["digestSource"] == "Hub"


@pytest.mark.rule("AR-DIG-01")
@pytest.mark.parametrize(
    ("spec", "digest", "count", "size"),
    [
        ({}, QWEN_DIGEST, 10, 999604126),
        (
            {"allowPatterns": ["*.json", "*.safetensors"], "ignorePatterns": ["tokenizer*"]},
            QWEN_FILTERED,
            4,
            990875558,
        ),
    ],
    ids=["whole", "filtered"],
)
def test_a_real_repository_has_its_published_digest(
    world: World, spec: dict[str, Any], digest: str, count: int, size: int
) -> None:
    """A real model's listing, in any order, has the digest that other implementations publish."""
    world.hub.faults.add(Rewrite(lambda _: listing(QWEN)), at="tree")
    artifact = world.unresolved("qwen", world.repository("acme/qwen"), spec=spec)
    found = world.until(
        lambda: world.resolved(artifact) or None, "it is resolved", within_seconds=60
    )
    assert (found["manifestDigest"], found["fileCount"], found["sizeBytes"]) == (
        digest,
        count,
        size,
    )


SORTING: Final = Tree(
    tuple(
        File(path, path.encode(), lfs=False)
        for path in (
            "b/x.json",
            "B.json",
            "a.json",
            "b.json",
            "b-x.json",
            "with space.json",
            "é-nfc.json",
            "é-nfd.json",
            "🦜.json",
            "￿.json",
        )
    )
)


@pytest.mark.rule("AR-DIG-01")
def test_paths_sort_by_their_bytes(world: World) -> None:
    """Case, slashes, accents and planes sort by UTF-8 bytes, and nothing is normalised."""
    tree = Tree((*SORTING.files, File("empty", b"", lfs=False)))
    artifact = world.artifact(repository=world.repository("acme/sorting", tree))
    assert world.resolved(artifact)["manifestDigest"] == tree.digest


BAD_PATHS: Final = {
    "absolute": "/etc/passwd",
    "dot-dot": "a/../b",
    "dot": "./a",
    "double slash": "a//b",
    "trailing slash": "a/",
    "empty": "",
    "newline": "a\nb",
    "delete": "a\x7fb",
    "lone surrogate": "a\ud800b",
}


@pytest.mark.rule("AR-DIG-02")
@pytest.mark.parametrize("name", BAD_PATHS)
def test_one_bad_path_fails_the_whole(world: World, name: str) -> None:
    """A path that no tree may hold makes the artifact InvalidManifest, good files or not."""
    bad = {"type": "file", "path": BAD_PATHS[name], "size": 1, "oid": "0" * 40}
    assert resolution(world, lambda entries: [*entries, bad]) == ("False", "InvalidManifest")


def resolution(world: World, change: Callable[[Any], Any]) -> tuple[str, str]:
    """Return how an artifact resolves whose listing says something else."""
    world.hub.faults.add(Rewrite(change), at="tree")
    artifact = world.unresolved("odd", world.usual_repository())
    return world.until(
        lambda: found if (found := world.resolution(artifact))[0] in {"True", "False"} else None,
        "the resolution is decided",
        within_seconds=60,
    )


def digest_of(entry: dict[str, Any], value: str) -> dict[str, Any]:
    """Return a git file's listing entry with another blob id."""
    return entry if "lfs" in entry or entry["type"] != "file" else entry | {"oid": value}


MALFORMED: Final[dict[str, Callable[[Any], Any]]] = {
    "a duplicate": lambda entries: [*entries, entries[-1]],
    "uppercase": lambda entries: [digest_of(entry, "A" * 40) for entry in entries],
    "too short": lambda entries: [digest_of(entry, "a" * 39) for entry in entries],
    "an LFS digest that is none": lambda entries: [
        entry | {"lfs": entry["lfs"] | {"oid": "z" * 64}} if "lfs" in entry else entry
        for entry in entries
    ],
    "an LFS size that differs": lambda entries: [
        entry | {"lfs": entry["lfs"] | {"size": 1}} if "lfs" in entry else entry
        for entry in entries
    ],
    "an unknown type": lambda entries: [entry | {"type": "submodule"} for entry in entries],
}


@pytest.mark.rule("AR-DIG-02")
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_entries_fail_the_whole(world: World, name: str) -> None:
    """Duplicates and malformed digests are never skipped: the artifact is InvalidManifest."""
    assert resolution(world, MALFORMED[name]) == ("False", "InvalidManifest")


@pytest.mark.rule("AR-DIG-03")
def test_the_same_files_have_the_same_digest_anywhere(world: World) -> None:
    """Another repository, another commit and patterns that keep everything change nothing."""
    first = world.artifact("first", namespace="team-a")
    elsewhere = world.repository("somebody/else")
    moved = world.artifact("second", namespace="team-b", repository=elsewhere)
    commit = elsewhere.hub.commit(TINY.contents(), title="the same once more")
    again = world.artifact("third", namespace="team-b", repository=elsewhere)
    kept = world.artifact("fourth", spec={"allowPatterns": ["*"], "ignorePatterns": ["nothing"]})
    digests = {
        world.resolved(artifact)["manifestDigest"] for artifact in (first, moved, again, kept)
    }
    assert digests == {TINY.digest}
    assert world.resolved(again)["revision"] == commit != world.resolved(moved)["revision"]


@pytest.mark.rule("AR-DIG-03")
@pytest.mark.feature("modelscope")
def test_the_same_files_have_the_same_digest_on_either_hub(world: World) -> None:
    """Where both hubs know every file by its SHA-256, both listings make one digest."""
    tree = Tree(tuple(file for file in TINY.files if file.lfs))
    scope = ModelScope(world)
    there = scope.unresolved("there", scope.repository("acme/weights", tree))
    here = world.artifact("here", repository=world.repository("acme/weights", tree))
    healthy(world, there)
    assert world.resolved(there)["manifestDigest"] == tree.digest
    assert world.resolved(here)["manifestDigest"] == tree.digest


@pytest.mark.rule("AR-DIG-03")
def test_one_byte_makes_another_digest(world: World) -> None:
    """A file that differs in one byte, its size the same, is another digest."""
    content = bytearray(TINY.contents()["model.safetensors"])
    content[7] ^= 1
    changed = File("model.safetensors", bytes(content), lfs=True)
    tree = Tree((*(f for f in TINY.files if f.path != changed.path), changed))
    artifact = world.artifact(repository=world.repository("acme/changed", tree))
    assert world.resolved(artifact)["manifestDigest"] == tree.digest != TINY.digest


@pytest.mark.rule("AR-DIG-01")
def test_many_files_on_many_pages_make_one_manifest(world: World) -> None:
    """A listing that the hub cuts into pages is put together again, whatever the cut."""
    files = tuple(
        File(f"shard-{number:04}.txt", pseudo_random(9, number), lfs=False)
        for number in range(1500)
    )
    tree = Tree(files)
    artifact = world.artifact(repository=world.repository("acme/many", tree))
    assert len(world.hub_requests("/api/models/acme/many/tree/*")) > 1
    assert world.resolved(artifact)["manifestDigest"] == tree.digest
