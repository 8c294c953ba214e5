"""File hashes that can be put down and picked up again: SHA-256 and git's blob SHA-1.

`hashlib` objects cannot be saved, so a download that resumes after a restart would have to read
back what it already holds. The libraries of `hash_libraries` keep their whole state in a flat
structure. What is kept is not that structure but a neutral `HashState`: the state words, the bytes
hashed so far and the tail that does not fill a block yet; it means the same on every machine and
library, so a node that loses one of them goes on with the other.

`Hashing` looks for a library and proves it against `hashlib` when it is built. Where there is none,
hashes come from `hashlib`, `save` returns None, and a file whose download was interrupted by a
restart starts over.

The download engine and the `verify` command call it. Rules: NS-DL-16, NS-DL-17, NS-DL-18.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from typing import Protocol

from gpustack_delivery.adapters.hash_libraries import Open, find
from gpustack_delivery.adapters.hash_state import HashState

__all__ = ["HashState", "Hasher", "Hashing"]
log = logging.getLogger(__name__)


class Hasher(Protocol):
    """One file's hash while its bytes arrive in order. Not for two threads at once."""

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes; a writable, contiguous view is read in place, outside the interpreter lock."""

    def hexdigest(self) -> str:
        """Return the lowercase hex digest; nothing may be added afterwards."""

    def save(self) -> HashState | None:
        """Return the state at this byte, or None where states cannot be saved."""


class _PlainHasher:
    """A hash that cannot be saved."""

    def __init__(self, algorithm: str) -> None:
        self._hash = hashlib.new(algorithm, usedforsecurity=False)

    def update(self, data: bytes | memoryview) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def save(self) -> None:
        return None


class Hashing:
    """The node's way to hash files; build one at start.

    Args:
        open_library: how a shared library is loaded; raises OSError for one that is not there.
    """

    def __init__(self, open_library: Open = ctypes.CDLL) -> None:
        self._make = find(open_library)
        if self._make is None:
            log.warning(
                "no usable libcrypto or libnettle: an interrupted file is downloaded again from "
                "its start"
            )

    @property
    def resumable(self) -> bool:
        """Say whether states can be saved and restored here."""
        return self._make is not None

    def start(self, algorithm: str, size_bytes: int) -> Hasher:
        """Begin a file's hash; `gitsha1` puts git's blob header before the content."""
        hasher = self._bare("sha1" if algorithm == "gitsha1" else algorithm)
        hasher.update(_header(algorithm, size_bytes))
        return hasher

    def resume(
        self, state: HashState, algorithm: str, size_bytes: int, offset: int
    ) -> Hasher | None:
        """Continue `offset` bytes into a file; None where the state is not of that very place."""
        plain = "sha1" if algorithm == "gitsha1" else algorithm
        expected = offset + len(_header(algorithm, size_bytes))
        if self._make is None or state.algorithm != plain or state.byte_count != expected:
            return None
        return self._make(plain, state)

    def _bare(self, algorithm: str) -> Hasher:
        return _PlainHasher(algorithm) if self._make is None else self._make(algorithm)


def _header(algorithm: str, size_bytes: int) -> bytes:
    return b"blob %d\0" % size_bytes if algorithm == "gitsha1" else b""
