"""Two C libraries whose hashes keep their whole state in a flat structure: libcrypto and libnettle.

The structures are copied out to a `HashState` and in again. Both libraries hash outside the
interpreter lock and use the processor's own instructions. `find` takes the first one that loads
and proves right, restored states included, against `hashlib`; `hashing` calls it.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from gpustack_delivery.adapters.hash_state import BLOCK_BYTES, WORDS, HashState

log = logging.getLogger(__name__)

Open: TypeAlias = Callable[[str], ctypes.CDLL]
_DIGEST_BYTES: Final = {"sha256": 32, "sha1": 20}
# Room for a library whose structure is longer, so that it cannot write past ours.
_SPARE: Final = ("spare", ctypes.c_ubyte * 128)


class Resumable(Protocol):
    """A hash in a library's structure; see `hashing.Hasher`."""

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the digest."""

    def save(self) -> HashState:
        """Return the state."""


class Make(Protocol):
    """Begins a hash, at a saved state if one is given."""

    def __call__(self, algorithm: str, state: HashState | None = None) -> Resumable:
        """Return it; `algorithm` is sha256 or sha1."""


def _crypto_context(words: int, after_block: tuple[str, ...]) -> type[ctypes.Structure]:
    class Context(ctypes.Structure):
        _fields_ = (
            ("words", ctypes.c_uint32 * words),
            ("bits_low", ctypes.c_uint32),
            ("bits_high", ctypes.c_uint32),
            ("block", ctypes.c_ubyte * BLOCK_BYTES),
            *((name, ctypes.c_uint) for name in after_block),
            _SPARE,
        )

    return Context


def _nettle_context(words: int) -> type[ctypes.Structure]:
    class Context(ctypes.Structure):
        _fields_ = (
            ("words", ctypes.c_uint32 * words),
            ("blocks", ctypes.c_uint64),
            ("held", ctypes.c_uint),
            ("block", ctypes.c_ubyte * BLOCK_BYTES),
            _SPARE,
        )

    return Context


class Libcrypto:
    """OpenSSL's older functions, which libcrypto has kept."""

    NAMES: ClassVar = ("libcrypto.so.3", "libcrypto.so.4", "libcrypto.so.1.1", "libcrypto.so")
    _CONTEXTS: ClassVar = {
        "sha256": _crypto_context(WORDS["sha256"], ("held", "digest_bytes")),
        "sha1": _crypto_context(WORDS["sha1"], ("held",)),
    }

    def __init__(self, library: ctypes.CDLL, algorithm: str, state: HashState | None) -> None:
        self._algorithm = algorithm
        self._update = library[f"{algorithm.upper()}_Update"]
        self._final = library[f"{algorithm.upper()}_Final"]
        # Any: ctypes gives a structure's fields no types.
        self._context: Any = self._CONTEXTS[algorithm]()
        _must(library[f"{algorithm.upper()}_Init"](ctypes.byref(self._context)))
        if state is not None:
            bits = state.byte_count * 8
            self._context.bits_low = bits & 0xFFFFFFFF
            self._context.bits_high = bits >> 32
            _load(self._context, state)

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        start, size = _memory(data)
        if size:
            _must(self._update(ctypes.byref(self._context), start, size))

    def hexdigest(self) -> str:
        """Return the digest."""
        digest = ctypes.create_string_buffer(_DIGEST_BYTES[self._algorithm])
        _must(self._final(digest, ctypes.byref(self._context)))
        return digest.raw.hex()

    def save(self) -> HashState:
        """Return the state."""
        bits = self._context.bits_high << 32 | self._context.bits_low
        return _saved(self._algorithm, self._context, bits // 8)


class Libnettle:
    """Nettle 3: its functions answer nothing, and a digest's length is an argument."""

    # Only by the number of that interface: the next one's digest functions take other arguments.
    NAMES: ClassVar = ("libnettle.so.8", "libnettle.so.7")
    _CONTEXTS: ClassVar = {name: _nettle_context(words) for name, words in WORDS.items()}

    def __init__(self, library: ctypes.CDLL, algorithm: str, state: HashState | None) -> None:
        self._algorithm = algorithm
        self._update = library[f"nettle_{algorithm}_update"]
        self._digest = library[f"nettle_{algorithm}_digest"]
        self._context: Any = self._CONTEXTS[algorithm]()
        library[f"nettle_{algorithm}_init"](ctypes.byref(self._context))
        if state is not None:
            self._context.blocks = state.byte_count // BLOCK_BYTES
            _load(self._context, state)

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        start, size = _memory(data)
        if size:
            self._update(ctypes.byref(self._context), size, start)

    def hexdigest(self) -> str:
        """Return the digest."""
        size = _DIGEST_BYTES[self._algorithm]
        digest = ctypes.create_string_buffer(size)
        self._digest(ctypes.byref(self._context), ctypes.c_size_t(size), digest)
        return digest.raw.hex()

    def save(self) -> HashState:
        """Return the state."""
        context = self._context
        return _saved(self._algorithm, context, context.blocks * BLOCK_BYTES + context.held)


def find(open_library: Open) -> Make | None:
    """Return the first library's hashes that prove right, None where there is none."""
    for kind in (Libcrypto, Libnettle):
        for name in kind.NAMES:
            try:
                make = _maker(kind, open_library(name))
                if all(_proves_right(make, algorithm) for algorithm in WORDS):
                    log.debug("hashing by %s", name)
                    return make
            except (OSError, AttributeError, RuntimeError, ValueError) as error:
                log.debug("library name=%s unusable: %s", name, error)
    return None


def _maker(kind: type[Libcrypto | Libnettle], library: ctypes.CDLL) -> Make:
    def make(algorithm: str, state: HashState | None = None) -> Resumable:
        return kind(library, algorithm, state)

    return make


def _proves_right(make: Make, algorithm: str) -> bool:
    """Hash a text in pieces, saving and restoring between them, and compare with `hashlib`."""
    text = bytes(range(251)) * 3
    hasher = make(algorithm)
    start = 0
    for end in (0, 1, 63, 64, 65, 128, 250, 511, len(text)):
        hasher.update(memoryview(bytearray(text[start:end])))
        hasher = make(algorithm, HashState.from_wire(hasher.save().to_wire()))
        start = end
    return hasher.hexdigest() == hashlib.new(algorithm, text, usedforsecurity=False).hexdigest()


def _memory(data: bytes | memoryview) -> tuple[Any, ctypes.c_size_t]:
    """Return what a C function needs to read bytes; a writable view is not copied."""
    if isinstance(data, memoryview) and (data.readonly or not data.nbytes):
        data = bytes(data)
    if isinstance(data, bytes):
        return data, ctypes.c_size_t(len(data))
    return ctypes.byref(ctypes.c_char.from_buffer(data)), ctypes.c_size_t(data.nbytes)


def _load(context: Any, state: HashState) -> None:
    context.words[:] = state.words
    context.block[: len(state.tail)] = state.tail
    context.held = len(state.tail)


def _saved(algorithm: str, context: Any, byte_count: int) -> HashState:
    tail = bytes(context.block[: context.held])
    return HashState(algorithm, tuple(context.words), byte_count, tail)


def _must(result: int) -> None:
    if result != 1:
        raise RuntimeError("libcrypto refused to hash")
