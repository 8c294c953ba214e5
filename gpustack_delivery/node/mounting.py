"""A mount call from top to bottom, and its undoing.

    already mounted there?  ->  have the artifacts been read?  ->  may this Pod?  ->  is it
    published?
        ->  record the reference, bind, done;  otherwise ask for the download and say how far it is

A repeated call whose target already shows the same digest read-only is no new mount and succeeds
before anything is judged: kubelet publishes running volumes again after its restart, and a
revocation stops new mounts only. Anything else at the target, another digest, a writable mount, a
foreign one, is taken off before ours goes on. Unmounting asks for nothing but the target.

Rules: NS-AUT-11, NS-AUT-13, NS-AUT-14, NS-DL-02, NS-DL-30, NS-REF-01..04, NS-RES-23.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpustack_delivery.decisions.authorization import (
    KubeletDirectory,
    MountRequest,
    check_form,
    judge,
    lies_in,
)
from gpustack_delivery.errors import HostFault, Malformed, Pending, Refused, Waiting
from gpustack_delivery.mirror import Mirror
from gpustack_delivery.node.attempts import Attempts
from gpustack_delivery.node.collector import Store
from gpustack_delivery.node.health import Health
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.node.references import Reference
from gpustack_delivery.ports import Clock, Mount, Mounts
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import ModelArtifact

_MOST_STACKED: Final = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reception:
    """What mount calls are answered from."""

    store: Store
    health: Health
    artifacts: Mirror[ModelArtifact]
    attempts: Attempts
    mounts: Mounts
    metrics: Metrics
    clock: Clock


class Mounting:
    """Publishes and unpublishes volumes. Thread-safe; calls for one target follow one another.

    Args:
        around: what calls are answered from.
        kubelet: the directory that every target lies in.
        changed: called after a reference came or went; must be quick.
    """

    def __init__(
        self, around: Reception, kubelet: KubeletDirectory, changed: Callable[[], None]
    ) -> None:
        self._around = around
        self._kubelet = kubelet
        self._changed = changed
        self._targets = _Turns()
        # Targets that were told to wait: their mount is a materialized one, any other a hit.
        self._awaited: set[str] = set()

    def publish(self, request: MountRequest, token: Token | None) -> None:
        """Mount what a request may have, or say why not yet.

        Args:
            request: the call.
            token: the credential that came with it, if any.

        Raises:
            Malformed, Refused: never, for this request.
            Pending, Waiting: not yet; ask again.
            HostFault: the kernel or the filesystem failed; nothing is mounted.
        """
        check_form(request)
        with self._targets.turn(request.resolved_target):
            if self._shows(Path(request.resolved_target), request.manifest_digest):
                return
            if not self._around.artifacts.synced:
                raise Waiting("the plugin is starting and has not read the ModelArtifacts yet")
            if not self._around.store.references.rebuilt:
                raise Waiting(self._around.health.trouble)
            try:
                self._judge_and_mount(request, token)
            except Refused:
                self._around.metrics.mounted("denied")
                raise
            except (Pending, Waiting):
                self._awaited.add(request.resolved_target)
                self._around.metrics.mounted("pending")
                raise

    def unpublish(self, volume_id: str, target: str) -> None:
        """Take a volume off its target; a target that was never mounted is a success.

        Raises:
            Malformed: there is no volume id or no target.
            HostFault: the kernel refused to unmount.
        """
        if not volume_id or not target:
            raise Malformed("the request has no volume id or no target path")
        path = Path(follow(target))
        if not lies_in(str(path), self._kubelet.resolved):
            _log.warning(
                "unpublish outside the kubelet directory, nothing is mounted: %r", target[:1000]
            )
            return
        with self._targets.turn(str(path)):
            self._clear(path)
            # Only an empty directory goes: whatever else stands there, we did not put it there.
            with suppress(OSError):
                path.rmdir()
            self._awaited.discard(str(path))
            reference = self._around.store.references.drop(str(path))
            if reference is not None:
                self._used(reference.digest)
                self._changed()

    def _judge_and_mount(self, request: MountRequest, token: Token | None) -> None:
        around = self._around
        artifact = around.artifacts.get(request.artifact, request.pod_namespace)
        grant = judge(request, self._kubelet, artifact)
        # A download may end between the look and the question: then there is something to see.
        for _ in range(2):
            with around.store.trees.hold(grant.digest) as tree:
                if tree is not None:
                    return self._mount(request, grant.digest, tree)
            around.attempts.ask(grant, token)
        raise Waiting("the published tree was damaged; it is delivered again")

    def _mount(self, request: MountRequest, digest: str, tree: Path) -> None:
        references, target = self._around.store.references, Path(request.resolved_target)
        self._clear(target)
        references.record(
            Reference(
                target=str(target),
                digest=digest,
                volume_id=request.volume_id,
                pod_namespace=request.pod_namespace,
                pod_name=request.pod_name,
                pod_uid=request.pod_uid,
            )
        )
        try:
            _make_target(target)
            self._around.mounts.bind_read_only(tree, target)
        except HostFault:
            references.drop(str(target))
            self._changed()  # a report may have told of it meanwhile
            with suppress(OSError):
                target.rmdir()
            raise
        result = "materialized" if str(target) in self._awaited else "hit"
        self._awaited.discard(str(target))
        self._around.metrics.mounted(result)
        self._used(digest)
        self._changed()

    def _used(self, digest: str) -> None:
        """Note a use; a ledger that cannot be written costs an age, not a mount."""
        store, now = self._around.store, self._around.clock.now()
        try:
            if store.references.names(digest):
                store.ledger.used(digest, now)
            else:  # the last one: the grace is counted from it, after a restart too
                store.ledger.remember(digest, used_at=now)
        except HostFault as fault:
            _log.error("last use not recorded: digest=%s detail=%s", digest, fault.detail)

    def _at(self, target: Path) -> list[Mount]:
        return [mount for mount in self._around.mounts.table() if mount.target == target]

    def _shows(self, target: Path, digest: str) -> bool:
        """Say whether the topmost mount of a target shows a digest, read-only."""
        found = self._at(target)
        return bool(found) and self._around.store.references.shows_ours(found[-1], digest)

    def _clear(self, target: Path) -> None:
        """Take every mount off a target, stacked ones included.

        Raises:
            HostFault: the kernel refused, or mounts keep coming back.
        """
        for _ in range(_MOST_STACKED):
            if not self._at(target):
                return
            self._around.mounts.unmount(target)
        raise HostFault("the target has more mounts on it than can be taken off")


def follow(target: str) -> str:
    """Return a target as the mount table writes it: symlinks of its parent followed, no dots."""
    if "\0" in target:  # no path at all, and no rule will take it for one
        return target
    parent, name = os.path.split(os.path.normpath(target))
    return str(Path(os.path.realpath(parent)) / name)


def _make_target(target: Path) -> None:
    try:
        target.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the target directory cannot be made: {error.strerror}"
        raise HostFault(message, detail=str(error)) from error


class _Turns:
    """One lock a name, made when needed and forgotten when nobody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Hold a name's lock."""
        with self._lock:
            lock, waiting = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, waiting = self._locks[name]
                if waiting == 1:
                    del self._locks[name]
                else:
                    self._locks[name] = lock, waiting - 1
