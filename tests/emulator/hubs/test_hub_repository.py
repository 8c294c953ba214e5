"""Folders as repositories, and the ids that git would give."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from emulator.hubs import Bytes, DiskFile, HubError, LfsRule, Repository, Virtual
from emulator.hubs.folder import read_folder

FILES = {
    "config.json": b"{}\n",
    "empty": b"",
    "sub-1": b"d",
    "sub.txt": b"s",
    "sub/a.txt": b"a",
    "sub/deep/b.txt": b"b",
}


def test_ids_are_those_of_git() -> None:
    """Commits, trees, blobs and tags have the ids that git 2.39 gave the same content."""
    repository = Repository("org/model")
    first = repository.commit(FILES)
    repository.tag("v1", first)
    second = repository.commit(FILES | {"config.json": b'{"a": 1}\n'}, title="Change")
    assert first == "39412af89430771a56f92711c52586a2b2ccb331"
    assert second == "ef7a0a8200d59b2d21afd73cb5c500faa8b9d7a1"
    commit = repository.resolve("main")
    assert commit is not None
    assert commit.directories == {
        "": "925232b1d4104e908b0a1257d0779c469429d268",
        "sub": "397f66452c73a941b270ba5437bf761116542927",
        "sub/deep": "bc4d1181aca5a33673d7c5d4c209d09ce1cfabd7",
    }
    assert commit.files["empty"].oid == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert (
        repository.refs()["refs/tags/v1"].tag_object == "7c05eda53d841aa44ad541041851cb37b9eae932"
    )
    assert repository.resolve("v1") is repository.resolve(first)


def test_lfs_file_stands_in_git_as_its_pointer() -> None:
    """An LFS file's blob is the pointer; its digest is the content's."""
    repository = Repository("org/model")
    repository.commit({"model.safetensors": b"weights"})
    commit = repository.resolve("main")
    assert commit is not None
    file = commit.files["model.safetensors"]
    digest = hashlib.sha256(b"weights").hexdigest()
    assert file.pointer == (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + digest.encode() + b"\nsize 7\n"
    )
    blob = b"blob %d\0" % len(file.pointer) + file.pointer
    assert file.oid == hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    assert file.etag == digest


@pytest.mark.parametrize(
    ("path", "size", "lfs"),
    [
        ("model.safetensors", 1, True),
        ("deep/down/model.bin", 0, True),
        ("safetensors", 1, False),
        ("model.SAFETENSORS", 1, False),
        ("tokenizer.json", 10 * 1024 * 1024, False),
        ("tokenizer.json", 10 * 1024 * 1024 + 1, True),
    ],
)
def test_lfs_rule(path: str, size: int, *, lfs: bool) -> None:
    """Weights are LFS files by name, anything large is by size."""
    assert LfsRule().covers(path, size) == lfs


def test_lfs_rule_of_ones_own() -> None:
    """A pattern with a slash is about the whole path, one without about the name."""
    rule = LfsRule(patterns=("weights/*", "*.q4"), size_bytes=100)
    assert rule.covers("weights/config.json", 1)
    assert rule.covers("deep/model.q4", 1)
    assert not rule.covers("other/weights", 1)
    assert not rule.covers("model.safetensors", 100)


def test_folder_is_read_whole(tmp_path: Path) -> None:
    """Nested files, empty files, hidden files and links to files are served; bookkeeping is not."""
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".hidden").write_bytes(b"h")
    (tmp_path / "link.txt").symlink_to(tmp_path / "sub" / "a.txt")
    (tmp_path / "hollow").mkdir()
    for bookkeeping in (".git", ".cache/huggingface/download"):
        (tmp_path / bookkeeping).mkdir(parents=True)
        (tmp_path / bookkeeping / "state").write_bytes(b"no content")
    (tmp_path / ".cache" / "kept").write_bytes(b"k")
    files = read_folder(tmp_path)
    assert files.keys() == {*FILES, ".hidden", "link.txt", ".cache/kept"}
    assert b"".join(files["link.txt"].pieces(0, 1)) == b"a"


@pytest.mark.parametrize("name", ["b\nc", "a#b", "a%20b", "emoji-😀", "a b", "é" * 127])
def test_stray_names_in_a_folder(tmp_path: Path, name: str) -> None:
    """A file's name is its path, whatever is in it."""
    (tmp_path / name).write_bytes(b"x")
    assert read_folder(tmp_path).keys() == {name}


def test_folders_that_cannot_be_served(tmp_path: Path) -> None:
    """Each unfit folder is one line that names it and says why."""
    hollow = tmp_path / "hollow"
    (hollow / "deep").mkdir(parents=True)
    file = tmp_path / "file"
    file.write_bytes(b"x")
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "again").symlink_to(loop)
    dangling = tmp_path / "dangling"
    dangling.mkdir()
    (dangling / "link").symlink_to("nothing")
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "fifo")
    coded = tmp_path / "coded"
    coded.mkdir()
    (coded / os.fsdecode(b"caf\xe9")).write_bytes(b"x")
    for folder, message in [
        (tmp_path / "none", "there is no folder"),
        (file, "is not a folder"),
        (hollow, "holds no files"),
        (loop, "a link to a folder"),
        (dangling, "a link to nothing"),
        (pipe, "neither a file nor a folder"),
        (coded, "is not UTF-8"),
    ]:
        with pytest.raises(HubError, match=message) as raised:
            Repository("org/model").commit(folder)
        assert "\n" not in str(raised.value)
        assert folder.name in str(raised.value) or folder is coded


def test_unreadable_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system will not let be read is an error; root, whom it lets, is stood in for."""
    (tmp_path / "secret").write_bytes(b"x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(HubError, match=r"cannot read '.*secret': Permission denied"):
            read_folder(tmp_path)
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(HubError, match=r"cannot read the folder '.*': Permission denied"):
        read_folder(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 3 * 1024 * 1024 + 17])
def test_contents_agree(tmp_path: Path, size: int) -> None:
    """Memory, file and virtual content of the same bytes have the same parts and digests."""
    block = bytes(range(251))
    data = (block * (size // 251 + 1))[:size]
    path = tmp_path / "file"
    path.write_bytes(data)
    for content in (Bytes(data), DiskFile(path), Virtual(size, block)):
        assert content.size_bytes == size
        assert content.sha256 == hashlib.sha256(data).hexdigest()
        blob = b"blob %d\0" % size + data
        assert content.git_sha1 == hashlib.sha1(blob, usedforsecurity=False).hexdigest()
        for start, length in [(0, size), (size // 3, size // 2), (size, 0)]:
            assert b"".join(content.pieces(start, length)) == data[start : start + length]


def test_digests_of_made_up_files_may_be_known() -> None:
    """A made-up file with given digests is never hashed, so any listing can be repeated."""
    content = Virtual(10**18, sha256="ab" * 32, git_sha1="cd" * 20)
    assert (content.sha256, content.git_sha1) == ("ab" * 32, "cd" * 20)
    repository = Repository("org/model")
    repository.commit({"large.bin": content, "small.txt": Virtual(659, git_sha1="ef" * 20)})
    commit = repository.resolve("main")
    assert commit is not None
    assert commit.files["large.bin"].etag == "ab" * 32
    assert commit.files["small.txt"].oid == "ef" * 20


def test_socket_in_a_folder(tmp_path: Path) -> None:
    """A socket left in a folder is named, not skipped."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(tmp_path / "s"))
        with pytest.raises(HubError, match="neither a file nor a folder"):
            read_folder(tmp_path)
