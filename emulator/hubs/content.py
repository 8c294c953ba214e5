"""Bytes that a hub serves: held in memory, read from a file, or made up as they are asked for.

Digests are computed once and then kept. A made-up file can bring its own, so that one of 60 GB is
served without anybody hashing it, and a listing can be repeated whose files nobody has.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Protocol

from emulator.hubs.errors import HubError
from gpustack_delivery.httpd import FileSlice

_PIECE_BYTES = 1024 * 1024


class Content(Protocol):
    """One file's bytes."""

    @property
    def size_bytes(self) -> int:
        """Return how many there are."""

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of all of them, in hex."""

    @property
    def git_sha1(self) -> str:
        """Return the id that git gives a blob of them, in hex."""

    def part(self, start: int, length: int) -> bytes | Iterator[bytes] | FileSlice:
        """Return a part, in the form that is sent fastest."""

    def pieces(self, start: int, length: int) -> Iterator[bytes]:
        """Yield a part in pieces of at most a megabyte."""


class _Digests(ABC):
    """The digests of whatever `pieces` yields."""

    size_bytes: int

    @abstractmethod
    def pieces(self, start: int, length: int) -> Iterator[bytes]:
        """Yield a part in pieces."""

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of the content, in hex."""
        digest = hashlib.sha256()
        for piece in self.pieces(0, self.size_bytes):
            digest.update(piece)
        return digest.hexdigest()

    @cached_property
    def git_sha1(self) -> str:
        """Return the id of a git blob of the content, in hex."""
        digest = hashlib.sha1(b"blob %d\0" % self.size_bytes, usedforsecurity=False)
        for piece in self.pieces(0, self.size_bytes):
            digest.update(piece)
        return digest.hexdigest()


class Bytes(_Digests):
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def part(self, start: int, length: int) -> bytes:
        """Return a part."""
        return self._data[start : start + length]

    def pieces(self, start: int, length: int) -> Iterator[bytes]:
        """Yield a part in pieces."""
        for offset in range(start, start + length, _PIECE_BYTES):
            yield self._data[offset : min(offset + _PIECE_BYTES, start + length)]


class DiskFile(_Digests):
    """Content of a file, which should not change while it is served.

    Raises:
        HubError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb"):
                self.size_bytes = path.stat().st_size
        except OSError as error:
            raise HubError(f"cannot read {str(path)!r}: {error.strerror}") from error

    def part(self, start: int, length: int) -> FileSlice:
        """Return a part, to be sent from the page cache."""
        return FileSlice(self._path.open("rb"), start, length)

    def pieces(self, start: int, length: int) -> Iterator[bytes]:
        """Yield a part in pieces; fewer bytes when the file has shrunk."""
        with self._path.open("rb") as file:
            file.seek(start)
            while length > 0 and (piece := file.read(min(length, _PIECE_BYTES))):
                length -= len(piece)
                yield piece


class Virtual(_Digests):
    """A file that exists nowhere: one block, over and over.

    Args:
        size_bytes: how large it seems.
        block: what it repeats.
        sha256: its digest where it is known; else listing it computes one, at a second or so for
            each gigabyte.
        git_sha1: the same for its id in git. A file that is listed but never fetched may have any.
    """

    def __init__(
        self, size_bytes: int, block: bytes = b"\0", *, sha256: str = "", git_sha1: str = ""
    ) -> None:
        self.size_bytes = size_bytes
        # Long enough that a piece is one slice of it, wherever the piece begins.
        self._period = len(block)
        self._stretch = block * (_PIECE_BYTES // len(block) + 2)
        known = {"sha256": sha256, "git_sha1": git_sha1}
        self.__dict__.update({name: value for name, value in known.items() if value})

    def part(self, start: int, length: int) -> Iterator[bytes]:
        """Return a part as pieces."""
        return self.pieces(start, length)

    def pieces(self, start: int, length: int) -> Iterator[bytes]:
        """Yield a part in pieces."""
        end = start + length
        while start < end:
            size = min(end - start, _PIECE_BYTES)
            phase = start % self._period
            yield self._stretch[phase : phase + size]
            start += size
