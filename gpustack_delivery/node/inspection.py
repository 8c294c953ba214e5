"""Whether a published tree still is what its listing says, as far as that shows without reading.

A mount that finds a tree published waits for this look, so it is short where nothing happened. A
directory's change time moves with every name that comes into it or goes, and with its mode. So the
directories of a tree that was found right are not listed again while theirs stand still; what
remains is to ask each listed file for its mode and size. A change time is as fine as the kernel's
tick, or as the filesystem keeps it: a fresh one may hide the next change, and is not remembered.

`trees` looks before each mount. Rules: NS-MNT-05, NS-DL-20.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.ports import Clock
from gpustack_delivery.vocabulary.manifest import Manifest

FILE_MODE: Final = 0o444
DIRECTORY_MODE: Final = 0o555
_FILE: Final = stat.S_IFREG | FILE_MODE
_DIRECTORY: Final = stat.S_IFDIR | DIRECTORY_MODE
_REMEMBERED_DIRECTORIES: Final = 1000
FRESH_SECONDS: Final = 2.0


class Inspection:
    """The looks at one published tree; safe from any thread.

    Args:
        tree: where the files stand.
        manifest: what they are to be.
        clock: the one that files get their times from, and nobody else's.
    """

    def __init__(
        self,
        tree: Path,
        manifest: Manifest,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        self._tree = str(tree)
        self._clock = clock
        self.manifest = manifest
        self._changed_at: dict[str, int] = {}  # each directory of a tree that was found right

    def difference(self) -> str:
        """Return how the tree differs in names, kinds, sizes and modes; "" if it does not.

        Raises:
            OSError: it cannot be read.
        """
        if self._changed_at and self._stands_still():
            return ""
        changed_at: dict[str, int] = {}
        now = self._clock.now()
        found = self._difference(changed_at)
        remembered = (
            not found
            and len(changed_at) <= _REMEMBERED_DIRECTORIES
            and all(abs(now - moment / 1e9) >= FRESH_SECONDS for moment in changed_at.values())
        )
        self._changed_at = changed_at if remembered else {}
        return found

    def _stands_still(self) -> bool:
        """Say that nothing differs, without listing; if something may, the long look names it."""
        try:
            return all(
                os.lstat(directory).st_ctime_ns == before
                for directory, before in self._changed_at.items()
            ) and all(
                (facts := os.lstat(f"{self._tree}/{entry.path}")).st_mode == _FILE
                and facts.st_size == entry.size_bytes
                for entry in self.manifest.entries
            )
        except OSError:
            return False

    def _difference(self, changed_at: dict[str, int]) -> str:
        """Look at everything, and note when each directory had changed before it was listed."""
        sizes = {entry.path: entry.size_bytes for entry in self.manifest.entries}
        start = len(self._tree) + 1
        top = os.lstat(self._tree)
        if top.st_mode != _DIRECTORY:
            return "its top directory's mode has changed"
        changed_at[self._tree] = top.st_ctime_ns
        pending = [self._tree]
        while pending:
            with os.scandir(pending.pop()) as listing:
                for found in listing:
                    facts = found.stat(follow_symlinks=False)
                    if facts.st_mode == _DIRECTORY:
                        changed_at[found.path] = facts.st_ctime_ns
                        pending.append(found.path)
                    elif facts.st_mode != _FILE:
                        return f"a file's or directory's mode has changed: {found.path}"
                    elif sizes.pop(found.path[start:], None) != facts.st_size:
                        return f"a file is foreign or its size has changed: {found.path}"
        return f"a file is missing: {next(iter(sizes))!r}" if sizes else ""
