"""What a node remembers of a digest: attempts, failures, when it was used and when it was asked
for.

One small file a digest, written before what it says is acted on, so that backoff and ages survive
any kill. A file that is damaged counts as missing: the digest starts afresh, which costs a retry
and no more.

Rules: NS-DL-25, NS-GC-04, NS-GC-05, NS-RES-08.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from gpustack_delivery.errors import Reason
from gpustack_delivery.node.cache import CacheRoot, digest_of, hex_of
from gpustack_delivery.node.records import read_record, remove_record, write_record
from gpustack_delivery.ports import Disk
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import format_micro_time, optional_time, present

ASKED_STEP_SECONDS: Final = 600.0
USED_STEP_SECONDS: Final = 60.0
_LAST_ATTEMPT: Final = 1 << 53
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one digest; times are seconds since the epoch, None for never.

    `failures` counts those in a row that back off. `reason` is None after a success. `failed_at` is
    the last failure, `retry_at` the earliest next attempt.
    """

    last_attempt: int = 0
    used_at: float | None = None
    asked_at: float | None = None
    failures: int = 0
    reason: Reason | None = None
    message: str = ""
    failed_at: float | None = None
    retry_at: float | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a record.

        Raises:
            TypeError, ValueError: it is damaged.
        """
        reason, last_attempt = wire.get("reason"), int(wire.get("lastAttempt", 0))
        if not 0 <= last_attempt <= _LAST_ATTEMPT:
            raise ValueError("no node makes that many attempts")
        return cls(
            last_attempt=last_attempt,
            used_at=optional_time(wire.get("lastUsedTime")),
            asked_at=optional_time(wire.get("lastAskedTime")),
            failures=int(wire.get("failures", 0)),
            reason=Reason(reason) if reason else None,
            message=str(wire.get("message", "")),
            failed_at=optional_time(wire.get("failedTime")),
            retry_at=optional_time(wire.get("retryTime")),
        )

    def to_wire(self) -> Json:
        """Write a record."""
        return present(
            {
                "lastAttempt": self.last_attempt,
                "lastUsedTime": _time(self.used_at),
                "lastAskedTime": _time(self.asked_at),
                "failures": self.failures,
                "reason": self.reason,
                "message": self.message,
                "failedTime": _time(self.failed_at),
                "retryTime": _time(self.retry_at),
            }
        )


class Ledger:
    """The memories of one cache, in memory and on disk. Safe from any thread."""

    def __init__(self, root: CacheRoot, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._lock = threading.Lock()
        self._memories: dict[str, Memory] = {}

    def load(self) -> None:
        """Read every record; unknown and damaged ones are passed over."""
        found = {}
        for path in sorted(self._root.digests.glob("*.json")):
            digest = digest_of(path.stem)
            record = read_record(path) if digest else None
            if digest is None or record is None:
                continue
            try:
                found[digest] = Memory.from_wire(record)
            except (TypeError, ValueError) as error:
                _log.warning("record of a digest ignored: digest=%s error=%s", digest, error)
        with self._lock:
            self._memories = found

    def get(self, digest: str) -> Memory:
        """Return what is remembered of a digest; an empty memory if nothing is."""
        with self._lock:
            return self._memories.get(digest, Memory())

    def all(self) -> dict[str, Memory]:
        """Return every memory by its digest."""
        with self._lock:
            return dict(self._memories)

    def remember(self, digest: str, **changes: Any) -> Memory:
        """Change a digest's memory: at once for this process, and durably before this returns.

        Raises:
            HostFault: it holds for this process and could not be written.
        """
        with self._lock:
            changed = replace(self._memories.get(digest, Memory()), **changes)
            self._memories[digest] = changed
            write_record(self._path(digest), changed.to_wire(), self._disk)
        return changed

    def asked(self, digest: str, now: float) -> None:
        """Note that a mount asks for a digest: kubelet asks often, and the rule counts a day.

        Raises:
            HostFault: it could not be written.
        """
        due = _is_next(now, self.get(digest).asked_at, ASKED_STEP_SECONDS)
        self._note(digest, asked_at=now, durably=due)

    def used(self, digest: str, now: float) -> None:
        """Note that a mount came or went: many may in a second, and the rules count minutes.

        Raises:
            HostFault: it could not be written.
        """
        due = _is_next(now, self.get(digest).used_at, USED_STEP_SECONDS)
        self._note(digest, used_at=now, durably=due)

    def _note(self, digest: str, *, durably: bool, **changes: Any) -> None:
        if durably:
            self.remember(digest, **changes)
        else:
            with self._lock:
                known = self._memories.get(digest, Memory())
                self._memories[digest] = replace(known, **changes)

    def forget(self, digest: str) -> None:
        """Remove a digest's memory.

        Raises:
            HostFault: it could not be removed.
        """
        with self._lock:
            remove_record(self._path(digest), self._disk)
            self._memories.pop(digest, None)

    def _path(self, digest: str) -> Path:
        return self._root.digests / f"{hex_of(digest)}.json"


def _is_next(now: float, before: float | None, step_seconds: float) -> bool:
    """Say whether a time lies in another step than the one that was noted before."""
    return before is None or now // step_seconds != before // step_seconds


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else format_micro_time(seconds)
