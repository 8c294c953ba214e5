"""A node's download engine with small segments and movable time, for unit tests.

`Site.fetch` runs one `Downloader.fetch` on a thread of its own while it moves the clock in small
steps, so that pauses, stalls and bandwidth take no real time.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from emulator.clock import ManualClock
from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.node.downloading import (
    Cancellation,
    Downloader,
    Limits,
    Shape,
    Target,
    resumable_bytes,
)
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Disk
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry

SEGMENT = 16 << 10
CHECKPOINT = 64 << 10


def pattern(size: int, seed: int = 0) -> bytes:
    """Return content in which every few bytes differ from their neighbours and from other seeds."""
    block = hashlib.sha512(seed.to_bytes(8, "big")).digest()
    blocks = [block := hashlib.sha512(block).digest() for _ in range(size // 64 + 1)]
    return b"".join(blocks)[:size]


def entry(path: str, content: bytes, algorithm: str = "sha256") -> Entry:
    """Return the manifest entry of some content."""
    if algorithm == "sha256":
        digest = hashlib.sha256(content).hexdigest()
    else:
        header = b"blob %d\0" % len(content)
        digest = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    return Entry(path, len(content), f"{algorithm}:{digest}")


class Running:
    """A fetch under way on its own thread."""

    def __init__(
        self, site: Site, targets: Sequence[Target], received: Callable[[int], None]
    ) -> None:
        self.cancellation = Cancellation()
        self.fault: Exception | None = None
        self._site = site
        self._targets = targets
        self._received = received
        self._thread = threading.Thread(target=self._run, name="download:test")
        self._thread.start()

    def _run(self) -> None:
        site = self._site
        try:
            site.downloader.fetch(
                self._targets,
                site.workspace,
                credential=site.credential,
                cancellation=self.cancellation,
                received=self._received,
            )
        except Exception as error:  # noqa: BLE001 - raised again by `finish`
            self.fault = error

    @property
    def done(self) -> bool:
        """Say whether the fetch has ended."""
        return not self._thread.is_alive()

    def outcome(self, step_seconds: float = 0.5) -> Exception | None:
        """Move time until the fetch has ended, and return what it raised."""
        while not self.done:
            self._site.clock.advance(step_seconds)
        self._thread.join()
        return self.fault

    def finish(self) -> None:
        """Move time until the fetch has ended, and raise what it raised."""
        fault = self.outcome()
        if fault is not None:
            raise fault


class Site:
    """The engine of one node over one origin; close it after use."""

    def __init__(self, root: Path, url: str, *, concurrency: int = 4) -> None:
        self.workspace = Workspace(root, 1)
        self.tree, self.state = self.workspace.tree, self.workspace.state
        self.tree.mkdir(parents=True, exist_ok=True)
        self.url = url
        self.clock = ManualClock()
        self.limits = Limits(self.clock, concurrency=concurrency)
        self.http = Http(environment={})
        self.hashing = Hashing()
        self.credential: Callable[[], Token | None] = lambda: None
        self.received = 0
        self._lock = threading.Lock()
        self.use(KernelDisk())

    def use(self, disk: Disk, *, hashing: Hashing | None = None) -> None:
        """Build the engine anew over another disk or another way to hash."""
        self._disk = disk
        self.hashing = hashing or self.hashing
        self.rebuild()

    def rebuild(self) -> None:
        """Build the engine anew over the limits of the moment."""
        shape = Shape(SEGMENT, CHECKPOINT)
        self.downloader = Downloader(
            self.http, self.limits, self.clock, self._disk, self.hashing, shape
        )

    def close(self) -> None:
        """Close idle connections."""
        self.http.close()

    def target(self, path: str, content: bytes, algorithm: str = "sha256") -> Target:
        """Return the target of a file that the origin serves under its path."""
        return Target(entry(path, content, algorithm), f"{self.url}/{path}", self.tree / path)

    def start(self, *targets: Target) -> Running:
        """Begin a fetch; the caller moves the time."""
        return Running(self, targets, self._count)

    def fetch(self, *targets: Target) -> None:
        """Fetch from beginning to end."""
        self.received = 0
        self.start(*targets).finish()

    def resumable(self, *targets: Target) -> int:
        """Return what a fetch would not ask for."""
        return resumable_bytes(targets, self.state)

    def content(self, path: str) -> bytes:
        """Return what is on disk."""
        return (self.tree / path).read_bytes()

    def _count(self, count: int) -> None:
        assert count > 0
        with self._lock:
            self.received += count
