"""What a node's disks say, without needing a disk of that size.

A node has one filesystem for kubelet and the cache unless a second one is placed under a folder of
it. Sizes are free to choose; what is taken is the bytes that really lie in the cache, plus other
data that a test sets with `fill`. So a collection that removes trees really lowers the usage. Syncs
reach the real disk and are written down in order; a test can make them fail.

`Disk` satisfies the implementation's port of the same name structurally.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SIZE_BYTES = 100 * 2**30


@dataclass(frozen=True, slots=True)
class Usage:
    """A filesystem's size and what is taken of it."""

    total_bytes: int
    used_bytes: int


@dataclass(slots=True)
class _Filesystem:
    """A filesystem that begins at `root`; `other_bytes` is what does not lie in the cache."""

    root: Path
    device: str
    total_bytes: int
    other_bytes: int = 0


@dataclass(slots=True)
class _Failure:
    operation: str
    error_number: int
    below: Path
    times: int | None


@dataclass(frozen=True, slots=True)
class Sync:
    """One sync that was asked for: `sync_file` or `sync_directory`, of what, with what luck."""

    operation: str
    path: Path
    failed: bool = False


def unchanged(error: OSError) -> Exception:
    """Return the error itself: what the emulator raises when nobody asks for another class."""
    return error


class Disk:
    """The filesystems of one node."""

    direct_writes = False

    def __init__(
        self,
        root: Path,
        cache_root: Path,
        *,
        total_bytes: int = DEFAULT_SIZE_BYTES,
        translate: Callable[[OSError], Exception] = unchanged,
    ) -> None:
        """Place one filesystem at a node's folder.

        Args:
            root: the node's folder.
            cache_root: the folder whose real bytes count as taken.
            translate: turns an OSError into what the thing under test expects of its port.
        """
        self.syncs: list[Sync] = []
        self._cache_root = cache_root
        self._translate = translate
        self._filesystems = [_Filesystem(root, "259:1", total_bytes)]
        self._failures: list[_Failure] = []
        self._lock = threading.Lock()

    # what the port asks

    def usage(self, path: Path) -> Usage:
        """Return the usage of the filesystem that holds a path."""
        if (failure := self._planned("usage", path)) is not None:
            raise self._translate(failure) from failure
        with self._lock:
            filesystem = self._holding(path)
            used_bytes = filesystem.other_bytes + self._stored_bytes(filesystem)
            return Usage(filesystem.total_bytes, min(used_bytes, filesystem.total_bytes))

    def device(self, path: Path) -> str:
        """Return the `major:minor` of the filesystem that holds a path."""
        with self._lock:
            return self._holding(path).device

    def sync_file(self, path: Path) -> None:
        """Make a regular file's bytes durable on the real disk."""
        self._sync("sync_file", path, os.O_RDONLY)

    def sync_directory(self, path: Path) -> None:
        """Make a directory's entries durable on the real disk."""
        self._sync("sync_directory", path, os.O_RDONLY | os.O_DIRECTORY)

    # what a test sets; `path` chooses a filesystem, the cache's unless told otherwise

    def fill(self, percent: float, path: Path | None = None) -> None:
        """Let other data take so much that the filesystem's usage is `percent` of its size now.

        Raises:
            ValueError: when the cache already takes more.
        """
        with self._lock:
            filesystem = self._holding(path or self._cache_root)
            wanted_bytes = round(filesystem.total_bytes * percent / 100)
            if (other_bytes := wanted_bytes - self._stored_bytes(filesystem)) < 0:
                raise ValueError(
                    f"the cache takes more than {percent}% already; resize() its filesystem first"
                )
            filesystem.other_bytes = other_bytes

    def resize(self, total_bytes: int, path: Path | None = None) -> None:
        """Give a filesystem another size; other data keeps its bytes."""
        with self._lock:
            self._holding(path or self._cache_root).total_bytes = total_bytes

    def place(self, root: Path, device: str, total_bytes: int = DEFAULT_SIZE_BYTES) -> None:
        """Let a filesystem of its own begin at a folder."""
        with self._lock:
            self._filesystems.append(_Filesystem(root, device, total_bytes))

    def fail(
        self,
        operation: str,
        error_number: int,
        *,
        below: Path = Path("/"),
        times: int | None = None,
    ) -> None:
        """Let `usage`, `sync_file` or `sync_directory` fail below a folder, so many times or until
        `heal`.

        Raises:
            ValueError: for another operation.
        """
        if operation not in {"usage", "sync_file", "sync_directory"}:
            raise ValueError(
                f"cannot fail {operation!r}: choose usage, sync_file or sync_directory"
            )
        with self._lock:
            self._failures.append(_Failure(operation, error_number, below, times))

    def heal(self) -> None:
        """Forget every failure that was asked for."""
        with self._lock:
            self._failures.clear()

    def _holding(self, path: Path) -> _Filesystem:
        """Return the filesystem that begins nearest above a path; the first for any other path."""
        above = [f for f in self._filesystems if path.absolute().is_relative_to(f.root)]
        return max(above, key=lambda f: len(f.root.parts), default=self._filesystems[0])

    def _stored_bytes(self, filesystem: _Filesystem) -> int:
        if self._holding(self._cache_root) is not filesystem:
            return 0
        return sum(
            _taken_bytes(Path(folder, name))
            for folder, _, files in os.walk(self._cache_root)
            for name in files
        )

    def _sync(self, operation: str, path: Path, flags: int) -> None:
        try:
            if (failure := self._planned(operation, path)) is not None:
                raise failure
            descriptor = os.open(path, flags)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._note(Sync(operation, path, failed=True))
            raise self._translate(error) from error
        self._note(Sync(operation, path))

    def _note(self, sync: Sync) -> None:
        with self._lock:
            self.syncs.append(sync)

    def _planned(self, operation: str, path: Path) -> OSError | None:
        """Return the failure that a test asked for, and count it."""
        with self._lock:
            for failure in self._failures:
                if failure.operation == operation and path.absolute().is_relative_to(failure.below):
                    if failure.times is not None:
                        failure.times -= 1
                        if failure.times <= 0:
                            self._failures.remove(failure)
                    number = failure.error_number
                    return OSError(number, os.strerror(number), str(path))
        return None


def _taken_bytes(path: Path) -> int:
    """Return what a file takes: its size, or its blocks while sparse; 0 when it has gone."""
    try:
        facts = path.lstat()
    except OSError:
        return 0
    return min(facts.st_size, facts.st_blocks * 512)
