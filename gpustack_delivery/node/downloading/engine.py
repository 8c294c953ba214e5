"""The download engine: all files of one attempt, in parallel, verified while they arrive.

    fetchers   up to `download.concurrency` threads; each takes the next segment, asks a source for
               it, writes it to its place and hands the buffer on
    hashers    hash each file's segments in byte order from memory, never from disk; one is enough
               for one file, so there are as many as files, up to a few
    keeper     the attempt's own thread; ends requests that stall, syncs and writes checkpoints,
               finishes files, and adds fetchers when the node's limits grow

A file that fits one segment is hashed by the fetcher that received it and written when it is
right. The first fault ends the attempt: requests are brought down, what has arrived in order is
hashed, and every begun file gets a last checkpoint.

`Downloader.fetch` is called by the node's attempts, for hubs and for peers. Rules: NS-DL-12..18,
NS-DL-29, NS-FR-02..04.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.threads import start
from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.downloading.answers import mismatch
from gpustack_delivery.node.downloading.cancellation import Cancellation
from gpustack_delivery.node.downloading.fetching import (
    STALL_SECONDS,
    Fetcher,
    Segment,
    Terms,
)
from gpustack_delivery.node.downloading.files import File, Piece, Shape, disk_fault
from gpustack_delivery.node.downloading.keeping import Keeper
from gpustack_delivery.node.downloading.ledger import Checkpoint, Ledger, Target
from gpustack_delivery.node.downloading.limits import Abandoned, Limits
from gpustack_delivery.node.downloading.work import Task, Work
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Clock, Disk
from gpustack_delivery.redaction import Token, speakable_url

HASHERS: Final = 4
"""Hashing threads of one attempt at most: four cores hash more than a fast network brings."""


class Downloader:
    """Fetches files under one HTTP configuration; keeps nothing between calls.

    Args:
        http: how requests are made; a new configuration takes a new `Downloader`.
        limits: the node's, shared by every download.
        shape: how finely files are cut.
    """

    def __init__(
        self,
        http: Http,
        limits: Limits,
        clock: Clock,
        disk: Disk,
        hashing: Hashing,
        shape: Shape = Shape(),  # noqa: B008 - frozen
    ) -> None:
        self._http = http
        self._limits = limits
        self._clock = clock
        self._disk = disk
        self._hashing = hashing
        self._shape = replace(shape, direct=disk.direct_writes)

    def fetch(
        self,
        targets: Sequence[Target],
        workspace: Workspace,
        *,
        credential: Callable[[], Token | None],
        cancellation: Cancellation,
        received: Callable[[int], None],
    ) -> None:
        """Make every target whole, verified and synced, going on where an earlier call stopped.

        Args:
            workspace: the attempt's; its state directory is the engine's own.
            credential: returns the token of the moment, asked before every request.
            cancellation: ends the call early, from any thread.
            received: is told of bytes that came over the network and were kept, from several
                threads; with `resumable_bytes` before the call they add up to the total.

        Raises:
            AttemptFault: why not; what is on disk stays for a resume, except a file with wrong
                content.
        """
        ledger = Ledger(workspace.state)
        try:
            files = self._plan(targets, ledger, workspace)
        except (OSError, HostFault) as error:
            raise disk_fault(error) from error
        unfinished = (file for file in files if file.offset < file.size)
        work = Work(unfinished, self._limits, self._clock, self._shape)
        terms = Terms(
            http=self._http,
            limits=self._limits,
            clock=self._clock,
            over=work.over,
            pause=work.pause,
            credential=credential,
            received=received,
            retries=self._shape.retries,
        )
        crew = _Crew(work, terms, Keeper(ledger, self._disk), self._shape.checkpoint_bytes)
        with self._limits.taking_part(work.wake), cancellation.attached(crew.cancel):
            crew.run(files)
        if work.fault is not None:
            raise work.fault
        if not all(file.finished for file in files):
            raise RuntimeError("a download ended without a fault and without all of its files")

    def _plan(self, targets: Sequence[Target], ledger: Ledger, workspace: Workspace) -> list[File]:
        """Return the files that are not finished, each with its hash at its last checkpoint."""
        finished = ledger.finished(targets)
        files = []
        for target in targets:
            entry = target.entry
            if entry.path in finished:
                continue
            checkpoint = ledger.checkpoint(target)
            hasher, offset = None, 0
            if checkpoint is not None:
                offset = checkpoint.offset
                hasher = self._hashing.resume(
                    checkpoint.state, entry.algorithm, entry.size_bytes, offset
                )
            if hasher is None:
                hasher, offset = self._hashing.start(entry.algorithm, entry.size_bytes), 0
            files.append(File(target, hasher, offset, self._shape, workspace))
        fresh = [file.target.entry for file in files if file.offset == 0]
        ledger.withdraw(fresh, self._disk)
        return files


def resumable_bytes(targets: Sequence[Target], state: Path) -> int:
    """Return how many of the targets' bytes a `fetch` would not ask for."""
    ledger = Ledger(state)
    finished = ledger.finished(targets)
    total = 0
    for target in targets:
        if target.entry.path in finished:
            total += target.entry.size_bytes
        elif (checkpoint := ledger.checkpoint(target)) is not None:
            total += checkpoint.offset
    return total


class _Crew:
    """The threads of one attempt."""

    def __init__(self, work: Work, terms: Terms, keeper: Keeper, checkpoint_bytes: int) -> None:
        self._checkpoint_bytes = checkpoint_bytes
        self._work = work
        self._terms = terms
        self._keeper = keeper
        self._fetchers: list[Fetcher] = []
        self._threads: list[threading.Thread] = []
        self._growing = True

    def cancel(self) -> None:
        """End the attempt because nobody wants it any more."""
        self._fail(AttemptFault(Reason.CANCELED))

    def run(self, files: Sequence[File]) -> None:
        """Do the attempt's work on this and other threads, and leave every file in good order."""
        for file in files:
            if file.offset == file.size:  # an empty one, or whole at its last checkpoint
                self._work.later(partial(self._settle, file))
        for number in range(min(HASHERS, sum(not file.in_one_piece for file in files))):
            self._work.hasher_enters()
            leave = self._work.hasher_leaves
            if not self._start(f"hash-{number + 1}", self._hash, leave, first=not number):
                break
        try:
            self._keep()
        finally:
            for thread in self._threads:
                thread.join()
            for file in files:
                self._keeper.stop(file)

    def _fetch(self, fetcher: Fetcher) -> None:
        try:
            while (piece := self._work.take(fetcher)) is not None:
                self._fetch_piece(fetcher, piece)
        except Abandoned:
            pass
        finally:
            fetcher.close()

    def _fetch_piece(self, fetcher: Fetcher, piece: Piece) -> None:
        file, segment = piece.file, piece.segment
        handed_on = False
        try:
            if file.in_one_piece:
                fetcher.fetch(segment, partial(self._work.accepted, file))
                file.hasher.update(segment.view)
                self._settle(file, segment)
            else:
                if not file.opened:
                    file.open()
                file.make_room(segment)
                try:
                    fetcher.fetch(segment, partial(self._work.accepted, file))
                finally:
                    if segment.received:  # all of it, or what came before the attempt ended
                        file.write(segment)
                        self._work.arrived(piece)
                        handed_on = True
        except (AttemptFault, OSError) as error:
            fault = error if isinstance(error, AttemptFault) else disk_fault(error)
            fault.detail = f"{_place(file)} {fault.detail}".rstrip()
            file.wrong = file.wrong or fault.reason is Reason.INTEGRITY_MISMATCH
            self._fail(fault)  # before the segment is given back: no other fetcher goes on
        finally:
            if not handed_on:
                self._work.dropped(piece)

    def _hash(self) -> None:
        while (piece := self._work.next_to_hash()) is not None:
            file = piece.file
            file.hasher.update(piece.segment.view[: piece.segment.received])
            offset = file.offset + piece.segment.received
            if offset < file.size and offset - file.noted >= self._checkpoint_bytes:
                state = file.hasher.save()
                if state is not None:
                    file.noted = offset
                    checkpoint = Checkpoint(offset, state)
                    self._work.later(partial(self._keeper.save, file, checkpoint))
            self._work.hashed(piece)  # from here on another thread may go on with the file
            if offset == file.size:
                self._settle(file)

    def _settle(self, file: File, segment: Segment | None = None) -> None:
        """Judge a file whose last byte is hashed; one in one piece is written only when right."""
        entry = file.target.entry
        if file.hasher.hexdigest() != entry.hex:
            file.wrong = True
            fault = mismatch(f"a file's content does not have its {entry.algorithm} digest")
            fault.detail = _place(file)
            self._fail(fault)
            return
        if file.in_one_piece:
            file.open()
            if segment is not None:
                file.write(segment)
            file.close()
            file.finished = True
            self._work.later(partial(self._keeper.collect, file))
        else:
            file.finished = True
            self._work.later(partial(self._keeper.finish, file))

    def _keep(self) -> None:
        self._add_fetchers()
        while (tasks := self._work.tasks(self._end_stalled())) is not None:
            self._add_fetchers()
            for task in tasks:
                self._do(task)
        self._do(self._keeper.sync_batch)

    def _do(self, task: Task) -> None:
        try:
            task()
        except (OSError, HostFault) as error:
            self._fail(disk_fault(error))

    def _add_fetchers(self) -> None:
        wanted = min(self._terms.limits.concurrency, self._work.pieces)
        while self._growing and len(self._fetchers) < wanted and self._work.enter():
            fetcher = Fetcher(self._terms)
            first = not self._fetchers
            self._fetchers.append(fetcher)  # at once: an attempt that ends looks for its requests
            name, fetch = f"fetch-{len(self._fetchers)}", partial(self._fetch, fetcher)
            self._growing = self._start(name, fetch, self._work.leave, first=first)

    def _end_stalled(self) -> float:
        """Bring down requests that got no further for too long; return when to look again."""
        now = self._terms.clock.monotonic()
        patience = STALL_SECONDS
        for fetcher in self._fetchers:
            watch = fetcher.watch
            if watch is None or watch.resting:
                continue
            left = watch.moved_at + STALL_SECONDS - now
            if left <= 0 and not watch.stalled:
                watch.stalled = True
                watch.flight.abort()
            elif left > 0:
                patience = min(patience, left)
        return patience

    def _fail(self, fault: Exception) -> None:
        self._work.fail(fault)
        for fetcher in list(self._fetchers):
            watch = fetcher.watch
            if watch is not None:
                watch.flight.abort()
        self._terms.limits.wake()

    def _start(self, name: str, target: Task, left: Task, *, first: bool) -> bool:
        """Start a thread; where there is none left, the first of its kind is all others' end."""
        owner = threading.current_thread().name
        thread = threading.Thread(
            target=self._guard, args=(target, left), name=f"{owner}/{name}", daemon=True
        )
        try:
            start(thread)
        except HostFault as fault:
            left()
            if first:
                self._fail(disk_fault(fault))
            return False
        self._threads.append(thread)
        return True

    def _guard(self, target: Task, left: Task) -> None:
        try:
            target()
        except Exception as error:  # noqa: BLE001 - raised again on the attempt's own thread
            self._fail(error)
        finally:
            left()


def _place(file: File) -> str:
    """Return what only the log may say: which file of which source."""
    return f"path={file.target.entry.path!r} url={speakable_url(file.target.url)}"
