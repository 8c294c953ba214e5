"""The few Linux calls that Python does not offer, typed and with their errors raised as OSError.

Mounts are made by the mount API of Linux 5.12 where the kernel has it: a detached clone of the
source gets its flags before it appears anywhere. `mount(2)` binds first and sets the flags by a
remount, which no other mount namespace hears of: what kubelet's received by propagation would stay
writable for good. So on older kernels a mount gets its flags where nobody looks, and a bind of it,
which inherits them, is what the target shows.

Only `adapters/host.py` calls this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from pathlib import Path
from typing import Final

_MS_RDONLY: Final = 0x1
_MS_NOSUID: Final = 0x2
_MS_NODEV: Final = 0x4
_MS_REMOUNT: Final = 0x20
_MS_BIND: Final = 0x1000
_KEPT_FLAGS: Final = 0x8 | 0x400 | 0x800  # noexec, noatime, nodiratime: a remount would drop them
_UMOUNT_NOFOLLOW: Final = 0x8
_MNT_DETACH: Final = 0x2

# Equal on every architecture that Kubernetes runs on.
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_MOUNT_SETATTR: Final = 442
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_OPEN_TREE_CLONE: Final = 0x1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 0x4
_MOUNT_ATTR_RDONLY_NOSUID_NODEV: Final = 0x1 | 0x2 | 0x4

_SYNC_FILE_RANGE_WRITE: Final = 0x2

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def attach_read_only(source: Path, target: Path) -> None:
    """Show a directory at a target, read-only, nosuid and nodev from its first moment.

    Raises:
        OSError: ENOSYS on a kernel before 5.12; otherwise what the kernel refused.
    """
    tree = _syscall(
        _SYS_OPEN_TREE,
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC),
    )
    try:
        wanted = _MountAttributes(set=_MOUNT_ATTR_RDONLY_NOSUID_NODEV)
        _syscall(
            _SYS_MOUNT_SETATTR,
            ctypes.c_int(tree),
            ctypes.c_char_p(b""),
            ctypes.c_uint(_AT_EMPTY_PATH),
            ctypes.byref(wanted),
            ctypes.c_size_t(ctypes.sizeof(wanted)),
        )
        _syscall(
            _SYS_MOVE_MOUNT,
            ctypes.c_int(tree),
            ctypes.c_char_p(b""),
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(target)),
            ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
        )
    finally:
        os.close(tree)


def attach_by_stages(source: Path, target: Path) -> None:
    """Do the same as every kernel can: bind and remount on a stage, then bind that at the target.

    Raises:
        OSError: what the kernel refused; the target shows nothing then.
    """
    kept = os.statvfs(source).f_flag & _KEPT_FLAGS
    stage = Path(tempfile.mkdtemp(prefix="gpustack-mount-"))
    try:
        _mount(source, stage, _MS_BIND)
        try:
            read_only = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
            _mount(source, stage, _MS_BIND | _MS_REMOUNT | read_only | kept)
            _mount(stage, target, _MS_BIND)
        finally:
            unmount(stage, detach=True)
    finally:
        stage.rmdir()  # one empty directory, and never what might still be mounted there


def unmount(target: Path, *, detach: bool = False) -> None:
    """Take the topmost mount off a target, never through a symlink.

    Raises:
        OSError: EINVAL when nothing is mounted there; EBUSY while it is in use, unless `detach`.
    """
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if detach else 0)
    _check(_libc.umount2(ctypes.c_char_p(os.fsencode(target)), ctypes.c_int(flags)))


def start_writeback(descriptor: int, offset: int, size: int) -> None:
    """Ask the kernel to begin writing a range of a file, without waiting for it.

    A hint: what cannot be written shows when the file is synced, so nothing is raised.
    """
    call = getattr(_libc, "sync_file_range", None)
    if call is not None:
        call(
            ctypes.c_int(descriptor),
            ctypes.c_int64(offset),
            ctypes.c_int64(size),
            ctypes.c_uint(_SYNC_FILE_RANGE_WRITE),
        )


def _mount(source: Path, target: Path, flags: int) -> None:
    result = _libc.mount(
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_char_p(os.fsencode(target)),
        None,
        ctypes.c_ulong(flags),
        None,
    )
    _check(result)


def _syscall(number: int, *arguments: object) -> int:
    _libc.syscall.restype = ctypes.c_long
    return _check(_libc.syscall(ctypes.c_long(number), *arguments))


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno() or errno.EIO
        raise OSError(code, os.strerror(code))
    return result
