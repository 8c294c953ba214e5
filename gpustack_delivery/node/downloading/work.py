"""What is left to do in an attempt, shared by its threads under one lock.

Files are worked on in the order of the attempt; a later file is begun only while an earlier one has
no segment to give. Three kinds of threads wait here, each for its own news: fetchers for a segment
or a buffer, hashers for the segment that comes next in some file, the keeper for things to do on
disk. Nothing here touches disk or network.

`engine` owns one per attempt. Rules: NS-DL-14, NS-DL-17.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from gpustack_delivery.node.downloading.answers import Body
from gpustack_delivery.node.downloading.fetching import Fetcher
from gpustack_delivery.node.downloading.files import Buffers, File, Piece, Shape
from gpustack_delivery.node.downloading.limits import Abandoned, Limits
from gpustack_delivery.ports import Clock

Task: TypeAlias = Callable[[], None]
OPEN_FILES: Final = 16
"""Files of several segments that are worked on at once."""


class Work:
    """One attempt's bookkeeping; every method is thread-safe."""

    def __init__(self, files: Iterable[File], limits: Limits, clock: Clock, shape: Shape) -> None:
        self._limits = limits
        self._clock = clock
        lock = threading.Lock()
        # Fetchers without an open answer are all alike: one is woken for one piece, and wakes the
        # next while there is more. Who waits for something of his own has a condition apart.
        self._for_fetchers = threading.Condition(lock)
        self._for_streams = threading.Condition(lock)
        self._for_pauses = threading.Condition(lock)
        self._for_hasher = threading.Condition(lock)
        self._for_keeper = threading.Condition(lock)
        self._waiting: deque[File] = deque(files)
        self._begun: list[File] = []
        self._open = 0
        self._buffers = Buffers(shape.segment_bytes)
        self._hashable: deque[File] = deque()
        self._tasks: deque[Task] = deque()
        self._fetchers = 0
        self._hashers = 0
        self._news = False
        self._fault: Exception | None = None
        self.pieces = sum(file.pieces for file in self._waiting)

    @property
    def fault(self) -> Exception | None:
        """Return what ended the attempt, None while nothing has."""
        return self._fault

    def over(self) -> bool:
        """Say whether the attempt ends without being complete."""
        return self._fault is not None

    def fail(self, fault: Exception) -> None:
        """End the attempt; the first fault is the one that is told."""
        with self._for_keeper:
            self._fault = self._fault or fault
            self._wake_all()

    def wake(self) -> None:
        """Have everyone look again: a limit has changed."""
        with self._for_keeper:
            self._wake_all()

    # What fetchers call.

    def enter(self) -> bool:
        """Count a fetcher in; False when there is nothing left for it to fetch."""
        with self._for_keeper:
            if self.over() or not (self._waiting or self._begun):
                return False
            self._fetchers += 1
            return True

    def leave(self) -> None:
        """Count a fetcher out."""
        with self._for_keeper:
            self._fetchers -= 1
            self._wake_all()

    def take(self, fetcher: Fetcher) -> Piece | None:
        """Return the next segment with a buffer under it; None when there is no more to fetch.

        A fetcher whose open answer cannot go on by itself lets go of it.
        """
        news = self._for_streams if fetcher.streaming else self._for_fetchers
        with news:
            while not self.over():
                piece = self._next(fetcher)
                if piece is not None:
                    self._tell_another()
                    return piece
                if not self._waiting and not self._begun:
                    return None
                if fetcher.streaming and not self._goes_on(fetcher):
                    break
                self._clock.wait(news, None)
            else:
                return None
        fetcher.close()
        return self.take(fetcher)

    def _goes_on(self, fetcher: Fetcher) -> bool:
        """Say whether an open answer waits for nothing but the hash.

        It counts as a request of the node. The segment that it would wait for may be one whose own
        request waits for that.
        """
        return any(file.continues(fetcher) and not file.in_flight for file in self._begun)

    def pause(self, seconds: float) -> None:
        """Wait before the next try.

        Raises:
            Abandoned: the attempt is over.
        """
        until = self._clock.monotonic() + seconds
        with self._for_pauses:
            while not self.over():
                left = until - self._clock.monotonic()
                if left <= 0:
                    return
                self._clock.wait(self._for_pauses, left)
        raise Abandoned

    def accepted(self, file: File, body: Body) -> None:
        """Note that a source answers with a file's content: more of it may be asked for."""
        with self._for_fetchers:
            if file.accepted(body):
                self._for_fetchers.notify_all()

    def arrived(self, piece: Piece) -> None:
        """Hand a segment that is on disk to the hasher."""
        with self._for_hasher:
            if piece.file.arrived(piece):
                self._hashable.append(piece.file)
                self._for_hasher.notify()
            self._tell_another()

    def dropped(self, piece: Piece) -> None:
        """Take back a segment that needs no hashing: it brought nothing, or a whole small file."""
        with self._for_fetchers:
            piece.file.dropped()
            self._take_back(piece)

    # What hashers call.

    def next_to_hash(self) -> Piece | None:
        """Wait for the next segment in byte order of any file; None when no more will come."""
        with self._for_hasher:
            while True:
                if self._hashable:
                    piece = self._hashable.popleft().next_to_hash()
                    if piece is not None:
                        return piece
                elif self._fetchers == 0 and (self.over() or not (self._waiting or self._begun)):
                    return None
                else:
                    self._clock.wait(self._for_hasher, None)

    def hasher_enters(self) -> None:
        """Count a hasher in, before it starts."""
        with self._for_keeper:
            self._hashers += 1

    def hasher_leaves(self) -> None:
        """Count a hasher out."""
        with self._for_keeper:
            self._hashers -= 1
            self._wake_all()

    def hashed(self, piece: Piece) -> None:
        """Note that the hash has passed a segment; its buffer is free again."""
        with self._for_hasher:
            file = piece.file
            file.offset += piece.segment.received
            if file.has_next_to_hash:
                self._hashable.append(file)
                self._for_hasher.notify()
            if file.offset == file.size:
                self._open -= 1
            self._take_back(piece)

    # What the keeper calls, and what it is told.

    def later(self, task: Task) -> None:
        """Have the keeper do something on disk."""
        with self._for_keeper:
            self._tasks.append(task)
            self._for_keeper.notify()

    def tasks(self, patience_seconds: float) -> list[Task] | None:
        """Wait for something to do, or for news; None when all is done."""
        with self._for_keeper:
            if not (self._tasks or self._news or self._ended()):
                self._clock.wait(self._for_keeper, patience_seconds)
            self._news = False
            tasks = list(self._tasks)
            self._tasks.clear()
            return None if not tasks and self._ended() else tasks

    def _next(self, fetcher: Fetcher) -> Piece | None:
        room = self._has_room()
        for file in self._begun:
            if file.continues(fetcher):
                # It holds a request open, so it must not wait for others' buffers for ever.
                return self._hand_out(file, fetcher) if room or file.idle else None
        if not room:
            return None
        begun = next((file for file in self._begun if file.may_take(fetcher)), None)
        if begun is None:
            if not self._waiting or self._open >= OPEN_FILES:
                return None
            begun = self._waiting.popleft()
            self._begun.append(begun)
            self._open += 0 if begun.in_one_piece else 1
        return self._hand_out(begun, fetcher)

    def _hand_out(self, file: File, fetcher: Fetcher) -> Piece:
        piece = file.take(fetcher, self._buffers.lend())
        if file.all_taken:
            self._begun.remove(file)
            if not self._waiting and not self._begun:
                self._for_fetchers.notify_all()  # the others can go home
        return piece

    def _take_back(self, piece: Piece) -> None:
        keep = self._buffers.lent <= self._limits.share_segments
        self._buffers.take_back(piece.buffer, keep=keep)
        self._tell_another()

    def _has_room(self) -> bool:
        return self._buffers.lent < self._limits.share_segments

    def _tell_another(self) -> None:
        """Wake a fetcher if there may be a piece for it."""
        self._for_streams.notify_all()
        if self._has_room():
            self._for_fetchers.notify()

    def _ended(self) -> bool:
        return not self._fetchers and not self._hashers

    def _wake_all(self) -> None:
        self._news = True
        for condition in (
            self._for_fetchers,
            self._for_streams,
            self._for_pauses,
            self._for_hasher,
            self._for_keeper,
        ):
            condition.notify_all()
