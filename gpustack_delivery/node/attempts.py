"""Downloads in the background: at most one a digest, joined by every mount that asks for it.

A mount call never waits here. It hears how far the attempt is, or why there is none and when there
will be. The attempt runs on its own thread: it lists the files and binds the listing to the digest,
reserves room, downloads, publishes, and writes down how it ended before it leaves. What it leaves
behind, a tree, a partial or a failure with its backoff, is all that the next call or the next start
needs to know.

Rules: NS-DL-01, NS-DL-09, NS-DL-21, NS-DL-24..29, NS-FR-01, NS-FR-06, NS-FR-07.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

from gpustack_delivery.adapters.threads import start
from gpustack_delivery.decisions.authorization import Grant
from gpustack_delivery.decisions.backoff import Setback, holds_back, setback
from gpustack_delivery.decisions.reporting import (
    backoff_message,
    failure_message,
    progress_message,
)
from gpustack_delivery.errors import AttemptFault, HostFault, Pending, Reason, Waiting
from gpustack_delivery.node.attempt import Attempt, Progress
from gpustack_delivery.node.cache import hex_of
from gpustack_delivery.node.configuration import NOT_YET
from gpustack_delivery.node.delivery import Surroundings, deliver
from gpustack_delivery.redaction import Token

ABANDONED_SECONDS: Final = 300.0
_log = logging.getLogger(__name__)


class Attempts:
    """The running attempts of one node. Thread-safe.

    Args:
        around: what they work with.
        changed: called after every beginning, listing and end; must be quick.
    """

    def __init__(self, around: Surroundings, changed: Callable[[], None]) -> None:
        self._around = around
        self._changed = changed
        self._moved = threading.Condition()
        self._running: dict[str, Attempt] = {}
        self._threads: set[threading.Thread] = set()
        self._stopping = False
        self._watcher = threading.Thread(target=self._watch, name="attempts", daemon=True)

    def start(self) -> None:
        """Begin to watch for attempts that nobody asks for any more."""
        self._watcher.start()

    def stop(self) -> None:
        """Stop every attempt where it is, as a kill would: partials stay, nothing is recorded."""
        with self._moved:
            self._stopping = True
            threads = list(self._threads)
            for attempt in self._running.values():
                attempt.cancellation.cancel()
            self._moved.notify_all()
        for thread in threads:
            thread.join()
        if self._watcher.ident is not None:
            self._watcher.join()

    def running(self) -> tuple[Progress, ...]:
        """Return how far each attempt is, by digest."""
        with self._moved:
            attempts = list(self._running.values())
        return tuple(sorted((a.progress() for a in attempts), key=lambda found: found.digest))

    def ask(self, grant: Grant, token: Token | None) -> None:
        """Ask for a digest that was not published a moment ago; return if it is by now.

        Raises:
            Pending: an attempt runs, perhaps from this call on; the message says how far it is.
            Waiting: none runs, and none begins now; the message says why.
            HostFault: an invalid configuration's record cannot be written.
        """
        digest, around = grant.digest, self._around
        with self._moved:
            if self._stopping:
                raise Waiting("the plugin is stopping")
            attempt = self._running.get(digest)
            if attempt is None and around.store.trees.has(digest):
                return
            if attempt is None:
                self._refuse_if_held_back(digest)
            self._note_asked(digest)
            attempt = attempt or Attempt(digest, around.clock.monotonic())
            attempt.join(grant, token, around.clock.monotonic())
            if digest not in self._running:
                self._begin(attempt)
            progress = attempt.progress()
        raise Pending(progress_message(digest, progress.downloaded_bytes, progress.size_bytes))

    def _note_asked(self, digest: str) -> None:
        """Note a question; where none can be written the attempt ends for that reason itself."""
        try:
            self._around.store.ledger.asked(digest, self._around.clock.now())
        except HostFault as fault:
            _log.error("request not recorded: digest=%s detail=%s", digest, fault.detail)

    def _refuse_if_held_back(self, digest: str) -> None:
        memory = self._around.store.ledger.get(digest)
        now, retry_at = self._around.clock.now(), memory.retry_at or 0.0
        last = Setback(memory.failures, retry_at)
        if memory.reason is not None and holds_back(memory.reason, last, now):
            raise Waiting(backoff_message(digest, memory.reason, memory.message, retry_at))
        fault = self._around.configuration.fault
        if fault == NOT_YET:
            raise Waiting(f"the node is starting: {fault}")
        if fault:
            self._refuse_invalid(digest, fault)

    def _refuse_invalid(self, digest: str, fault: str) -> NoReturn:
        """Record that the configuration stands in the way, once a fault, and say so."""
        message = failure_message(Reason.INVALID_REQUEST, fault)
        memory = self._around.store.ledger.get(digest)
        if (memory.reason, memory.message) != (Reason.INVALID_REQUEST, message):
            self._record(digest, Reason.INVALID_REQUEST, message)
            self._changed()
        retry_at = self._around.store.ledger.get(digest).retry_at or 0.0
        raise Waiting(backoff_message(digest, Reason.INVALID_REQUEST, message, retry_at))

    def _begin(self, attempt: Attempt) -> None:
        name = f"download:{hex_of(attempt.digest)[:8]}"
        thread = threading.Thread(target=self._run, args=(attempt,), name=name, daemon=True)
        try:
            start(thread)
        except HostFault as fault:
            raise Waiting(f"no download can begin now: {fault}") from fault
        self._running[attempt.digest] = attempt
        self._threads.add(thread)
        self._moved.notify_all()

    def _run(self, attempt: Attempt) -> None:
        digest, collector = attempt.digest, self._around.collector
        collector.begin(digest)
        self._changed()
        fault = self._outcome(attempt)
        collector.end(digest)
        with self._moved:
            try:
                if not self._stopping:
                    self._conclude(attempt, fault)
            except HostFault as failure:
                _log.error("outcome not recorded: digest=%s detail=%s", digest, failure.detail)
            finally:
                del self._running[digest]
                self._threads.discard(threading.current_thread())
                self._moved.notify_all()
        self._changed()

    def _outcome(self, attempt: Attempt) -> AttemptFault | None:
        """Run the attempt to its end; return how it failed, or None for a publication."""
        try:
            deliver(attempt, self._around, self._changed)
        except AttemptFault as fault:
            return fault
        except Exception as error:  # noqa: BLE001 - the thread's last door: each end has a record
            # Where it happened, and not what it says: a foreign error's text may hold anything.
            stack = "".join(traceback.format_tb(error.__traceback__))
            detail = f"{type(error).__name__} at\n{stack}"
            return AttemptFault(Reason.SOURCE_UNAVAILABLE, "an internal error", detail=detail)
        return None

    def _conclude(self, attempt: Attempt, fault: AttemptFault | None) -> None:
        digest, clock, metrics = attempt.digest, self._around.clock, self._around.metrics
        if fault is None:
            seconds = clock.monotonic() - attempt.started
            _log.info("published: digest=%s seconds=%.1f", digest, seconds)
            metrics.published(seconds)
            self._around.store.ledger.remember(
                digest,
                used_at=clock.now(),
                failures=0,
                reason=None,
                message="",
                failed_at=None,
                retry_at=None,
            )
            return
        message = failure_message(fault.reason, str(fault))
        _log.warning(
            "attempt ended: digest=%s reason=%s message=%s detail=%s",
            digest,
            fault.reason,
            message,
            fault.detail,
        )
        metrics.failed(fault.reason)
        self._record(digest, fault.reason, message)

    def _record(self, digest: str, reason: Reason, message: str) -> None:
        ledger, now = self._around.store.ledger, self._around.clock.now()
        decided = setback(reason, ledger.get(digest).failures, now)
        ledger.remember(
            digest,
            failures=decided.failures,
            reason=reason,
            message=message,
            failed_at=now,
            retry_at=decided.retry_at,
        )

    def _watch(self) -> None:
        """Cancel attempts that no mount has asked for in five minutes."""
        clock = self._around.clock
        with self._moved:
            while not self._stopping:
                now, waits = clock.monotonic(), []
                for attempt in self._running.values():
                    left = attempt.asked + ABANDONED_SECONDS - now
                    if left <= 0:
                        attempt.cancellation.cancel()
                    else:
                        waits.append(left)
                clock.wait(self._moved, min(waits, default=None))
