"""File hashes that can be put down and picked up again: SHA-256 and git's blob SHA-1.

`hashlib` objects cannot be saved, so a download that resumes after a restart would have to read
back what it already holds. libcrypto's older functions keep their whole state in a flat structure,
which this module copies out and in. What is kept is not that structure but a neutral `HashState`:
the state words, the bytes hashed so far and the tail that does not fill a block yet; it means the
same on every machine and library.

`Hashing` looks for libcrypto and proves it against `hashlib` when it is built. Where the library is
missing or proves wrong, hashes come from `hashlib`, `save` returns None, and a file whose download
is interrupted starts over.

The download engine and the `verify` command call it. Rules: NS-DL-16, NS-DL-17, NS-DL-18.
"""

from __future__ import annotations

import binascii
import ctypes
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

log = logging.getLogger(__name__)

BLOCK_BYTES: Final = 64
_LIBRARIES: Final = ("libcrypto.so.3", "libcrypto.so.4", "libcrypto.so.1.1", "libcrypto.so")


@dataclass(frozen=True, slots=True)
class HashState:
    """A hash half done, in no library's own form.

    Args:
        algorithm: `sha256` or `sha1`.
        words: the chaining state, 8 or 5 words of 32 bits.
        byte_count: how many bytes went in, git's blob header among them.
        tail: the last `byte_count % 64` bytes, which do not fill a block yet.

    Raises:
        ValueError: the parts do not fit together.
    """

    algorithm: str
    words: tuple[int, ...]
    byte_count: int
    tail: bytes

    def __post_init__(self) -> None:
        layout = _LAYOUTS.get(self.algorithm)
        if layout is None or len(self.words) != layout.words:
            raise ValueError("a hash state names an algorithm and has as many words as it needs")
        if any(not 0 <= word < 1 << 32 for word in self.words):
            raise ValueError("a hash state's words have 32 bits")
        if not 0 <= self.byte_count < 1 << 61 or len(self.tail) != self.byte_count % BLOCK_BYTES:
            raise ValueError("a hash state's tail is what its byte count leaves of a block")

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: words and tail in hex, the words big-endian."""
        return {
            "algorithm": self.algorithm,
            "words": b"".join(word.to_bytes(4, "big") for word in self.words).hex(),
            "byteCount": self.byte_count,
            "tail": self.tail.hex(),
        }

    @classmethod
    def from_wire(cls, wire: Any) -> Self:
        """Read the JSON form.

        Raises:
            ValueError: it is not one.
        """
        try:
            words = binascii.unhexlify(wire["words"])
            return cls(
                algorithm=wire["algorithm"],
                words=tuple(
                    int.from_bytes(words[at : at + 4], "big") for at in range(0, len(words), 4)
                ),
                byte_count=wire["byteCount"],
                tail=binascii.unhexlify(wire["tail"]),
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a hash state: {error!r}") from None


class Hasher(Protocol):
    """One file's hash while its bytes arrive in order. Not for two threads at once."""

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes; a writable, contiguous view is read in place, outside the interpreter lock."""

    def hexdigest(self) -> str:
        """Return the lowercase hex digest; nothing may be added afterwards."""

    def save(self) -> HashState | None:
        """Return the state at this byte, or None where states cannot be saved."""


class _Sha256Context(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_uint32 * 8),
        ("bits_low", ctypes.c_uint32),
        ("bits_high", ctypes.c_uint32),
        ("block", ctypes.c_ubyte * BLOCK_BYTES),
        ("held", ctypes.c_uint),
        ("digest_bytes", ctypes.c_uint),
        # Room for a library whose structure is longer, so that it cannot write past ours.
        ("spare", ctypes.c_ubyte * 128),
    )


class _Sha1Context(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_uint32 * 5),
        ("bits_low", ctypes.c_uint32),
        ("bits_high", ctypes.c_uint32),
        ("block", ctypes.c_ubyte * BLOCK_BYTES),
        ("held", ctypes.c_uint),
        ("spare", ctypes.c_ubyte * 128),  # as above
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    prefix: str
    words: int
    digest_bytes: int
    context: type[ctypes.Structure]


_LAYOUTS: Final = {
    "sha256": _Layout("SHA256", 8, 32, _Sha256Context),
    "sha1": _Layout("SHA1", 5, 20, _Sha1Context),
}


class _LibraryHasher:
    """A hash in libcrypto's flat structure."""

    def __init__(
        self, library: ctypes.CDLL, algorithm: str, state: HashState | None = None
    ) -> None:
        self._algorithm = algorithm
        self._layout = _LAYOUTS[algorithm]
        self._update = library[f"{self._layout.prefix}_Update"]
        self._final = library[f"{self._layout.prefix}_Final"]
        # Any: ctypes gives a structure's fields no types.
        self._context: Any = self._layout.context()
        _must(library[f"{self._layout.prefix}_Init"](ctypes.byref(self._context)))
        if state is not None:
            self._load(state)

    def _load(self, state: HashState) -> None:
        bits = state.byte_count * 8
        self._context.words[:] = state.words
        self._context.bits_low = bits & 0xFFFFFFFF
        self._context.bits_high = bits >> 32
        self._context.block[: len(state.tail)] = state.tail
        self._context.held = len(state.tail)

    def update(self, data: bytes | memoryview) -> None:
        size = len(data) if isinstance(data, bytes) else data.nbytes
        if size == 0:
            return
        if isinstance(data, memoryview) and data.readonly:
            data = bytes(data)
        start = data if isinstance(data, bytes) else ctypes.byref(ctypes.c_char.from_buffer(data))
        _must(self._update(ctypes.byref(self._context), start, ctypes.c_size_t(size)))

    def hexdigest(self) -> str:
        digest = ctypes.create_string_buffer(self._layout.digest_bytes)
        _must(self._final(digest, ctypes.byref(self._context)))
        return digest.raw.hex()

    def save(self) -> HashState:
        context = self._context
        return HashState(
            algorithm=self._algorithm,
            words=tuple(context.words),
            byte_count=(context.bits_high << 32 | context.bits_low) // 8,
            tail=bytes(context.block[: context.held]),
        )


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

    def __init__(self, open_library: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> None:
        self._library = _find_library(open_library)
        if self._library is None:
            log.warning(
                "no usable libcrypto: an interrupted file is downloaded again from its start"
            )

    @property
    def resumable(self) -> bool:
        """Say whether states can be saved and restored here."""
        return self._library is not None

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
        if self._library is None or state.algorithm != plain or state.byte_count != expected:
            return None
        return _LibraryHasher(self._library, plain, state)

    def _bare(self, algorithm: str) -> Hasher:
        if self._library is None:
            return _PlainHasher(algorithm)
        return _LibraryHasher(self._library, algorithm)


def _header(algorithm: str, size_bytes: int) -> bytes:
    return b"blob %d\0" % size_bytes if algorithm == "gitsha1" else b""


def _must(result: int) -> None:
    if result != 1:
        raise RuntimeError("libcrypto refused to hash")


def _find_library(open_library: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            library = open_library(name)
            if all(_proves_right(library, algorithm) for algorithm in _LAYOUTS):
                return library
        except (OSError, AttributeError, RuntimeError, ValueError) as error:
            log.debug("libcrypto name=%s unusable: %s", name, error)
    return None


def _proves_right(library: ctypes.CDLL, algorithm: str) -> bool:
    """Hash a text in pieces, saving and restoring between them, and compare with `hashlib`."""
    text = bytes(range(251)) * 3
    hasher = _LibraryHasher(library, algorithm)
    start = 0
    for end in (0, 1, 63, 64, 65, 128, 250, 511, len(text)):
        hasher.update(memoryview(bytearray(text[start:end])))
        hasher = _LibraryHasher(library, algorithm, HashState.from_wire(hasher.save().to_wire()))
        start = end
    return hasher.hexdigest() == hashlib.new(algorithm, text, usedforsecurity=False).hexdigest()
