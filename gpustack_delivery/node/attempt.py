"""One running download: who asked for it, with which credential, and how far it is.

Every artifact that asks brings its own repository, commit, patterns and credential; all of them
mean the same digest. Credentials live here and nowhere else, each is given out for its own source
alone, and they go with the attempt. Mount calls join from many threads while the attempt's own
thread works.

Rules: NS-DL-03, NS-DL-21, NS-DL-22, NS-RES-09, NS-RES-11.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from gpustack_delivery.decisions.authorization import Grant
from gpustack_delivery.node.downloading import Cancellation
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.node_store import ByteSource


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt is; `size_bytes` is None until the manifest is listed."""

    digest: str
    size_bytes: int | None
    downloaded_bytes: int
    source: ByteSource


class Attempt:
    """The running attempt of one digest. Thread-safe."""

    def __init__(self, digest: str, started: float) -> None:
        self.digest = digest
        self.started = started
        self.cancellation = Cancellation()
        self._lock = threading.Lock()
        self._asked = started
        self._grants: dict[str, Grant] = {}
        self._tokens: dict[str, Token | None] = {}
        self._size_bytes: int | None = None
        self._held_bytes = 0
        self._received: dict[ByteSource, int] = dict.fromkeys(ByteSource, 0)

    def join(self, grant: Grant, token: Token | None, now: float) -> None:
        """Note that an artifact asks, at `now` on the monotonic clock.

        Its newest credential counts; a Pod that brings none takes nothing from one that did.
        """
        with self._lock:
            self._asked = now
            self._grants[grant.artifact_uid] = grant
            if token is not None or grant.artifact_uid not in self._tokens:
                self._tokens[grant.artifact_uid] = token

    @property
    def asked(self) -> float:
        """Return when a mount last asked, on the monotonic clock."""
        return self._asked

    def sources(self) -> Iterator[Grant]:
        """Yield the artifacts that asked, in the order they first did; latecomers included."""
        index = 0
        while True:
            with self._lock:
                known = list(self._grants.values())
            if index >= len(known):
                return
            yield known[index]
            index += 1

    def credential(self, grant: Grant) -> Token | None:
        """Return the newest credential that this very artifact has brought."""
        with self._lock:
            return self._tokens[grant.artifact_uid]

    def listed(self, size_bytes: int, held_bytes: int) -> None:
        """Note the manifest's size, and what an earlier attempt left that need not come again."""
        with self._lock:
            self._size_bytes = size_bytes
            self._held_bytes = held_bytes
            self._received = dict.fromkeys(ByteSource, 0)

    def received(self, source: ByteSource, size_bytes: int) -> None:
        """Count bytes that arrived and were kept."""
        with self._lock:
            self._received[source] += size_bytes

    def corrected(self, source: ByteSource, held_bytes: int) -> None:
        """Note that after a failure no more than this is left; the source's own share shrinks."""
        with self._lock:
            total = self._held_bytes + sum(self._received.values())
            self._received[source] -= total - held_bytes

    def held_bytes(self) -> int:
        """Return what the attempt holds, a resume's part included."""
        with self._lock:
            return self._held_bytes + sum(self._received.values())

    def progress(self) -> Progress:
        """Return how far it is; the source is where most of the received bytes came from."""
        with self._lock:
            total = self._held_bytes + sum(self._received.values())
            peers = self._received[ByteSource.PEER] > self._received[ByteSource.HUB]
            source = ByteSource.PEER if peers else ByteSource.HUB
            return Progress(self.digest, self._size_bytes, total, source)
