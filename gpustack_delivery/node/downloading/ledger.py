"""What an attempt has on disk for certain: checkpoints of begun files, a list of finished ones.

Both are written only after the content they speak of has been synced, so they never run ahead of
it, and both may be missing, torn or wrong without harm: what cannot be believed is downloaded
again. What is not believed is withdrawn before its file starts over: a file that is written again
soon has its full size, and a note about the bytes that stood there before would then look true.

`<state>/<sha256 of the path>.json` is a begun file's checkpoint, replaced in one step;
`<state>/finished` has a line for each file that is whole and verified.

The engine owns the directory; publication deletes it. Rules: NS-DL-18.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters.hashing import HashState
from gpustack_delivery.node.records import content_of, write_afresh
from gpustack_delivery.ports import Disk
from gpustack_delivery.vocabulary.manifest import Entry

_MODE: Final = 0o644
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """One file of an attempt: what it must be, where it comes from and where it goes.

    Args:
        entry: the manifest's entry.
        url: a hub's or a peer's URL of the file.
        destination: the file in the attempt's tree; missing parents are made.
    """

    entry: Entry
    url: str
    destination: Path


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a file is safe: `offset` bytes on disk, and the hash's state at that byte."""

    offset: int
    state: HashState


class Ledger:
    """The state directory of one attempt. One thread at a time writes.

    Args:
        directory: is made when something is first written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, entry: Entry, checkpoint: Checkpoint, disk: Disk) -> None:
        """Replace a file's checkpoint. The caller has synced the content up to its offset.

        Raises:
            OSError, HostFault: the disk refused; the earlier checkpoint stands.
        """
        record = {
            "path": entry.path,
            "size": entry.size_bytes,
            "digest": entry.digest,
            "offset": checkpoint.offset,
            "state": checkpoint.state.to_wire(),
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._record(entry)
        scratch = path.with_suffix(".tmp")
        write_afresh(scratch, json.dumps(record).encode(), _MODE)
        disk.sync_file(scratch)
        scratch.replace(path)

    def forget(self, entry: Entry) -> None:
        """Remove a file's checkpoint, if it has one."""
        self._record(entry).unlink(missing_ok=True)

    def withdraw(self, entries: Collection[Entry], disk: Disk) -> None:
        """Remove all that is noted about files whose content is not there, for good.

        Raises:
            OSError, HostFault: the disk refused; none of the files may be begun.
        """
        gone = {tuple(_identity(entry)) for entry in entries}
        noted = [line for line in _read(self._finished()).splitlines() if line]
        kept = [line for line in noted if _noted(line) not in gone]
        records = [entry for entry in entries if self._record(entry).exists()]
        if len(kept) < len(noted):
            scratch = self._finished().with_suffix(".tmp")
            write_afresh(scratch, "".join(f"{line}\n" for line in kept).encode(), _MODE)
            disk.sync_file(scratch)
            scratch.replace(self._finished())
        for entry in records:
            self.forget(entry)
        if records or len(kept) < len(noted):
            disk.sync_directory(self._directory)

    def finish(self, entries: Iterable[Entry], disk: Disk) -> None:
        """Note files as whole and verified. The caller has synced their content.

        Raises:
            OSError, HostFault: the disk refused; what is not noted is downloaded again.
        """
        lines = "".join(json.dumps(_identity(entry)) + "\n" for entry in entries)
        self._directory.mkdir(parents=True, exist_ok=True)
        # It begins with a line end: a line torn by a crash must not swallow the next one.
        _append(self._finished(), "\n" + lines)
        disk.sync_file(self._finished())

    def finished(self, targets: Sequence[Target]) -> set[str]:
        """Return the paths that need no request: noted as finished, and there with their size."""
        noted = {_noted(line) for line in _read(self._finished()).splitlines()}
        return {
            target.entry.path
            for target in targets
            if tuple(_identity(target.entry)) in noted
            and _size(target.destination) == target.entry.size_bytes
        }

    def checkpoint(self, target: Target) -> Checkpoint | None:
        """Return where a file can go on; None to begin it again."""
        entry = target.entry
        text = _read(self._record(entry))
        if not text:
            return None
        try:
            record = json.loads(text)
            same = [record["path"], record["size"], record["digest"]] == _identity(entry)
            offset = record["offset"]
            if not same or type(offset) is not int or not 0 < offset <= entry.size_bytes:
                raise ValueError("it is another file's, or its offset lies outside")
            if _size(target.destination) < offset:
                raise ValueError("the file is shorter than its checkpoint")
            return Checkpoint(offset, HashState.from_wire(record["state"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            _log.warning("checkpoint unusable, file starts over path=%a: %s", entry.path, error)
            return None

    def _record(self, entry: Entry) -> Path:
        return self._directory / (hashlib.sha256(entry.path.encode()).hexdigest() + ".json")

    def _finished(self) -> Path:
        return self._directory / "finished"


def _identity(entry: Entry) -> list[object]:
    return [entry.path, entry.size_bytes, entry.digest]


def _noted(line: str) -> tuple[object, ...]:
    """Return the identity that a line of the list notes, () for one that is torn or not ours."""
    try:
        noted = tuple(json.loads(line))
        hash(noted)
    except (ValueError, TypeError, RecursionError):
        return ()
    return noted


def _append(path: Path, text: str) -> None:
    # No link is followed, and nobody waits for the other end of a pipe.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, _MODE), "w", encoding="utf-8") as file:
        file.write(text)


def _read(path: Path) -> str:
    try:
        return content_of(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _size(path: Path) -> int:
    """Return a regular file's size, -1 for anything else."""
    try:
        facts = os.lstat(path)
    except OSError:
        return -1
    return facts.st_size if stat.S_ISREG(facts.st_mode) else -1
