"""Unfinished downloads: one directory an attempt, resumed by renaming it to the next attempt's
number.

An attempt's number is never used twice on a node, so two attempts of one digest never meet in one
directory. What is kept for a resume is the newest attempt of a digest the ledger knows; older ones,
and directories that no attempt can own, go when the plugin starts.

Rules: NS-DL-18, NS-DL-29, NS-REF-06, NS-GC-04, NS-RES-05.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpustack_delivery.errors import HostFault
from gpustack_delivery.node.cache import CacheRoot, digest_of, hex_of
from gpustack_delivery.node.trees import clear, directories

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Workspace:
    """An attempt's directory: `tree` takes the files, `state` belongs to the download engine."""

    path: Path
    number: int

    @property
    def tree(self) -> Path:
        """Return where the files go."""
        return self.path / "tree"

    @property
    def state(self) -> Path:
        """Return where the engine keeps its checkpoints."""
        return self.path / "state"

    def size_bytes(self) -> int:
        """Return the bytes of the files as they stand; of a file with holes, what it occupies."""
        total = 0
        for directory, _, names in os.walk(self.tree):
            for name in names:
                with suppress(FileNotFoundError):  # the attempt has just moved it
                    facts = Path(directory, name).lstat()
                    total += min(facts.st_size, facts.st_blocks * 512)
        return total


class Partials:
    """The unfinished downloads of one cache. An attempt alone touches its own digest's."""

    def __init__(self, root: CacheRoot) -> None:
        self._root = root

    def begin(self, digest: str, last_attempt: int) -> Workspace:
        """Make or take over a digest's directory for its next attempt.

        Args:
            digest: what will be downloaded.
            last_attempt: the newest number on record; the directories on disk are counted too.

        Raises:
            HostFault: the filesystem refused.
        """
        parent = self._root.partial / hex_of(digest)
        try:
            parent.mkdir(mode=0o755, exist_ok=True)
            newest = max(_numbered(parent), default=0)
            number = max(last_attempt, newest) + 1
            workspace = Workspace(parent / str(number), number)
            if newest:
                (parent / str(newest)).rename(workspace.path)
                _reopen(workspace.path)
            workspace.tree.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            message = f"the download cannot be prepared: {error.strerror}"
            raise HostFault(message, detail=str(error)) from error
        return workspace

    def digests(self) -> frozenset[str]:
        """Return every digest that is partly on disk."""
        found = (digest_of(path.name) for path in directories(self._root.partial))
        return frozenset(digest for digest in found if digest)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each digest's partial files, as they stand."""
        return {
            digest: _size(path)
            for path in directories(self._root.partial)
            if (digest := digest_of(path.name))
        }

    def discard(self, digest: str) -> None:
        """Delete everything unfinished of a digest."""
        clear(self._root.partial / hex_of(digest))

    def discard_orphans(self, recorded: Set[str]) -> None:
        """Delete what belongs to no attempt: foreign names, unrecorded digests, older attempts."""
        for path in directories(self._root.partial):
            numbers = sorted(_numbered(path))
            if digest_of(path.name) not in recorded or not numbers:
                _log.info("partial download of no attempt removed: path=%s", path)
                clear(path)
                continue
            for child in directories(path):
                if child.name != str(numbers[-1]):
                    clear(child)


def _numbered(parent: Path) -> list[int]:
    """Return the attempt numbers among a directory's children."""
    names = (child.name for child in directories(parent))
    return [int(name) for name in names if name.isascii() and name.isdecimal() and name[0] != "0"]


def _reopen(workspace: Path) -> None:
    """Make a partial writable again, in case a publication had begun to seal it."""
    (workspace / "marker").unlink(missing_ok=True)
    for directory, _, names in os.walk(workspace):
        Path(directory).chmod(0o755)
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o644)


def _size(partial: Path) -> int:
    """Return the bytes of a digest's unfinished files."""
    return sum(Workspace(attempt, 0).size_bytes() for attempt in directories(partial))
