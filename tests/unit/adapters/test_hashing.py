"""Resumable hashes agree with `hashlib` wherever they are cut, or say that they cannot be cut."""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import mmap
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack_delivery.adapters.hashing import Hasher, Hashing, HashState

ALGORITHMS = ("sha256", "gitsha1")


def expected(algorithm: str, content: bytes) -> str:
    """Say by `hashlib` alone what a file's digest is."""
    if algorithm == "sha256":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def resumed(hashing: Hashing, hasher: Hasher, algorithm: str, size: int, offset: int) -> Hasher:
    """Carry a hash over a restart: out as JSON text and back in."""
    state = hasher.save()
    assert state is not None
    copy = HashState.from_wire(json.loads(json.dumps(state.to_wire())))
    assert copy == state
    again = hashing.resume(copy, algorithm, size, offset)
    assert again is not None
    return again


def only(library: str) -> Callable[[str], ctypes.CDLL]:
    """Return how libraries are loaded on a machine that has one kind of them."""

    def load(name: str) -> ctypes.CDLL:
        if not name.startswith(library):
            raise OSError(name)
        return ctypes.CDLL(name)

    return load


@pytest.fixture(
    scope="module",
    params=["libcrypto", pytest.param("libnettle", marks=pytest.mark.needs("libnettle"))],
)
def hashing(request: pytest.FixtureRequest) -> Hashing:
    """Build the hashing of a machine with one library; these tests are about the resumable kind."""
    hashing = Hashing(open_library=only(request.param))
    assert hashing.resumable
    return hashing


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(
    content=st.binary(max_size=700),
    cuts=st.lists(st.integers(min_value=0, max_value=700), max_size=8),
)
def test_hash_survives_any_cut(
    hashing: Hashing, algorithm: str, content: bytes, cuts: list[int]
) -> None:
    """A hash saved and restored at any bytes ends as the hash of the whole."""
    hasher = hashing.start(algorithm, len(content))
    places = sorted({min(cut, len(content)) for cut in cuts} | {len(content)})
    start = 0
    for end in places:
        hasher.update(content[start:end])
        hasher = resumed(hashing, hasher, algorithm, len(content), end)
        start = end
    assert hasher.hexdigest() == expected(algorithm, content)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_views_are_read_in_place(hashing: Hashing, algorithm: str) -> None:
    """Writable views of a mapping, slices of it, and read-only views all count the same bytes."""
    content = bytes(range(256)) * 64
    with mmap.mmap(-1, len(content)) as buffer, memoryview(buffer) as view:
        view[:] = content
        hasher = hashing.start(algorithm, len(content))
        with view[:5000] as first, view[5000:5000] as nothing, view[5000:].toreadonly() as rest:
            for piece in (first, nothing, rest):
                hasher.update(piece)
        assert hasher.hexdigest() == expected(algorithm, content)


def test_count_beyond_32_bits_survives(hashing: Hashing) -> None:
    """A state 60 GB into a file keeps its byte count, which is part of the digest."""
    offset = 60_000_000_000
    words = tuple(range(1, 9))
    state = HashState("sha256", words, offset, bytes(offset % 64))
    one = hashing.resume(state, "sha256", offset + 3, offset)
    other = hashing.resume(
        HashState("sha256", words, offset - 2**32, bytes((offset - 2**32) % 64)),
        "sha256",
        offset + 3,
        offset - 2**32,
    )
    assert one is not None
    assert other is not None
    assert one.save() == state
    one.update(b"end")
    other.update(b"end")
    assert one.hexdigest() != other.hexdigest()


@pytest.mark.parametrize(
    ("algorithm", "size", "offset"),
    [("gitsha1", 200, 100), ("sha256", 200, 99), ("sha256", 200, 101)],
)
def test_state_of_another_place_is_not_taken(
    hashing: Hashing, algorithm: str, size: int, offset: int
) -> None:
    """A state of another algorithm or offset is refused: a wrong checkpoint is not continued."""
    hasher = hashing.start("sha256", 200)
    hasher.update(bytes(100))
    state = hasher.save()
    assert state is not None
    assert hashing.resume(state, algorithm, size, offset) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"algorithm": "md5"},
        {"algorithm": "sha1"},
        {"words": "00"},
        {"words": "zz"},
        {"words": 7},
        {"byteCount": -1},
        {"byteCount": 3},
        {"byteCount": "64"},
        {"byteCount": 1 << 61},
        {"tail": "00"},
        {"tail": None},
    ],
)
def test_damaged_state_is_a_value_error(hashing: Hashing, damage: dict[str, object]) -> None:
    """Every damaged field of a stored state is found when it is read."""
    hasher = hashing.start("sha256", 64)
    hasher.update(bytes(64))
    state = hasher.save()
    assert state is not None
    with pytest.raises(ValueError, match=r"hash state|hexadecimal|[Hh]ex"):
        HashState.from_wire({**state.to_wire(), **damage})


@pytest.mark.parametrize("wire", [None, [], "text", {}, 5])
def test_what_is_no_state_is_a_value_error(wire: object) -> None:
    """A record of another shape is refused the same way."""
    with pytest.raises(ValueError, match="hash state"):
        HashState.from_wire(wire)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_a_library_hashes_are_right_and_cannot_be_saved(
    algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no library loads, files are verified without checkpoints, and the log says so."""

    def nothing(name: str) -> ctypes.CDLL:
        raise OSError(name)

    with caplog.at_level(logging.WARNING):
        plain = Hashing(open_library=nothing)
    assert "no usable libcrypto or libnettle" in caplog.text
    assert not plain.resumable
    hasher = plain.start(algorithm, 5)
    hasher.update(memoryview(bytearray(b"hello")))
    assert hasher.save() is None
    assert hasher.hexdigest() == expected(algorithm, b"hello")
    assert plain.resume(HashState("sha256", (0,) * 8, 0, b""), "sha256", 5, 0) is None


def test_a_library_that_hashes_wrongly_is_not_used() -> None:
    """The self-test turns down libraries whose SHA-1 answers another function's digests."""

    class Wrong:
        def __init__(self, library: ctypes.CDLL) -> None:
            self._library = library

        def __getitem__(self, name: str) -> object:
            return self._library[name.replace("SHA1", "SHA256").replace("sha1", "sha256")]

    def open_wrong(name: str) -> ctypes.CDLL:
        return Wrong(ctypes.CDLL(name))  # type: ignore[return-value]  # a stand-in with the one method used

    assert not Hashing(open_library=open_wrong).resumable


@pytest.mark.needs("libnettle")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_state_is_good_in_another_library(algorithm: str) -> None:
    """A node that comes up with the other library after a restart goes on where it was."""
    crypto, nettle = Hashing(only("libcrypto")), Hashing(only("libnettle"))
    content = bytes(range(256)) * 5
    hasher = crypto.start(algorithm, len(content))
    for offset, other in ((100, nettle), (449, crypto), (1000, nettle)):
        hasher.update(content[{100: 0, 449: 100, 1000: 449}[offset] : offset])
        hasher = resumed(other, hasher, algorithm, len(content), offset)
    hasher.update(content[1000:])
    assert hasher.hexdigest() == expected(algorithm, content)
