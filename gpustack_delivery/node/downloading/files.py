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
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.adapters.hashing import Hasher
from gpustack_delivery.errors import DiskFault, HostFault, Reason
from gpustack_delivery.node.downloading.answers import Body
from gpustack_delivery.node.downloading.fetching import RETRIES, Fetcher, Segment, Source
from gpustack_delivery.node.downloading.ledger import Target
from gpustack_delivery.node.downloading.writing import Writer
from gpustack_delivery.node.workspace import Workspace, occupied_bytes

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Shape:
    """How finely files are cut, and how much patience a source gets.

    Args:
        segment_bytes: bytes that are asked for and hashed at once.
        checkpoint_bytes: bytes of hashed content between two checkpoints.
        retries: requests in a row that may bring nothing before the source is given up.
        direct: whether files of several segments are written past the page cache.
    """

    segment_bytes: int = 4 << 20
    checkpoint_bytes: int = 16 << 20
    retries: int = RETRIES
    direct: bool = False


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
        shape: how the rest is cut and written.
        workspace: what it lies in, and is told of the room that it takes.
    """

    def __init__(
        self, target: Target, hasher: Hasher, offset: int, shape: Shape, workspace: Workspace
    ) -> None:
        self._shape = shape
        self._workspace = workspace
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
        self._last_taker: Fetcher | None = None
        self._proven = False
        self._ignores_ranges = False
        self._ready: dict[int, Piece] = {}
        self._writer: Writer | None = None

    @property
    def size(self) -> int:
        """Return the file's final size."""
        return self.target.entry.size_bytes

    @property
    def in_one_piece(self) -> bool:
        """Say whether the file is fetched, hashed and written by one thread in one go."""
        return self.offset == 0 and self.size <= self._shape.segment_bytes

    @property
    def pieces(self) -> int:
        """Return how many segments are not yet taken."""
        return -(-(self.size - self._taken) // self._shape.segment_bytes)

    @property
    def all_taken(self) -> bool:
        """Say whether no byte is left to ask for."""
        return self._taken >= self.size

    @property
    def idle(self) -> bool:
        """Say whether nothing of the file is being fetched or waits to be hashed."""
        return self._in_flight == 0 and not self._ready

    @property
    def in_flight(self) -> bool:
        """Say whether some segment is being fetched."""
        return self._in_flight > 0

    def may_take(self, fetcher: Fetcher) -> bool:
        """Say whether a fetcher may have the next segment."""
        if self.all_taken:
            return False
        if self.continues(fetcher):
            return True
        if self._in_flight:
            return self._proven and not self._ignores_ranges
        # An answer that is still open brings the next segment by itself; its fetcher comes for it.
        return self._last_taker is None or not self.continues(self._last_taker)

    def continues(self, fetcher: Fetcher) -> bool:
        """Say whether a fetcher's open answer goes on with this file's next segment."""
        return fetcher.streaming is self._source

    def take(self, fetcher: Fetcher, buffer: memoryview) -> Piece:
        """Hand out the next segment."""
        self._last_taker = fetcher
        start, length = self._taken, self._shape.segment_bytes
        if self._shape.direct:  # after an interruption: up to a page's beginning first
            length -= start % mmap.PAGESIZE
        self._taken = min(start + length, self.size)
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
        direct = self._shape.direct and not self.in_one_piece
        self._writer = Writer(
            self._workspace.tree,
            self.target.entry.path,
            self.offset,
            direct=direct,
            grew=self._workspace.grew,
        )

    def make_room(self, segment: Segment) -> None:
        """Reserve the blocks of a segment of the open file that is about to be asked for.

        Raises:
            OSError: the filesystem refused.
        """
        assert self._writer is not None  # noqa: S101 - `open` comes first
        self._writer.reserve(segment.start + segment.length, self.size)

    @property
    def opened(self) -> bool:
        """Say whether the file is open."""
        return self._writer is not None

    def write(self, segment: Segment) -> None:
        """Put what a segment of the open file received on its place.

        Raises:
            OSError: the disk is full or broken.
        """
        assert self._writer is not None  # noqa: S101 - as above
        self._writer.write(segment.view[: segment.received], segment.start)

    def close(self) -> None:
        """Close the file, if it is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def give_back(self) -> None:
        """Close a file that is not gone on with; if it is open, only what is hashed stays of it.

        Raises:
            OSError: the filesystem refused; the file is closed.
        """
        try:
            if self._writer is not None:
                self._writer.cut(self.offset)
        finally:
            self.close()

    def remove(self) -> None:
        """Close and delete the file.

        Raises:
            OSError: the filesystem refused.
        """
        self.close()
        with suppress(FileNotFoundError):
            facts = self.target.destination.lstat()
            self.target.destination.unlink()
            self._workspace.grew(-occupied_bytes(facts))


def disk_fault(error: OSError | HostFault) -> DiskFault:
    """Return what a refusal of the filesystem, or what was found on it, means for an attempt."""
    cause = error if isinstance(error, OSError) else error.__cause__
    detail = getattr(error, "detail", "") or str(error)
    if not isinstance(cause, OSError):
        return DiskFault(Reason.SOURCE_UNAVAILABLE, str(error), detail=detail)
    name = errno.errorcode.get(cause.errno or 0, "unknown error")
    if cause.errno in _FULL:
        message = f"the disk is full, in bytes or in inodes: {name}"
        return DiskFault(Reason.INSUFFICIENT_CAPACITY, message, detail=detail)
    message = f"the node's disk failed: {name}"
    return DiskFault(Reason.SOURCE_UNAVAILABLE, message, detail=detail)
