"""Mount tables of emulated nodes: one that is only a table, and the kernel's own in a private
namespace.

The emulated table needs no rights: a bind is a line in it, the target stays an empty folder on the
real disk, and whoever wants to see through the mount (`cluster.Node.read_file`) asks the table
where it leads. Like the kernel's it stacks, it outlives the process that mounted, and it knows
nothing of who mounted.

The kernel's table is for root. Before the first bind the calling thread leaves for a mount
namespace of its own, which threads it starts inherit and which vanishes with the process: nothing
is left behind on the machine.

Both satisfy the implementation's port of the same name structurally.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulator.disk import Disk, unchanged

Translate = Callable[[OSError], Exception]


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of a mount table: where it is, which part of which device it shows, and how."""

    target: Path
    root: str
    device: str  # major:minor
    read_only: bool


class MountTable:
    """The mount table of one node, kept in memory."""

    def __init__(self, disk: Disk, *, translate: Translate = unchanged) -> None:
        """Start with nothing mounted; `translate` turns an OSError into what the user expects."""
        self._disk = disk
        self._translate = translate
        self._mounts: list[Mount] = []
        self._failures: list[OSError] = []
        self._lock = threading.Lock()

    def table(self) -> tuple[Mount, ...]:
        """Return every live mount, stacked ones repeated, in mount order."""
        with self._lock:
            return tuple(self._mounts)

    def bind_read_only(self, source: Path, target: Path) -> None:
        """Bind a folder read-only at another one; both must exist, as for the kernel."""
        self.bind(source, target, read_only=True)

    def bind(self, source: Path, target: Path, *, read_only: bool) -> None:
        """Bind a folder at another one."""
        try:
            self._may_fail()
            for folder in (source, target):
                if not stat.S_ISDIR(folder.stat().st_mode):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        except OSError as error:
            raise self._translate(error) from error
        mount = Mount(
            target.absolute(), str(source.resolve()), self._disk.device(source), read_only
        )
        with self._lock:
            self._mounts.append(mount)

    def unmount(self, target: Path) -> None:
        """Take the topmost mount off a target; one that is not mounted is no error."""
        try:
            self._may_fail()
        except OSError as error:
            raise self._translate(error) from error
        with self._lock:
            for index in reversed(range(len(self._mounts))):
                if self._mounts[index].target == target.absolute():
                    del self._mounts[index]
                    return

    def seen_at(self, target: Path) -> Mount | None:
        """Return the topmost mount on a target."""
        return topmost(self.table(), target)

    def fail_next(self, error_number: int) -> None:
        """Let the next bind or unmount fail."""
        with self._lock:
            self._failures.append(OSError(error_number, os.strerror(error_number)))

    def _may_fail(self) -> None:
        with self._lock:
            if self._failures:
                raise self._failures.pop(0)


class KernelMounts:
    """The kernel's mounts below one node's folder. Linux and root only."""

    def __init__(self, root: Path, *, translate: Translate = unchanged) -> None:
        """Look at mounts below `root`, and enter a private mount namespace if the caller is not in
        one.

        Raises:
            PermissionError: without the right to mount.
        """
        self._root = root.resolve()
        self._translate = translate
        enter_private_namespace()

    def table(self) -> tuple[Mount, ...]:
        """Return every live mount below the folder, stacked ones repeated, in mount order."""
        try:
            lines = Path("/proc/thread-self/mountinfo").read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise self._translate(error) from error
        mounts = (_parse_mountinfo(line) for line in lines)
        return tuple(mount for mount in mounts if mount.target.is_relative_to(self._root))

    def bind_read_only(self, source: Path, target: Path) -> None:
        """Bind a folder read-only, nosuid and nodev; undo the bind when the second step fails."""
        try:
            _mount(source, target, _MS_BIND)
            try:
                _mount(None, target, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
            except OSError:
                _unmount(target)
                raise
        except OSError as error:
            raise self._translate(error) from error

    def unmount(self, target: Path) -> None:
        """Take the topmost mount off a target; one that is not mounted is no error."""
        try:
            _unmount(target)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOENT}:
                raise self._translate(error) from error

    def seen_at(self, target: Path) -> Mount | None:
        """Return the topmost mount on a target."""
        return topmost(self.table(), target.resolve())


def topmost(table: tuple[Mount, ...], target: Path) -> Mount | None:
    """Return the mount of a table that hides all others on a target."""
    return next((mount for mount in reversed(table) if mount.target == target.absolute()), None)


def enter_private_namespace() -> None:
    """Give the calling thread, and threads it starts from now on, mounts of their own.

    Does nothing when the process's parent already lives in another mount namespace.

    Raises:
        PermissionError: without the right to do so.
    """
    own = Path("/proc/thread-self/ns/mnt").readlink()
    parent = Path(f"/proc/{os.getppid()}/ns/mnt")
    if parent.exists() and parent.readlink() != own:
        return
    _checked(_LIBC.unshare(_CLONE_NEWNS), "a private mount namespace")
    _mount(None, Path("/"), _MS_REC | _MS_PRIVATE)


_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 0x1, 0x2, 0x4, 0x20
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_CLONE_NEWNS = 0x20000


def _mount(source: Path | None, target: Path, flags: int) -> None:
    source_bytes = None if source is None else os.fsencode(source)
    _checked(_LIBC.mount(source_bytes, os.fsencode(target), None, flags, None), str(target))


def _unmount(target: Path) -> None:
    _checked(_LIBC.umount2(os.fsencode(target), 0), str(target))


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _parse_mountinfo(line: str) -> Mount:
    """Read one line of mountinfo: id, parent, device, root, target, options, ..."""
    fields = line.split(" ")
    root, target = _unescape(fields[3]), _unescape(fields[4])
    return Mount(Path(target), root, fields[2], "ro" in fields[5].split(","))


def _unescape(text: str) -> str:
    """Decode the octal escapes that mountinfo writes for space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
