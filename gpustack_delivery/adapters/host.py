"""The node itself: its time, its filesystems and its mount table.

This is the only module of the implementation that reads the time or sleeps. Its three classes
stand behind the ports Clock, Disk and Mounts; the kernel's refusals leave as `HostFault` with the
OSError as their cause, so that a caller who must tell a full disk from a broken one can.

The plugin and the worker build these at start. Rules: NS-MNT-05.
"""

from __future__ import annotations

import errno
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters import kernel
from gpustack_delivery.errors import HostFault
from gpustack_delivery.ports import Mount, Usage

_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
_TABLE_READS: Final = 20
PATIENCE_SECONDS: Final = 2.0
_PIECE_BYTES: Final = 64 << 10
_REMEMBERED_LINES: Final = 4096
_HARMLESS: Final = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""
        return time.time()  # noqa: TID251 - this is the clock everyone else asks

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a condition the caller holds, at most `seconds` when given."""
        condition.wait(seconds)


class KernelDisk:
    """Facts of real filesystems, and the calls that make bytes outlive a power cut.

    Args:
        direct_writes: whether large files are to be written past the page cache.
    """

    direct_writes = False

    def __init__(self, *, direct_writes: bool = False) -> None:
        self.direct_writes = direct_writes

    def usage(self, path: Path) -> Usage:
        """Return size and use; what only root may still fill counts as used."""
        with _host_fault("read the usage of the filesystem", path):
            facts = os.statvfs(path)
        total = facts.f_blocks * facts.f_frsize
        return Usage(total_bytes=total, used_bytes=total - facts.f_bavail * facts.f_frsize)

    def device(self, path: Path) -> str:
        """Return `major:minor` of the filesystem that holds a path."""
        with _host_fault("read the device of the filesystem", path):
            number = path.stat().st_dev
        return f"{os.major(number)}:{os.minor(number)}"

    def sync_file(self, path: Path) -> None:
        """Make a regular file's bytes, size and mode durable."""
        _sync(path, os.O_RDONLY | os.O_NOFOLLOW)

    def sync_directory(self, path: Path) -> None:
        """Make a directory's entries durable."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


class KernelMounts:
    """The mount table of this process's mount namespace; changing it needs CAP_SYS_ADMIN.

    Args:
        table_file: where the kernel shows the table.
    """

    def __init__(self, table_file: Path = Path("/proc/self/mountinfo")) -> None:
        self._table_file = table_file
        self._steady = threading.Lock()

    def table(self) -> tuple[Mount, ...]:
        """Return every live mount in mount order.

        The kernel hands the table out in pieces that may not fit together while mounts change. It
        tells who polls the file of a change since it was opened or last polled; a reading without
        one is a consistent table.
        """
        with (
            self._calm(),
            _host_fault("read the mount table", self._table_file),
            self._table_file.open("rb", buffering=0) as file,
        ):
            changes = select.poll()
            changes.register(file, select.POLLPRI)
            for _ in range(_TABLE_READS):
                lines = b"".join(iter(partial(file.read, _PIECE_BYTES), b"")).splitlines()
                if not changes.poll(0):
                    return tuple(_parse_line(line) for line in lines)
                file.seek(0)
        raise HostFault("the mount table keeps changing while it is read; it will be read again")

    def bind_read_only(self, source: Path, target: Path) -> None:
        """Bind a directory read-only, nosuid and nodev; either all of it holds or nothing stays."""
        with self._calm(), _host_fault("mount the model read-only", target):
            try:
                kernel.attach_read_only(source, target)
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
                kernel.attach_by_stages(source, target)
        if not _is_harmless(target):
            self.unmount(target)
            raise HostFault(
                "the kernel did not keep the mount read-only, so it was taken off again",
                detail=f"target={target}",
            )

    def unmount(self, target: Path) -> None:
        """Take the topmost mount off a target; one that is not mounted is no error."""
        with self._calm(), _host_fault("unmount the target", target):
            try:
                kernel.unmount(target)
            except OSError as error:
                if error.errno not in {errno.EINVAL, errno.ENOENT}:
                    raise

    @contextmanager
    def _calm(self) -> Iterator[None]:
        """Keep our own changes and readings apart, unless somebody takes unusually long.

        Without it eight mounts at a time leave no reading whole, however often it is made again.
        Nothing else depends on it, so nobody waits for a call that hangs on a dead filesystem.
        """
        ours = self._steady.acquire(timeout=PATIENCE_SECONDS)
        try:
            yield
        finally:
            if ours:
                self._steady.release()


def _is_harmless(target: Path) -> bool:
    """Say whether a mount is read-only, nosuid and nodev; one that does not answer is not."""
    with suppress(OSError):
        return os.statvfs(target).f_flag & _HARMLESS == _HARMLESS
    return False


@lru_cache(_REMEMBERED_LINES)  # a mount call reads the table a few times, and most lines are old
def _parse_line(line: bytes) -> Mount:
    """Read one line: id, parent, device, root, target, options, and more that is not needed."""
    _, _, device, root, target, options = line.split(b" ")[:6]
    return Mount(
        target=Path(_unescape(target)),
        root=_unescape(root),
        device=device.decode(),
        read_only=b"ro" in options.split(b","),
    )


def _unescape(field: bytes) -> str:
    """Undo the kernel's octal escapes of space, tab, newline and backslash."""
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), field))


def _sync(path: Path, flags: int) -> None:
    with _host_fault("sync to disk", path):
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _host_fault(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown error")
        raise HostFault(f"the node could not {doing}: {code}", detail=f"path={path}") from error
