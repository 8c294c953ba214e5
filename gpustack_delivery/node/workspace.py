"""One attempt's directory: `tree` takes the files, `state` belongs to the download engine.

Others wait while it is asked how many bytes its files take, so it looks at them once and from then
on counts what the engine says it has done. What a former attempt left is looked through before it
is gone on with: a link of either kind, a pipe or a name that the listing does not have is damage.

Rules: NS-DL-08, NS-DL-18, NS-RES-05.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.cache import walk
from gpustack_delivery.vocabulary.manifest import Entry, Folders

_SPARE: Final = 64
"""The tree moves when it is published and when it is deleted, and its paths may grow with it."""
_log = logging.getLogger(__name__)


class Workspace:
    """The directory of one attempt. Thread-safe.

    Args:
        path: where it is, or will be.
        number: the attempt's.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self.tree = path / "tree"
        self.state = path / "state"
        self._lock = threading.Lock()
        self._size_bytes: int | None = None

    def size_bytes(self) -> int:
        """Return the bytes that the files take; of a file with holes, what it occupies."""
        with self._lock:
            if self._size_bytes is None:
                try:
                    self._size_bytes = sum(
                        occupied_bytes(found.stat(follow_symlinks=False))
                        for found in walk(self.tree)
                        if found.is_file(follow_symlinks=False)
                    )
                except FileNotFoundError:  # the attempt has just moved it
                    return 0
                except OSError as error:
                    _log.warning("partial download cannot be measured: %s", error)
                    return 0
            return self._size_bytes

    def grew(self, size_bytes: int) -> None:
        """Count bytes that a file took, negative ones that it gave back."""
        with self._lock:
            if self._size_bytes is not None:
                self._size_bytes += size_bytes

    def keep(self, entries: Sequence[Entry]) -> None:
        """Keep what a former attempt left of these files, writable, and delete everything else.

        Raises:
            AttemptFault: `InsufficientCapacity`, what is missing has more names than the filesystem
                has inodes left.
            HostFault: a file cannot have its name here.
            OSError: the filesystem refused.
        """
        self._check_names(entries)
        listed, folders = {entry.path for entry in entries}, Folders(entries)
        missing = len(listed) + len(folders)
        foreign, removed, size_bytes, start = [], 0, 0, len(str(self.tree)) + 1
        for found in walk(self.tree):
            path, name = Path(found.path), found.path[start:]
            if found.is_dir(follow_symlinks=False):
                path.chmod(0o755)  # a publication may have begun to seal it
                if name in folders:
                    missing -= 1
                else:
                    foreign.append(path)
            elif name in listed and _is_ours(facts := found.stat(follow_symlinks=False)):
                path.chmod(0o644)
                missing -= 1
                size_bytes += occupied_bytes(facts)
            else:
                path.unlink()
                removed += 1
        for path in reversed(foreign):  # the deepest first; what was in them is gone
            path.rmdir()
        if removed or foreign:
            count = removed + len(foreign)
            _log.warning("foreign to the download, deleted: count=%d in=%s", count, self.tree)
        with self._lock:
            self._size_bytes = size_bytes
        self._check_inodes(missing)

    def _check_names(self, entries: Sequence[Entry]) -> None:
        name_bytes = os.pathconf(self.tree, "PC_NAME_MAX")
        path_bytes = os.pathconf(self.tree, "PC_PATH_MAX") - len(os.fsencode(self.tree)) - _SPARE
        for entry in entries:
            path = entry.path.encode()
            if len(path) > path_bytes or max(map(len, path.split(b"/"))) > name_bytes:
                message = "a file's path, or a name in it, is longer than the filesystem takes"
                raise HostFault(message, detail=f"path={entry.path!r}")

    def _check_inodes(self, needed: int) -> None:
        """Refuse what can never be whole; a filesystem that says it has none at all makes them."""
        facts = os.statvfs(self.tree)
        if facts.f_files and needed > facts.f_favail:
            message = (
                f"{needed} files and folders more need as many inodes, {facts.f_favail} are free"
            )
            raise AttemptFault(Reason.INSUFFICIENT_CAPACITY, message)


def _is_ours(facts: os.stat_result) -> bool:
    """Say whether this is a plain file of one name: under another it may be a published one."""
    return stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1


def occupied_bytes(facts: os.stat_result) -> int:
    """Return what a file takes of its filesystem, and never more than its size."""
    return min(facts.st_size, facts.st_blocks * 512)
