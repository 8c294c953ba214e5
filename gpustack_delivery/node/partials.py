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
import threading
from collections.abc import Set
from pathlib import Path

from gpustack_delivery.errors import HostFault
from gpustack_delivery.node.cache import CacheRoot, delete_tree, digest_of, hex_of
from gpustack_delivery.node.trees import clear, directories
from gpustack_delivery.node.workspace import Workspace

_log = logging.getLogger(__name__)


class Partials:
    """The unfinished downloads of one cache. An attempt alone touches its own digest's."""

    def __init__(self, root: CacheRoot) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._known: dict[str, Workspace] = {}

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
            _make_way(parent)
            parent.mkdir(mode=0o755, exist_ok=True)
            newest = max(_numbered(parent), default=0)
            number = max(last_attempt, newest) + 1
            workspace = Workspace(parent / str(number), number)
            _make_way(workspace.path)
            if newest:
                (parent / str(newest)).rename(workspace.path)
            for directory in (workspace.tree, workspace.state):
                _make_way(directory)
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            _keep_files(workspace.state)
            (workspace.path / "marker").unlink(missing_ok=True)  # of a publication that was cut
        except OSError as error:
            message = f"the download cannot be prepared: {error.strerror}"
            raise HostFault(message, detail=str(error)) from error
        with self._lock:
            self._known[digest] = workspace
        return workspace

    def digests(self) -> frozenset[str]:
        """Return every digest that is partly on disk."""
        found = (digest_of(path.name) for path in directories(self._root.partial))
        return frozenset(digest for digest in found if digest)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each digest's partial files; each partial is looked through once."""
        found = {digest: self._workspace(digest) for digest in self.digests()}
        return {digest: one.size_bytes() for digest, one in found.items()}

    def discard(self, digest: str) -> None:
        """Delete everything unfinished of a digest."""
        with self._lock:
            self._known.pop(digest, None)
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

    def _workspace(self, digest: str) -> Workspace:
        """Return the newest attempt's directory of a digest."""
        parent = self._root.partial / hex_of(digest)
        with self._lock:
            if digest not in self._known:
                newest = max(_numbered(parent), default=0)
                self._known[digest] = Workspace(parent / str(newest), newest)
            return self._known[digest]


def _make_way(path: Path) -> None:
    """Delete what stands in a directory's place and is none: a link, whatever it leads to."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()


def _keep_files(folder: Path) -> None:
    """Delete what is no plain file in a folder that holds nothing else."""
    with os.scandir(folder) as listing:
        odd = [Path(found.path) for found in listing if not found.is_file(follow_symlinks=False)]
    for path in odd:
        delete_tree(path)


def _numbered(parent: Path) -> list[int]:
    """Return the attempt numbers among a directory's children."""
    names = (child.name for child in directories(parent))
    return [int(name) for name in names if name.isascii() and name.isdecimal() and name[0] != "0"]
