"""A folder as a repository: digests as a hub gives them, links, and everything that is none."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from gpustack_delivery.errors import ConfigurationFault, HostFault
from gpustack_delivery.vocabulary.manifest import Entry
from gpustack_delivery.vocabulary.patterns import Patterns
from gpustack_delivery.worker.folders import LARGE_BYTES, LargeFiles, read_folder


def git(content: bytes) -> str:
    """Return git's blob id."""
    blob = b"blob %d\0" % len(content) + content
    return "gitsha1:" + hashlib.sha1(blob, usedforsecurity=False).hexdigest()


def sha(content: bytes) -> str:
    """Return the content's SHA-256."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def read(folder: Path, patterns: Patterns | None = None) -> list[Entry]:
    """Read a folder."""
    return list(read_folder(folder, patterns or Patterns()))


def test_files_have_their_hubs_digest(tmp_path: Path) -> None:
    """Weights are known by SHA-256 and everything else by git's id, empty files too."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "sub" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "empty").write_bytes(b"")
    assert read(tmp_path) == [
        Entry("config.json", 2, git(b"{}")),
        Entry("empty", 0, git(b"")),
        Entry("sub/model.safetensors", 7, sha(b"weights")),
    ]


def test_git_attributes_decide(tmp_path: Path) -> None:
    """The folder's own rules replace the usual names, the last that matches wins."""
    attributes = (
        b"# a comment\n\n*.bin filter=lfs diff=lfs\nsaved/**/* filter=lfs\n"
        b"/top.txt filter=lfs\nsmall.bin -filter\n"
        b"other.bin !filter\nold.bin filter=crypt\n*.txt text\n"
    )
    files = {
        ".gitattributes": git,
        "a.bin": sha,
        "sub/a.bin": sha,
        "small.bin": git,
        "other.bin": git,
        "old.bin": git,
        "saved/x": sha,
        "saved/a/b/x": sha,
        "top.txt": sha,
        "sub/top.txt": git,
        "a.safetensors": git,
    }
    for name in files:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(attributes if name == ".gitattributes" else name.encode())
    for entry in read(tmp_path):
        content = (tmp_path / entry.path).read_bytes()
        assert entry.digest == files[entry.path](content), entry.path


def test_large_files_are_outside_git() -> None:
    """Beyond the hub's limit a file is a large one whatever its name."""
    large = LargeFiles.of_names([])
    assert large.covers("a.txt", LARGE_BYTES + 1)
    assert not large.covers("a.txt", LARGE_BYTES)


def test_bookkeeping_and_patterns(tmp_path: Path) -> None:
    """Git's and the hub client's own folders are no content; unwanted files are not even read."""
    for name in (".git/HEAD", ".cache/huggingface/x", ".cache/kept", "a.json", "a.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    (tmp_path / "a.md").unlink()
    os.mkfifo(tmp_path / "a.md")
    kept = read(tmp_path, Patterns(ignore=("*.md",)))
    assert [entry.path for entry in kept] == [".cache/kept", "a.json"]


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    """A snapshot folder of links reads like the files it stands for."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(b"weights")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.bin").symlink_to("../blobs/1")
    assert read(snapshot) == [Entry("model.bin", 7, sha(b"weights"))]


def test_a_pipe(tmp_path: Path) -> None:
    """What is neither a file nor a folder is named and refused."""
    os.mkfifo(tmp_path / "odd")
    with pytest.raises(ConfigurationFault, match="'odd' is neither a file nor a folder"):
        read(tmp_path)


def test_a_link_to_a_folder(tmp_path: Path) -> None:
    """It is refused for what it is."""
    (tmp_path / "odd").symlink_to("/etc")
    with pytest.raises(ConfigurationFault, match="'odd' is a link to a folder"):
        read(tmp_path)


def test_dangling_link(tmp_path: Path) -> None:
    """A link to nothing cannot be read."""
    (tmp_path / "odd").symlink_to("nowhere")
    with pytest.raises(HostFault, match="'odd' cannot be read: No such file"):
        read(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    """A file and a missing path are told apart."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationFault, match="a file, not a folder"):
        read(tmp_path / "file")
    with pytest.raises(ConfigurationFault, match="not there"):
        read(tmp_path / "missing")
