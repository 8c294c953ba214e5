"""The cache root: one directory that belongs to one plugin, and how it is laid out.

    layout                            names the format; any other content and the root is left alone
    published/<hex>/marker            what makes a tree a published one
    published/<hex>/manifest.json     the listing it was checked against
    published/<hex>/tree/             what Pods mount: files 0444, directories 0555
    partial/<hex>/<attempt>/          a download: tree/ and the engine's state/
    trash/<hex>-<nanoseconds>/        being deleted
    ledger/refs/, ledger/digests/     references, and what is remembered of a digest

`<hex>` is the digest without its algorithm. A root that holds anything else is refused before a
byte of it is touched, and a second plugin on the same root is refused by a lock that the kernel
releases with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpustack_delivery.errors import ConfigurationFault, HostFault
from gpustack_delivery.node.records import write_durably
from gpustack_delivery.ports import Disk
from gpustack_delivery.vocabulary.manifest import is_digest

LAYOUT: Final = b"gpustack-model-store v1\n"
# What a fresh filesystem, or a start that was cut short, may have left in an otherwise empty root.
_HARMLESS: Final = frozenset({"lost+found", "layout.tmp"})
# What a filesystem answers that is broken, or whose disk or server is gone; it may come back.
_AWAY: Final = frozenset(
    {
        errno.EIO,
        errno.ENXIO,
        errno.ENODEV,
        errno.ENOMEDIUM,
        errno.EREMOTEIO,
        errno.EUCLEAN,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.ESHUTDOWN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ETIMEDOUT,
    }
)


class CacheRoot:
    """The paths of a cache, opened for one plugin at a time."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.published = path / "published"
        self.partial = path / "partial"
        self.trash = path / "trash"
        self.references = path / "ledger" / "refs"
        self.digests = path / "ledger" / "digests"
        self._disk = disk
        self._lock: int | None = None

    def open(self) -> None:
        """Check the root, lay it out if it is empty, and take it.

        Raises:
            ConfigurationFault: it holds something else, is in use, or cannot be used; it is
                untouched.
            HostFault: its filesystem does not answer; `is_away`.
        """
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._take()
            self._check()
            self._lay_out()
        except ConfigurationFault:
            self.close()
            raise
        except (OSError, HostFault) as error:
            self.close()
            if is_away(error):
                raise self._silent(error) from error
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationFault(
                f"the cache root {self.path} cannot be used: {reason}"
            ) from error

    def close(self) -> None:
        """Give the root up; safe twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def probe(self, *, writable: bool = True) -> None:
        """See whether the root's filesystem answers, and whether it can be written.

        Raises:
            HostFault: it does not, or cannot.
        """
        try:
            (self.path / "layout").read_bytes()
            read_only = os.statvfs(self.path).f_flag & os.ST_RDONLY
        except OSError as error:
            if is_away(error):
                raise self._silent(error) from error
            return
        if read_only and writable:
            raise HostFault(
                f"the filesystem of the cache root {self.path} has become read-only: see the "
                "node's kernel log",
                detail="statvfs answers ST_RDONLY",
            )

    def _silent(self, error: OSError | HostFault) -> HostFault:
        code = errno.errorcode[_number(error)]
        message = (
            f"the filesystem of the cache root {self.path} does not answer ({code}): see the "
            "node's kernel log, and restart this plugin when it is mounted anew"
        )
        return HostFault(message, detail=getattr(error, "detail", "") or str(error))

    def _check(self) -> None:
        layout = self.path / "layout"
        if layout.is_file():
            if layout.read_bytes() != LAYOUT:
                raise ConfigurationFault(
                    f"the cache root {self.path} has another layout than this version's; it is "
                    "left untouched: name an empty directory, or move this one away"
                )
            self._check_places()
            return
        foreign = sorted({entry.name for entry in self.path.iterdir()} - _HARMLESS)
        if foreign:
            raise ConfigurationFault(
                f"the cache root {self.path} is not empty and is no model cache (it holds "
                f"{foreign[0]!r}); it is left untouched: name an empty directory"
            )
        write_durably(layout, LAYOUT, self._disk, mode=0o644)

    def _check_places(self) -> None:
        """Refuse a root whose directories lie elsewhere: what is cleared there is not ours.

        Publishing is a rename, which no other filesystem takes.
        """
        ledger = self.references.parent
        for place in (
            self.published,
            self.partial,
            self.trash,
            ledger,
            self.references,
            self.digests,
        ):
            elsewhere = place.exists() and self._disk.device(place) != self._disk.device(self.path)
            if place.is_symlink() or elsewhere:
                raise ConfigurationFault(
                    f"{place} must be a plain directory on the filesystem of the cache root; it is "
                    "left untouched: to keep models on another disk, move the whole root"
                )

    def _lay_out(self) -> None:
        """Make every directory to last, and remove records that a kill left half written."""
        for directory in (self.published, self.partial, self.trash):
            directory.mkdir(mode=0o755, exist_ok=True)
        for directory in (self.references, self.digests):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for scratch in directory.glob("*.tmp"):
                with suppress(OSError):  # on a filesystem that is read-only now, Pods still unmount
                    scratch.unlink()
        for directory in (self.references.parent, self.path):
            self._disk.sync_directory(directory)

    def _take(self) -> None:
        # The root itself carries the lock: it is there before the first start has written anything.
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationFault(
                f"the cache root {self.path} is in use by another model manager"
            ) from None


def is_away(error: OSError | HostFault) -> bool:
    """Say whether an error means that a filesystem does not answer at all, for now at least."""
    return _number(error) in _AWAY


def _number(error: OSError | HostFault) -> int:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return (cause.errno or 0) if cause is not None else 0


def digest_of(name: str) -> str | None:
    """Return the digest that a directory or file name stands for, or None for a foreign name."""
    digest = f"sha256:{name}"
    return digest if is_digest(digest) else None


def hex_of(digest: str) -> str:
    """Return the name under which a digest's files lie."""
    return digest.removeprefix("sha256:")


def walk(top: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is below a directory, however deep, each directory before what is in it.

    Symlinks are not followed. What has been yielded may be deleted, and made accessible.

    Raises:
        OSError: a directory cannot be read.
    """
    pending = [str(top)]
    while pending:
        with os.scandir(pending.pop()) as listing:
            found = list(listing)
        for entry in found:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)


def delete_tree(path: Path) -> None:
    """Delete a directory and everything below it, write-protected directories included.

    Symlinks are removed, never followed.

    Raises:
        OSError: something could not be deleted; the rest stays for another try.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    path.chmod(0o700)
    folders = [path]
    for found in walk(path):
        if found.is_dir(follow_symlinks=False):
            folders.append(Path(found.path))
            folders[-1].chmod(0o700)
        else:
            Path(found.path).unlink()
    for folder in reversed(folders):
        folder.rmdir()
