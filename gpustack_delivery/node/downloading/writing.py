"""An open file that segments are put into, through the page cache or past it.

Through the page cache the kernel is told to begin writing at once, so that dirty pages never pile
up; a Pod that reads soon after finds the weights in memory. Past it (`O_DIRECT`) the speed is the
disk's own and nothing else is pushed out of memory, but the first Pod reads from the disk.

Direct writing takes whole pages from page-aligned memory. What is no whole page, the tail of a file
and the first segment of one that was interrupted in the middle of a page, goes through the page
cache, and so does everything where the filesystem refuses: slower is better than not at all.

No link is followed, neither the file's own name nor one on the way to it, and a file that is given
up early gives back what was set aside for it. `files` owns one for each file it has begun.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from mmap import PAGESIZE
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters import kernel
from gpustack_delivery.node.workspace import occupied_bytes

RESERVED_BYTES: Final = 64 << 20
_REFUSED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
_NO_PREALLOCATION: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
# Without waiting: a pipe in a file's place is refused, where it would hold us up for ever.
_FLAGS: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class Writer:
    """A file open for writing; several threads may write different places of it.

    Args:
        tree: where it lies.
        path: its name there; what is missing of it is made.
        keep_bytes: what it holds already; the rest is cut off.
        direct: whether whole pages go past the page cache.
        grew: is told of the bytes that it takes on the disk, and gives back.

    Raises:
        OSError: the filesystem refused.
    """

    def __init__(
        self, tree: Path, path: str, keep_bytes: int, *, direct: bool, grew: Callable[[int], None]
    ) -> None:
        self._direct = -1
        with _folder(tree, path) as (folder, name):
            self._descriptor = os.open(name, _FLAGS | os.O_CREAT, 0o644, dir_fd=folder)
            try:
                self._taken = occupied_bytes(os.fstat(self._descriptor))
                if direct:
                    self._direct = _open_direct(name, folder)
            except BaseException:
                self.close()
                raise
        self._grew = grew
        self._entering = threading.Lock()  # into the file, as its filesystem lets one at a time in
        self._reserved = keep_bytes
        self._set_aside = keep_bytes  # how far of that the filesystem has really done so
        self._refused = self._direct < 0
        try:
            self.cut(keep_bytes)
        except BaseException:
            self.close()
            raise

    def reserve(self, end: int, size_bytes: int) -> None:
        """Have the filesystem set blocks aside up to a place, before bytes are asked for.

        A stretch of several segments at a time: one call for a whole large file holds everything up
        on filesystems that take long for it, one for each segment scatters its blocks.

        Args:
            end: where the blocks that are needed now end.
            size_bytes: the file's size in the end.

        Raises:
            OSError: there are not enough; what was reserved of the stretch is given back.
        """
        with self._entering:
            while self._reserved < end:
                stretch = min(RESERVED_BYTES, size_bytes - self._reserved)
                try:
                    os.posix_fallocate(self._descriptor, self._reserved, stretch)
                except OSError as error:
                    # What other threads write lies before the stretch.
                    os.ftruncate(self._descriptor, self._reserved)
                    if error.errno not in _NO_PREALLOCATION:
                        raise
                    stretch = size_bytes - self._reserved
                else:
                    self._set_aside += stretch
                    self._take(stretch)
                self._reserved += stretch

    def write(self, view: memoryview, start: int) -> None:
        """Put bytes at their place.

        Args:
            view: begins on a page of memory.

        Raises:
            OSError: the disk is full or broken.
        """
        written = 0
        if not (self._refused or start % PAGESIZE):
            written = self._write_direct(view[: len(view) - len(view) % PAGESIZE], start)
        rest = view[written:]
        if rest:
            with self._entering:  # who waits for a filesystem's own lock spins at first
                _write_all(self._descriptor, rest, start + written)
            kernel.start_writeback(self._descriptor, start + written, len(rest))

        if start >= self._set_aside:
            with self._entering:
                self._take(len(view))

    def cut(self, size_bytes: int) -> None:
        """Keep so many bytes and give the rest back, what was only set aside included.

        Raises:
            OSError: the filesystem refused.
        """
        os.ftruncate(self._descriptor, size_bytes)
        self._take(size_bytes - self._taken)

    def close(self) -> None:
        """Close the file."""
        for descriptor in (self._direct, self._descriptor):
            if descriptor >= 0:
                # Whatever close could report was reported by the sync before it, or is lost with a
                # file that is not finished.
                with suppress(OSError):
                    os.close(descriptor)

    def _take(self, size_bytes: int) -> None:
        self._taken += size_bytes
        self._grew(size_bytes)

    def _write_direct(self, pages: memoryview, start: int) -> int:
        """Write whole pages; return how many bytes of them were taken."""
        written = 0
        try:
            while written < len(pages) and not written % PAGESIZE:
                written += os.pwrite(self._direct, pages[written:], start + written)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            self._refused = True  # its pages are larger than ours, or it only seemed to agree
        return written


@contextmanager
def _folder(tree: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield the folder of a file below a tree, made where it is missing, and the file's own name.

    Raises:
        OSError: something else stands on the way, or the filesystem refused.
    """
    *above, name = path.split("/")
    folder = os.open(tree, _FOLDER)
    try:
        for step in above:
            try:
                below = os.open(step, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                with suppress(FileExistsError):  # by another file of it
                    os.mkdir(step, 0o755, dir_fd=folder)
                below = os.open(step, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)


def _open_direct(name: str, folder: int) -> int:
    """Return a second descriptor of a file, past the page cache; -1 where there is none."""
    try:
        return os.open(name, _FLAGS | os.O_DIRECT, dir_fd=folder)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        return -1


def _write_all(descriptor: int, view: memoryview, start: int) -> None:
    written = 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], start + written)
