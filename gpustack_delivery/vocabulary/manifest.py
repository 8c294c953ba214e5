"""The canonical manifest: what a set of files is, whatever its name and wherever it lives.

The encoding is a header line and then one line a file, `<algorithm>:<hex> <size> <path>`, sorted by
the path's UTF-8 bytes, every line ended by LF. Its SHA-256 is the manifest digest that artifacts,
mounts and caches share; source, repository, commit and patterns are no part of it.

    >>> entries = [Entry("config.json", 2, "gitsha1:" + "0" * 40)]
    >>> Manifest.of(entries).encode()
    b'gpustack-manifest v1\\ngitsha1:0000000000000000000000000000000000000000 2 config.json\\n'

Rules: AR-DIG-01, AR-DIG-02, AR-DIG-03.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Final, Self

from gpustack_delivery.errors import HubFault, Verdict

HEADER: Final = "gpustack-manifest v1"
MOST_BYTES: Final = (1 << 63) - 1
"""What a number of a Kubernetes object holds, and more than any disk does."""

_FILE_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|gitsha1:[0-9a-f]{40}")
_MANIFEST_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its path with `/` between segments, its size, and the digest its content must have.

    `digest` is `sha256:` and 64 lowercase hex digits over the content, or `gitsha1:` and 40 over
    git's blob header and the content.
    """

    path: str
    size_bytes: int
    digest: str

    @property
    def algorithm(self) -> str:
        """Return `sha256` or `gitsha1`."""
        return self.digest.partition(":")[0]

    @property
    def hex(self) -> str:
        """Return the digest without its algorithm."""
        return self.digest.partition(":")[2]

    def encode(self) -> bytes:
        """Return this file's line."""
        return f"{self.digest} {self.size_bytes} {self.path}\n".encode()


@dataclass(frozen=True)
class Manifest:
    """A checked, sorted set of files; build one with `of`."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Check every entry and sort them.

        Raises:
            HubFault: `InvalidManifest` for a bad path, digest or size, a duplicate, a file where
                another path needs a directory, or more bytes than a status can say. One bad entry
                refuses the whole manifest.
        """
        kept = sorted(entries, key=_sort_key)
        for entry in kept:
            _check(entry)
        _check_layout(kept)
        return cls(tuple(kept))

    def encode(self) -> bytes:
        """Return the canonical encoding."""
        return b"".join([f"{HEADER}\n".encode(), *(entry.encode() for entry in self.entries)])

    @cached_property
    def digest(self) -> str:
        """Return `sha256:` and the hex SHA-256 of the encoding."""
        return "sha256:" + hashlib.sha256(self.encode()).hexdigest()

    @cached_property
    def by_path(self) -> dict[str, Entry]:
        """Return every file by its path."""
        return {entry.path: entry for entry in self.entries}

    @property
    def file_count(self) -> int:
        """Return the number of files."""
        return len(self.entries)

    @cached_property
    def size_bytes(self) -> int:
        """Return the sum of the files' sizes."""
        return sum(entry.size_bytes for entry in self.entries)


class Folders:
    """The folders that files lie in, found without keeping them: a deep path has thousands."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        # Segments apart by what no path holds and what sorts before all else: the files of a folder
        # follow one another, the first of them where the folder would stand.
        self._ordered = sorted(entry.path.replace("/", "\0") for entry in entries)

    def __contains__(self, folder: str) -> bool:
        start = folder.replace("/", "\0") + "\0"
        place = bisect_left(self._ordered, start)
        return place < len(self._ordered) and self._ordered[place].startswith(start)

    def __len__(self) -> int:
        count, before = 0, [""]
        for path in self._ordered:
            *above, _ = path.split("\0")
            shared = takewhile(lambda pair: pair[0] == pair[1], zip(before, above, strict=False))
            count += len(above) - sum(1 for _ in shared)
            before = above
        return count


def is_digest(text: str) -> bool:
    """Say whether a text is a manifest digest: `sha256:` and 64 lowercase hex digits."""
    return _MANIFEST_DIGEST.fullmatch(text) is not None


def _sort_key(entry: Entry) -> bytes:
    return entry.path.encode("utf-8", "surrogatepass")


def _invalid(message: str) -> HubFault:
    return HubFault(Verdict.INVALID_MANIFEST, message)


def _check(entry: Entry) -> None:
    shown = repr(entry.path)[:200]
    try:
        entry.path.encode()
    except UnicodeEncodeError:
        raise _invalid(f"the path {shown} is not valid UTF-8") from None
    if any(character < " " or character == "\x7f" for character in entry.path):
        raise _invalid(f"the path {shown} holds a control character")
    if any(segment in {"", ".", ".."} for segment in entry.path.split("/")):
        raise _invalid(f"the path {shown} is not a plain relative path")
    if _FILE_DIGEST.fullmatch(entry.digest) is None:
        raise _invalid(f"the digest of {shown} is neither sha256 nor gitsha1 in lowercase hex")
    if entry.size_bytes < 0:
        raise _invalid(f"the size of {shown} is negative")


def _check_layout(entries: list[Entry]) -> None:
    if sum(entry.size_bytes for entry in entries) > MOST_BYTES:
        raise _invalid(f"the files are more than {MOST_BYTES} bytes together")
    for one, next_one in pairwise(entries):
        if one.path == next_one.path:
            raise _invalid(f"the path {repr(one.path)[:200]} is listed twice")
    folders = Folders(entries)
    for entry in entries:
        if entry.path in folders:
            raise _invalid(f"{repr(entry.path)[:200]} is both a file and a directory")
