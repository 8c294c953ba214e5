"""Small JSON files that survive a kill and a power cut: written whole or not at all.

A record is written beside its place, synced, renamed over it, and its directory synced. Reading
never raises for what stands in a file: one that is missing, cut or foreign reads as None, and its
reader decides what the absence means. Markers, references and digest records are made of these.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gpustack_delivery.errors import HostFault
from gpustack_delivery.ports import Disk
from gpustack_delivery.vocabulary.resources import Json

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_PIECE_BYTES: Final = 64 << 10
_log = logging.getLogger(__name__)


def write_record(path: Path, record: Json, disk: Disk, *, mode: int = 0o600) -> None:
    """Write a record in one step that outlives a power cut.

    Raises:
        HostFault: the filesystem refused; the record that stood there before still does.
    """
    write_durably(path, msgspec.json.encode(record), disk, mode=mode)


def write_durably(path: Path, content: bytes, disk: Disk, *, mode: int = 0o600) -> None:
    """Write a small file in one step that outlives a power cut; see `write_record`."""
    fresh = path.with_name(path.name + ".tmp")
    try:
        write_afresh(fresh, content, mode)
        disk.sync_file(fresh)
        fresh.replace(path)
        disk.sync_directory(path.parent)
    except OSError as error:
        raise HostFault(
            f"a record cannot be written: {error.strerror}", detail=str(error)
        ) from error


def write_afresh(path: Path, content: bytes, mode: int) -> None:
    """Write a new file in place of whatever has its name: what a link leads to is not ours.

    Raises:
        OSError: the filesystem refused.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
        descriptor = os.open(path, flags, mode)
    try:
        os.fchmod(descriptor, mode)  # whatever this process's umask left of it
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)


def content_of(path: Path) -> bytes:
    """Return what a file of ours holds; a link is none, and a pipe is not waited for.

    Raises:
        OSError: it cannot be read, or is a link.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        return b"".join(iter(partial(os.read, descriptor, _PIECE_BYTES), b""))
    finally:
        os.close(descriptor)


def read_record(path: Path) -> Json | None:
    """Return a record, or None if it is missing or is no JSON object.

    Raises:
        HostFault: this process can open nothing more, which says nothing of the record.
    """
    try:
        with not_exhausted():
            record = msgspec.json.decode(content_of(path))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.warning("record ignored: path=%s error=%s", path, error)
        return None
    if not isinstance(record, dict):
        _log.warning("record ignored: path=%s error=not an object", path)
        return None
    return record


@contextmanager
def not_exhausted() -> Iterator[None]:
    """Tell what this process lacks from what is wrong with a file.

    Raises:
        HostFault: it has no memory, or no descriptor for another open file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _EXHAUSTED:
            raise
        message = f"the plugin can open no more files: {error.strerror}"
        raise HostFault(message, detail=str(error)) from error


def remove_record(path: Path, disk: Disk) -> None:
    """Remove a record for good; one that is not there is no error.

    Raises:
        HostFault: the filesystem refused.
    """
    try:
        path.unlink(missing_ok=True)
        disk.sync_directory(path.parent)
    except OSError as error:
        message = f"a record cannot be removed: {error.strerror}"
        raise HostFault(message, detail=str(error)) from error
