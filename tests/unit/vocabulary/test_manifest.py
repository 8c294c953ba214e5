"""The canonical manifest: published vectors, what is refused, and what the digest depends on."""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack_delivery.errors import HubFault, Verdict
from gpustack_delivery.vocabulary.manifest import Entry, Folders, Manifest, is_digest
from gpustack_delivery.vocabulary.patterns import Patterns

# Qwen/Qwen2.5-0.5B-Instruct at 7ae557604adf67be50417f59c2c2f167def9a775.
QWEN = """
1519 gitsha1:a6344aac8c09253b3b630fb776ae94478aa0275b .gitattributes
11343 gitsha1:6634c8cc3133b3848ec74b9f275acaaa1ea618ab LICENSE
4917 gitsha1:4b8373851d093eb9f3017443f27781c6971eff24 README.md
659 gitsha1:0dbb161213629a23f0fc00ef286e6b1e366d180f config.json
242 gitsha1:dfc11073787daf1b0f9c0f1499487ab5f4c93738 generation_config.json
1671839 gitsha1:20024bfe7c83998e9aeaf98a0cd6a2ce6306c2f0 merges.txt
988097824 sha256:fdf756fa7fcbe7404d5c60e26bff1a0c8b8aa1f72ced49e7dd0210fe288fb7fe model.safetensors
7031645 gitsha1:443909a61d429dff23010e5bddd28ff530edda00 tokenizer.json
7305 gitsha1:07bfe0640cb5a0037f9322287fbfc682806cf672 tokenizer_config.json
2776833 gitsha1:4783fe10ac3adce15ac8f358ef5462739852c569 vocab.json
"""
SHA256 = "sha256:" + "0" * 64
GIT = "gitsha1:" + "0" * 40


def qwen() -> list[Entry]:
    """Return the published repository's files."""
    lines = (line.split(" ", 2) for line in QWEN.strip().splitlines())
    return [Entry(path, int(size), digest) for size, digest, path in lines]


@pytest.mark.parametrize(
    ("patterns", "files", "size_bytes", "length", "digest"),
    [
        (
            Patterns(),
            10,
            999604126,
            742,
            "sha256:669ed7b128b6ad1658d735326bd172a33497ecdb8bbd72dd0b23c98b58469448",
        ),
        (
            Patterns(("*.json", "*.safetensors"), ("tokenizer*",)),
            4,
            990875558,
            330,
            "sha256:79233f49816c89aac83af752d1701837f4fbeba3248d75c842cc7b279821aeb0",
        ),
        (
            Patterns(("*.safetensors", "*.json", "tokenizer*")),
            6,
            997914508,
            478,
            "sha256:0ad6708d42047a2354979bf99d11a6ca7a82522a1fcfb0230c729057255dbc03",
        ),
    ],
    ids=["unfiltered", "allow and ignore", "allow"],
)
def test_published_repository(
    patterns: Patterns, files: int, size_bytes: int, length: int, digest: str
) -> None:
    """The published repository has its published digest, in whatever order it is listed."""
    entries = qwen()
    random.Random(7).shuffle(entries)  # noqa: S311 - a fixed disorder, not a secret
    manifest = Manifest.of(patterns.filter(entries))
    assert manifest.file_count == files
    assert manifest.size_bytes == size_bytes
    assert len(manifest.encode()) == length
    assert manifest.digest == digest


def test_filter_keeps_the_named_files() -> None:
    """Ignore patterns take files out of what allow patterns keep."""
    kept = Patterns(("*.json", "*.safetensors"), ("tokenizer*",)).filter(qwen())
    assert [entry.path for entry in kept] == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "vocab.json",
    ]


def test_no_files_encode_to_the_header() -> None:
    """An empty set is its header line alone, with a digest of its own."""
    manifest = Manifest.of([])
    assert manifest.encode() == b"gpustack-manifest v1\n"
    assert manifest.digest == (
        "sha256:0bbf75042c119a8050448f446432f593ffd95151dfb489917a5e3102b4a69559"
    )


def test_order_is_that_of_utf8_bytes() -> None:
    """Upper case sorts before lower, a dot before a slash, astral characters after all others."""
    paths = ["b/x.json", "a.safetensors", "B.json", "b.json", "\U0001f600", "\uffee"]
    manifest = Manifest.of(Entry(path, 1, GIT) for path in paths)
    assert [entry.path for entry in manifest.entries] == [
        "B.json",
        "a.safetensors",
        "b.json",
        "b/x.json",
        "\uffee",
        "\U0001f600",
    ]


def test_spelling_is_kept() -> None:
    """Spaces stay, and the two Unicode spellings of one letter are two paths."""
    manifest = Manifest.of([Entry("\u00e9 a", 0, GIT), Entry("e\u0301 a", 0, GIT)])
    assert manifest.file_count == 2
    assert "e\u0301 a\n".encode() in manifest.encode()


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/../b", "..", "./a", "a/.", "a//b", "a/", "a\nb", "a\x00", "a\x7fb", "\ud800"],
)
def test_bad_paths_refuse_the_whole_manifest(path: str) -> None:
    """One bad path is enough; it is never skipped."""
    with pytest.raises(HubFault) as fault:
        Manifest.of([Entry("good", 1, GIT), Entry(path, 1, GIT)])
    assert fault.value.verdict is Verdict.INVALID_MANIFEST
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    "digest",
    [
        "md5:" + "0" * 32,
        "sha256:" + "A" * 64,
        "gitsha1:" + "0" * 39,
        "sha256:" + "0" * 40,
        "sha256:" + "*" * 64,
        "sha256:" + "0" * 64 + "\n",
        "0" * 64,
        "",
    ],
)
def test_bad_digests_are_refused(digest: str) -> None:
    """A digest is sha256 or gitsha1 with exactly its lowercase hex digits."""
    with pytest.raises(HubFault, match="digest"):
        Manifest.of([Entry("a", 1, digest)])


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([Entry("a", 1, GIT), Entry("a", 1, GIT)], "listed twice"),
        ([Entry("a", -1, GIT)], "negative"),
        ([Entry("a", 1, GIT), Entry("a/b/c", 1, GIT)], "both a file and a directory"),
        ([Entry("a", 1 << 63, GIT)], "together"),
        ([Entry("a", 1 << 62, GIT), Entry("b", 1 << 62, GIT)], "together"),
    ],
)
def test_impossible_trees_are_refused(entries: list[Entry], said: str) -> None:
    """Duplicates, impossible sizes and a file in a directory's place cannot be laid out."""
    with pytest.raises(HubFault, match=said):
        Manifest.of(entries)


@pytest.mark.parametrize("between", ["a-b", "a.txt", "a b", "a!", "a/b", "a/b/c/d", "b"])
def test_a_file_in_a_folders_place_is_found_whatever_sorts_between(between: str) -> None:
    """In the order of bytes other names stand between a folder and what lies in it."""
    with pytest.raises(HubFault, match="'a' is both a file and a directory"):
        Manifest.of(Entry(path, 1, GIT) for path in ("a", "a/z", between))


def calls_for(paths: list[str]) -> int:
    """Return how many built-in functions are called to check a listing of these paths."""
    entries = [Entry(path, 1, GIT) for path in paths]
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        Manifest.of(entries)
    finally:
        sys.setprofile(before)
    return count


def test_a_deep_listing_takes_no_more_steps_than_a_flat_one() -> None:
    """A listing's author chooses the depth; it must not choose how long we are busy."""
    flat = [f"{number}-{'x' * 4000}" for number in range(20)]
    deep = [f"{number}/{'d/' * 2000}f" for number in range(20)]
    assert calls_for(deep) == calls_for(flat)


paths_side_by_side = st.lists(
    st.lists(st.sampled_from("ab-"), min_size=1, max_size=4).map("/".join), unique=True
)


@given(paths_side_by_side)
def test_folders_are_what_the_paths_lie_in(paths: list[str]) -> None:
    """Found and counted as if every one had been written down."""
    known = {str(above) for path in paths for above in PurePosixPath(path).parents} - {"."}
    folders = Folders(Entry(path, 1, GIT) for path in paths)
    assert len(folders) == len(known)
    assert {path for path in {*known, *paths, "b/b/b/b", "-"} if path in folders} == known


def test_digest_depends_on_every_file_fact() -> None:
    """Size, content digest, the path's case and a missing file each change the digest."""
    base = [Entry("a", 1, GIT), Entry("b", 2, SHA256)]
    variants = [
        base,
        [Entry("a", 2, GIT), base[1]],
        [Entry("a", 1, "gitsha1:" + "1" * 40), base[1]],
        [Entry("A", 1, GIT), base[1]],
        base[1:],
    ]
    assert len({Manifest.of(entries).digest for entries in variants}) == len(variants)


segments = st.text(
    st.characters(min_codepoint=0x20, exclude_characters="/\x7f", exclude_categories=["Cs"]),
    min_size=1,
    max_size=8,
).filter(lambda segment: segment not in {".", ".."})
# Files side by side in one directory level can never collide with a directory.
flat_entries = st.dictionaries(segments, st.integers(0, 2**60 - 1), max_size=8).map(
    lambda sizes: [Entry(path, size, SHA256) for path, size in sizes.items()]
)


@given(flat_entries, st.randoms(use_true_random=False))
def test_order_of_listing_never_matters(entries: list[Entry], order: random.Random) -> None:
    """Any permutation of a listing has the same digest, and the encoding reads back."""
    shuffled = entries.copy()
    order.shuffle(shuffled)
    manifest = Manifest.of(shuffled)
    assert manifest == Manifest.of(entries)
    header, *lines = manifest.encode().split(b"\n")[:-1]
    assert header == b"gpustack-manifest v1"
    split = [line.decode().split(" ", 2) for line in lines]
    read = [Entry(path, int(size), digest) for digest, size, path in split]
    assert read == sorted(entries, key=lambda entry: entry.path.encode())
    assert manifest.digest == "sha256:" + hashlib.sha256(manifest.encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "verdict"),
    [(SHA256, True), (SHA256.upper(), False), (SHA256 + "\n", False), ("", False), (GIT, False)],
)
def test_is_digest(text: str, *, verdict: bool) -> None:
    """A manifest digest is sha256 in lowercase and nothing else."""
    assert is_digest(text) is verdict


def test_entry_parts() -> None:
    """An entry's digest comes apart into algorithm and hex."""
    assert (Entry("a", 1, GIT).algorithm, Entry("a", 1, GIT).hex) == ("gitsha1", "0" * 40)
