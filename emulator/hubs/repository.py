"""Repositories: commits, what refs name, and which files are kept outside git.

A commit never changes; a ref may be moved at any time, also between a client's two requests.
Whoever serves a repository asks `resolve` once per request and works on the commit it got.
"""

from __future__ import annotations

import fnmatch
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from emulator.hubs import git_objects
from emulator.hubs.content import Bytes, Content
from emulator.hubs.errors import HubError
from emulator.hubs.folder import read_folder

Files = Path | str | Mapping[str, bytes | Content]
"""A folder, or contents by path."""

_FIRST_COMMIT_SECONDS = 1_767_225_600  # the beginning of 2026; each commit is a minute later
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class LfsRule:
    """Which files are LFS files: by pattern, as .gitattributes has it, or by size.

    A pattern with a slash in it is matched against the whole path, others against the name.
    """

    patterns: tuple[str, ...] = (
        "*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.onnx", "*.gguf", "*.h5",
        "*.msgpack", "*.npz", "*.npy", "*.pkl", "*.parquet", "*.tflite", "*.model", "*.zip",
        "*.gz", "*.tar", "*.tgz", "*.xz", "*.7z", "*.arrow", "*.ot", "*.pb",
    )  # fmt: skip
    size_bytes: int = 10 * 1024 * 1024

    def covers(self, path: str, size_bytes: int) -> bool:
        """Say whether a file is kept outside git."""
        name = path.rpartition("/")[2]
        return size_bytes > self.size_bytes or any(
            fnmatch.fnmatchcase(path if "/" in pattern else name, pattern)
            for pattern in self.patterns
        )


@dataclass(frozen=True)
class File:
    """One file of a commit."""

    path: str
    content: Content
    lfs: bool

    @property
    def size_bytes(self) -> int:
        """The content's size, also for an LFS file."""
        return self.content.size_bytes

    @cached_property
    def pointer(self) -> bytes:
        """The LFS pointer that git holds instead."""
        return git_objects.pointer(self.content.sha256, self.size_bytes)

    @cached_property
    def oid(self) -> str:
        """Git's blob id: the content's, or an LFS file's pointer's."""
        return git_objects.object_id("blob", self.pointer) if self.lfs else self.content.git_sha1

    @property
    def etag(self) -> str:
        """What identifies the content: SHA-256 for an LFS file, git's blob id otherwise."""
        return self.content.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class Commit:
    """A commit: its files by path, and the tree ids of its directories, "" being the root."""

    id: str
    title: str
    seconds: int
    files: Mapping[str, File] = field(repr=False)
    directories: Mapping[str, str] = field(repr=False)

    def below(self, directory: str, *, recursive: bool) -> list[str]:
        """Return the paths of files and folders in a folder, sorted; "" is the root."""
        prefix = f"{directory}/" if directory else ""
        return sorted(
            path
            for path in {*self.files, *self.directories} - {directory}
            if path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :])
        )


@dataclass(frozen=True, slots=True)
class Ref:
    """What a ref names: a commit, through a tag object of its own when it is an annotated tag."""

    commit: str
    tag_object: str = ""


class Repository:
    """A model repository, whose branches can be committed to and moved while it is served.

    Args:
        name: `owner/name`, or a name alone.
        private: only `readers` know that it exists.
        gated: everybody sees it, only `readers` may have its files.
        readers: users, as `HuggingFaceHub.add_token` names them.
        lfs: which files are kept outside git.
    """

    def __init__(
        self,
        name: str,
        *,
        private: bool = False,
        gated: bool = False,
        readers: Iterable[str] = (),
        lfs: LfsRule | None = None,
    ) -> None:
        if not 1 <= len(name.split("/")) <= 2 or not all(name.split("/")):
            raise HubError(f"{name!r} is no repository: write owner/name")
        self.name = name
        self.private = private
        self.gated = gated
        self.readers = set(readers)
        self._lfs = lfs or LfsRule()
        self._lock = threading.Lock()
        self._commits: dict[str, Commit] = {}
        self._refs: dict[str, Ref] = {}

    def commit(self, files: Files, *, branch: str = "main", title: str = "Upload files") -> str:
        """Commit files, all there shall be, to a branch, which is made if need be; return the
        commit's id.

        Raises:
            HubError: the folder cannot be served.
        """
        contents = read_folder(Path(files)) if isinstance(files, Path | str) else files
        entries = {
            path: self._file(path, Bytes(content) if isinstance(content, bytes) else content)
            for path, content in contents.items()
        }
        directories = git_objects.tree_ids({path: file.oid for path, file in entries.items()})
        with self._lock:
            parent = self._refs.get(f"refs/heads/{branch}", Ref("")).commit
            seconds = _FIRST_COMMIT_SECONDS + 60 * len(self._commits)
            identifier = git_objects.commit_id(directories[""], parent, title, seconds)
            self._commits[identifier] = Commit(identifier, title, seconds, entries, directories)
            self._refs[f"refs/heads/{branch}"] = Ref(identifier)
        return identifier

    def point(self, ref: str, commit: str) -> None:
        """Make or move a ref: `refs/heads/main`, `refs/tags/v1`, `refs/pr/1`.

        Raises:
            HubError: there is no such commit, or the ref is not written out.
        """
        self._point(ref, Ref(commit))

    def tag(self, name: str, commit: str) -> None:
        """Make or move an annotated tag, which git advertises with an object of its own.

        Raises:
            HubError: there is no such commit.
        """
        tag_object = git_objects.tag_id(commit, name, _FIRST_COMMIT_SECONDS)
        self._point(f"refs/tags/{name}", Ref(commit, tag_object))

    def resolve(self, revision: str) -> Commit | None:
        """Return what a branch, tag, full ref or full commit id names now."""
        with self._lock:
            for ref in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
                if ref in self._refs:
                    return self._commits[self._refs[ref].commit]
            return self._commits.get(revision) if _COMMIT.fullmatch(revision) else None

    def refs(self) -> dict[str, Ref]:
        """Return every ref by its full name, as it is now."""
        with self._lock:
            return dict(self._refs)

    def _point(self, name: str, ref: Ref) -> None:
        if not name.startswith("refs/"):
            raise HubError(f"write the ref out, such as refs/heads/{name}")
        with self._lock:
            if ref.commit not in self._commits:
                raise HubError(f"{self.name} has no commit {ref.commit!r}")
            self._refs[name] = ref

    def _file(self, path: str, content: Content) -> File:
        return File(path, content, self._lfs.covers(path, content.size_bytes))
