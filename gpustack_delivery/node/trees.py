"""Published trees: how one comes to be, how long it stays, and what a mount may trust.

A tree is published when its directory stands under `published/` with a marker that names its
digest. It gets there in one rename, after every file, every directory and the marker are durable;
whatever a kill leaves before that is a partial, and whatever it leaves after that is whole.

A mount holds the digest from the moment it looks until its bind is done, and removal refuses what
is held. Removal, too, is one rename, out into the trash; deleting comes after. Before a tree is
mounted its files are compared with its own listing by size, kind and permission, so that a damaged
one is delivered again instead.

Rules: NS-MNT-05, NS-DL-19, NS-DL-20, NS-REF-02, NS-RES-11, NS-GC-06.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from gpustack_delivery.errors import HostFault
from gpustack_delivery.node.cache import CacheRoot, delete_tree, digest_of, hex_of, walk
from gpustack_delivery.node.inspection import DIRECTORY_MODE, FILE_MODE, Inspection
from gpustack_delivery.node.markers import (
    Marker,
    read_listing,
    read_marker,
    write_listing,
    write_marker,
)
from gpustack_delivery.node.records import not_exhausted
from gpustack_delivery.ports import Clock, Disk
from gpustack_delivery.vocabulary.manifest import Manifest

_TRASHED: Final = re.compile(r"/trash/([^/]+)/tree$")
_log = logging.getLogger(__name__)


class Trees:
    """The published trees of one cache. Every method is safe from any thread."""

    def __init__(self, root: CacheRoot, disk: Disk, clock: Clock) -> None:
        self._root = root
        self._disk = disk
        self._clock = clock
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._markers: dict[str, Marker] = {}
        self._inspections: dict[str, Inspection] = {}
        self._serial = count()

    def load(self) -> None:
        """Read every marker, and clear what a publication that was cut left behind."""
        found = {}
        for directory in directories(self._root.published):
            digest = digest_of(directory.name)
            if digest is not None and (marker := read_marker(directory, digest)):
                found[digest] = marker
                clear(directory / "state")
        with self._lock:
            self._markers = found

    def discard_strays(self, mounted: Set[str]) -> None:
        """Take out what stands among the published trees and is none, unless it is mounted."""
        for directory in directories(self._root.published):
            digest = digest_of(directory.name)
            with self._lock:
                if digest in self._markers or digest in mounted:
                    continue
                _log.warning("not a published tree, taken out: path=%s", directory)
                self._discard(directory)

    def markers(self) -> tuple[Marker, ...]:
        """Return the marker of every published tree."""
        with self._lock:
            return tuple(self._markers.values())

    def has(self, digest: str) -> bool:
        """Say whether a digest is published, without looking into its tree."""
        with self._lock:
            return digest in self._markers

    def directory(self, digest: str) -> Path | None:
        """Return where a published tree and its listing stand, None for one that is not there.

        It may be taken out at any moment; a file that is open by then can be read to its end.
        """
        return self._root.published / hex_of(digest) if self.has(digest) else None

    @contextmanager
    def hold(self, digest: str) -> Iterator[Path | None]:
        """Yield the tree to mount, or None; while it is held it is not removed.

        Raises:
            HostFault: it cannot be looked at now, or a damaged tree could not be set aside.
        """
        with self._lock:
            self._held[digest] += 1
        try:
            yield self._sound_tree(digest)
        finally:
            with self._lock:
                self._held[digest] -= 1

    def manifest(self, digest: str) -> Manifest | None:
        """Return the listing of a published tree, or None if none makes the digest."""
        inspection = self._inspection(digest)
        return None if inspection is None else inspection.manifest

    def publish(self, workspace: Path, manifest: Manifest, marker: Marker) -> None:
        """Make a verified download the published tree of its digest.

        Args:
            workspace: the attempt's directory, with every file whole under `tree/`.
            manifest: the listing that the files were verified against.
            marker: what the tree will say of itself.

        Raises:
            HostFault: the filesystem refused; the download stays a partial and can be resumed.
        """
        try:
            self._seal(workspace / "tree", manifest)
            write_listing(workspace, manifest, self._disk)
            write_marker(workspace, marker, self._disk)
            self._disk.sync_directory(workspace)
            self._move_in(workspace, marker)
        except OSError as error:
            message = f"the download cannot be published: {error.strerror}"
            raise HostFault(message, detail=str(error)) from error
        # The engine's checkpoints travelled along, so that no moment existed without them or the
        # tree.
        clear(self._root.published / hex_of(manifest.digest) / "state")
        with suppress(OSError):  # another attempt's leftovers stand there; the collector knows them
            workspace.parent.rmdir()

    def remove(self, digest: str, *, in_use: Callable[[str], bool]) -> bool:
        """Take a tree out of the cache unless it is held or `in_use` says so; say whether it went.

        Raises:
            HostFault: the filesystem refused.
        """
        with self._lock:
            if self._held[digest] or digest not in self._markers or in_use(digest):
                return False
            gone = self._move_out(digest)
        clear(gone)
        return True

    def empty_trash(self, mounted_roots: Iterable[str]) -> None:
        """Delete what was taken out, except what some mount still shows.

        Args:
            mounted_roots: the roots of all live mounts, as the mount table writes them.
        """
        shown = {match[1] for root in mounted_roots if (match := _TRASHED.search(root))}
        for path in directories(self._root.trash):
            if path.name not in shown:
                clear(path)

    def _sound_tree(self, digest: str) -> Path | None:
        """Return the published tree if it is whole; set a damaged one aside."""
        with self._lock:
            marker = self._markers.get(digest)
        if marker is None:
            return None
        directory = self._root.published / hex_of(digest)
        damage = self._damage(digest, directory)
        if not damage:
            return directory / "tree"
        # Where nothing can be read, nothing was seen to be damaged.
        self._root.probe(writable=False)
        _log.error("published tree is damaged, delivering again: digest=%s %s", digest, damage)
        with self._lock:
            if self._markers.get(digest) is marker:  # and not its successor, published meanwhile
                self._move_out(digest)
        return None

    def _damage(self, digest: str, directory: Path) -> str:
        """Return what is wrong with a published tree, "" if nothing is."""
        if read_marker(directory, digest) is None:
            return "its marker is missing or names another digest"
        inspection = self._inspection(digest)
        if inspection is None:
            return "its listing is missing or makes another digest"
        try:
            with not_exhausted():
                return inspection.difference()
        except OSError as error:
            return f"it cannot be read: {error}"

    def _inspection(self, digest: str) -> Inspection | None:
        with self._lock:
            known = self._inspections.get(digest)
        if known is not None:
            return known
        directory = self._root.published / hex_of(digest)
        manifest = read_listing(directory, digest)
        if manifest is None:
            return None
        inspection = Inspection(directory / "tree", manifest)
        with self._lock:
            self._inspections[digest] = inspection
        return inspection

    def _seal(self, tree: Path, manifest: Manifest) -> None:
        """Write-protect and sync every file, then every directory from the deepest up."""
        folders, files, missing = [tree], [], {entry.path for entry in manifest.entries}
        start = len(str(tree)) + 1
        for found in walk(tree):
            if found.is_dir(follow_symlinks=False):
                folders.append(Path(found.path))
            elif found.is_file(follow_symlinks=False) and found.path[start:] in missing:
                missing.remove(found.path[start:])
                files.append(Path(found.path))
            else:
                raise HostFault("the download holds something foreign", detail=found.path)
        if missing:  # a filesystem that takes two names for one, or another hand
            message = f"{len(missing)} of the download's files are not on the disk"
            raise HostFault(message, detail=min(missing))
        # All modes first: the first sync then carries them all, and the others have little to do.
        for file in files:
            file.chmod(FILE_MODE)
        for file in files:
            self._disk.sync_file(file)
        for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
            folder.chmod(DIRECTORY_MODE)
            self._disk.sync_directory(folder)

    def _move_in(self, workspace: Path, marker: Marker) -> None:
        target = self._root.published / hex_of(marker.digest)
        with self._lock:
            if target.exists():  # it has no sound marker, or nobody would have downloaded again
                self._discard(target)
            workspace.rename(target)
            try:
                self._disk.sync_directory(self._root.published)
            except HostFault:
                with suppress(OSError):  # then it waits there for the next start, whole
                    target.rename(workspace)
                raise
            self._inspections.pop(marker.digest, None)
            self._markers[marker.digest] = marker

    def _move_out(self, digest: str) -> Path:
        gone = self._discard(self._root.published / hex_of(digest))
        self._markers.pop(digest, None)
        self._inspections.pop(digest, None)
        return gone

    def _discard(self, path: Path) -> Path:
        gone = self._root.trash / f"{path.name}-{int(self._clock.now() * 1e9)}-{next(self._serial)}"
        try:
            path.rename(gone)
            self._disk.sync_directory(path.parent)
        except FileNotFoundError:
            _log.warning("a tree vanished by another hand: path=%s", path)
        except OSError as error:
            message = f"a tree cannot be taken out: {error.strerror}"
            raise HostFault(message, detail=str(error)) from error
        return gone


def directories(parent: Path) -> list[Path]:
    """Return the directories in a directory, by name; none for one that is missing.

    Raises:
        HostFault: it cannot be read.
    """
    try:
        with os.scandir(parent) as found:
            return sorted(Path(one.path) for one in found if one.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        message = f"the cache cannot be read: {error.strerror}"
        raise HostFault(message, detail=str(error)) from error


def clear(path: Path) -> None:
    """Delete a directory if it is there; what cannot be deleted now is said and left for later."""
    try:
        if path.exists():
            delete_tree(path)
    except OSError as error:
        _log.warning("cannot delete, will try again: path=%s error=%s", path, error)
