"""A file while it arrives: which bytes are asked for, which are hashed, and its place on disk.

A file is cut into segments that are taken in order. The first one is alone until a source has
answered with content, so that a source that refuses or ignores ranges is noticed by one request.
What arrives is written at once and hashed in byte order; `offset` is how far the hash has come, and
the only progress that counts for a resume.

Every method but `open`, `make_room`, `write` and `close` is called under the lock of `work`.
Rules: NS-DL-14, NS-DL-17, NS-DL-18.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.adapters import kernel
from gpustack_delivery.adapters.hashing import Hasher
from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.downloading.answers import Body
from gpustack_delivery.node.downloading.fetching import RETRIES, Fetcher, Segment, Source
from gpustack_delivery.node.downloading.ledger import Target

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
RESERVED_BYTES: Final = 64 << 20
_NO_PREALLOCATION: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class Shape:
    """How finely files are cut, and how much patience a source gets.

    Args:
        segment_bytes: bytes that are asked for and hashed at once.
        checkpoint_bytes: bytes of hashed content between two checkpoints.
        retries: requests in a row that may bring nothing before the source is given up.
    """

    segment_bytes: int = 4 << 20
    checkpoint_bytes: int = 16 << 20
    retries: int = RETRIES


class Buffers:
    """Page-aligned memory for segments, reused within an attempt and freed with it."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._free: deque[memoryview] = deque()
        self.lent = 0

    def lend(self) -> memoryview:
        """Return a segment's memory."""
        self.lent += 1
        if self._free:
            return self._free.pop()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, self._segment_bytes, flags=flags)
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(memory)

    def take_back(self, buffer: memoryview, *, keep: bool) -> None:
        """Accept a segment's memory back, to lend it again or to free it."""
        self.lent -= 1
        if keep:
            self._free.append(buffer)


@dataclass(slots=True)
class Piece:
    """A segment of a file with the buffer under it."""

    file: File
    segment: Segment
    buffer: memoryview


class File:
    """One file that is not whole yet.

    Args:
        target: what it must become.
        hasher: has seen the first `offset` bytes.
        offset: how many bytes are on disk and hashed.
        segment_bytes: how the rest is cut.
    """

    def __init__(self, target: Target, hasher: Hasher, offset: int, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self.target = target
        self.hasher = hasher
        self.offset = offset
        self.saved = offset  # what the ledger knows
        self.noted = offset  # what it is about to know
        self.finished = False
        self.wrong = False
        self.unsafe = False  # a sync of it has failed
        self._source = Source(target.url, target.entry.size_bytes)
        self._taken = offset
        self._in_flight = 0
        self._proven = False
        self._ignores_ranges = False
        self._ready: dict[int, Piece] = {}
        self._descriptor = -1
        self._reserving = threading.Lock()
        self._reserved = offset

    @property
    def size(self) -> int:
        """Return the file's final size."""
        return self.target.entry.size_bytes

    @property
    def in_one_piece(self) -> bool:
        """Say whether the file is fetched, hashed and written by one thread in one go."""
        return self.offset == 0 and self.size <= self._segment_bytes

    @property
    def pieces(self) -> int:
        """Return how many segments are not yet taken."""
        return -(-(self.size - self._taken) // self._segment_bytes)

    @property
    def all_taken(self) -> bool:
        """Say whether no byte is left to ask for."""
        return self._taken >= self.size

    @property
    def idle(self) -> bool:
        """Say whether nothing of the file is being fetched or waits to be hashed."""
        return self._in_flight == 0 and not self._ready

    def may_take(self, fetcher: Fetcher) -> bool:
        """Say whether a fetcher may have the next segment."""
        if self.all_taken:
            return False
        if fetcher.streaming is self._source:
            return True
        return self._in_flight == 0 or (self._proven and not self._ignores_ranges)

    def continues(self, fetcher: Fetcher) -> bool:
        """Say whether a fetcher's open answer goes on with this file's next segment."""
        return fetcher.streaming is self._source

    def take(self, buffer: memoryview) -> Piece:
        """Hand out the next segment."""
        start = self._taken
        self._taken = min(start + self._segment_bytes, self.size)
        self._in_flight += 1
        segment = Segment(self._source, start, buffer[: self._taken - start])
        return Piece(self, segment, buffer)

    def accepted(self, body: Body) -> bool:
        """Note that a source has answered with content; True when that is news."""
        before = (self._proven, self._ignores_ranges)
        self._proven = True
        self._ignores_ranges = self._ignores_ranges or body.whole
        return before != (self._proven, self._ignores_ranges)

    def arrived(self, piece: Piece) -> bool:
        """Note that a segment is on disk; True when it is the next one to hash."""
        self._in_flight -= 1
        self._ready[piece.segment.start] = piece
        return piece.segment.start == self.offset

    def dropped(self) -> None:
        """Note that a segment needs no hashing: nothing came, or the file is one piece."""
        self._in_flight -= 1

    @property
    def has_next_to_hash(self) -> bool:
        """Say whether the segment that follows what is hashed has come."""
        return self.offset in self._ready

    def next_to_hash(self) -> Piece | None:
        """Hand out the segment that follows what is hashed, if it has come."""
        return self._ready.pop(self.offset, None)

    def open(self) -> None:
        """Open or make the file, and cut it to what is hashed.

        Raises:
            OSError: the filesystem refused.
        """
        destination = self.target.destination
        destination.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(destination, flags, 0o644)
        os.ftruncate(self._descriptor, self.offset)
        self._reserved = self.offset

    def make_room(self, segment: Segment) -> None:
        """Reserve the blocks of a segment that is about to be asked for.

        A stretch of several segments at a time: one call for a whole large file holds everything up
        on filesystems that take long for it, one for each segment scatters its blocks.

        Raises:
            OSError: the filesystem refused; what it had reserved of the stretch is given back.
        """
        with self._reserving:
            while self._reserved < segment.start + segment.length:
                stretch = min(RESERVED_BYTES, self.size - self._reserved)
                try:
                    os.posix_fallocate(self._descriptor, self._reserved, stretch)
                except OSError as error:
                    # What other threads write lies before the stretch.
                    os.ftruncate(self._descriptor, self._reserved)
                    if error.errno not in _NO_PREALLOCATION:
                        raise
                    stretch = self.size - self._reserved
                self._reserved += stretch

    @property
    def opened(self) -> bool:
        """Say whether the file is open."""
        return self._descriptor >= 0

    def write(self, segment: Segment) -> None:
        """Put what a segment received on its place, and have the kernel begin to write it out.

        Raises:
            OSError: the disk is full or broken.
        """
        view, start = segment.view[: segment.received], segment.start
        written = 0
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], start + written)
        kernel.start_writeback(self._descriptor, start, len(view))

    def close(self) -> None:
        """Close the file, if it is open."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # Whatever close could report was reported by the sync before it, or is lost with a file
            # that is not finished.
            with suppress(OSError):
                os.close(descriptor)


def disk_fault(error: OSError | HostFault) -> AttemptFault:
    """Return what a refusal of the filesystem means for an attempt."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    name = errno.errorcode.get(number or 0, "unknown error")
    if number in _FULL:
        return AttemptFault(Reason.INSUFFICIENT_CAPACITY, f"the disk is full: {name}")
    return AttemptFault(Reason.SOURCE_UNAVAILABLE, f"the node's disk failed: {name}")
