"""ModelArtifacts: resolved, kept under watch, counted, and protected while somebody uses them.

Each pass asks `decisions.resolution` what is next for one artifact, does it, and stores the
verdict. What would cost a request to a hub is planned again on the object as the server holds it,
so that an old copy never asks twice. The pace is noted only after the verdict is stored: a lost
write asks the hub again.

Rules: AR-RES-05, AR-RES-07, AR-RES-08, AR-HF-01, AR-REV-01..04, AR-ANC-01..03, AR-CLM-01, NS-FR-08.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from gpustack_delivery.decisions import resolution
from gpustack_delivery.decisions.resolution import Action, Credential, Outcome, Pace, Step
from gpustack_delivery.decisions.settings import revalidate_seconds
from gpustack_delivery.errors import NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.artifact import (
    DEGRADED,
    FINALIZER,
    RESOLVED,
    ModelArtifact,
    NodeCounts,
    Status,
)
from gpustack_delivery.vocabulary.conditions import TRUE, find
from gpustack_delivery.vocabulary.consumers import (
    INSTANCES,
    MODEL_DEPLOYMENTS,
    Instance,
    ModelDeployment,
)
from gpustack_delivery.vocabulary.node_store import NodeModelStore
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, Json
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies, every
from gpustack_delivery.worker.errands import Errands
from gpustack_delivery.worker.events import NORMAL, WARNING
from gpustack_delivery.worker.holders import Holders
from gpustack_delivery.worker.settings import Settings

COUNTS_SECONDS: Final = 30.0
REFERRER_SECONDS: Final = 10.0
_THREADS: Final = 4
_ASKING: Final = frozenset({Action.RESOLVE, Action.PROBE, Action.RELIST})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """What is remembered of an artifact between passes, by its UID."""

    pace: Pace | None = None
    counted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pass came to: the status to store, when to look again, and the pace to note."""

    status: Status
    again_seconds: float | None
    pace: Pace | None


class Artifacts:
    """The controller of ModelArtifacts; keys are namespace and name."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        observer: Observer,
        copies: Copies,
        errands: Errands,
        settings: Settings,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._copies = copies
        self._errands = errands
        self._settings = settings
        self._events = errands.events
        self._holders = Holders()
        self._notes: dict[str, Note] = {}
        self._controller = Controller(
            "artifacts", self._reconcile, clock, observer, threads=_THREADS
        )
        copies.artifacts.subscribe(self._artifact_changed)
        copies.node_stores.subscribe(self._store_changed)
        copies.secrets.subscribe(self._secret_changed)
        copies.claims.subscribe(self._claim_changed)
        settings.subscribe(lambda: self._enqueue(copies.artifacts.items()))

    def start(self) -> None:
        """Begin to work; the copies are synced by then."""
        self._controller.start()
        self._enqueue(self._copies.artifacts.items())

    def stop(self) -> None:
        """Let the work under way end; what waits for a hub ends at once."""
        self._errands.end()
        self._controller.stop()

    def _enqueue(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._controller.enqueue(key)

    def _artifact_changed(
        self, key: Key, old: ModelArtifact | None, new: ModelArtifact | None
    ) -> None:
        self._holders.artifact_changed(key, old, new)
        if old is not None and new is None:
            self._notes.pop(old.metadata.uid, None)
        self._controller.enqueue(key)

    def _store_changed(
        self, key: Key, old: NodeModelStore | None, new: NodeModelStore | None
    ) -> None:
        self._enqueue(self._holders.node_changed(key[1], old, new))

    def _secret_changed(self, key: Key, _old: object, _new: object) -> None:
        self._enqueue_users(key, self._errands.secret_of)

    def _claim_changed(self, key: Key, _old: object, _new: object) -> None:
        self._enqueue_users(key, self._errands.claim_of)

    def _enqueue_users(self, key: Key, named: Callable[[ModelArtifact], str]) -> None:
        namespace, name = key
        for user, artifact in self._copies.artifacts.items().items():
            if user[0] == namespace and named(artifact) == name:
                self._controller.enqueue(user)

    def _reconcile(self, key: Key) -> float | None:
        namespace, name = key
        seen = self._copies.artifacts.get(name, namespace)
        if seen is None:
            return None
        if seen.metadata.terminating:
            return self._release(seen)
        if FINALIZER not in seen.metadata.finalizers:
            self._write_finalizers(seen, (*seen.metadata.finalizers, FINALIZER))
            return None
        credential = self._errands.credential(seen)
        step = self._plan(seen, credential)
        if step.action not in _ASKING:
            progress = self._advance(seen, step, credential)
            if progress.status == seen.status:
                self._note(seen, progress)
                return progress.again_seconds
        return self._advance_stored(seen, credential)

    def _advance_stored(self, seen: ModelArtifact, credential: Credential) -> float | None:
        """Do a pass on the object as the server holds it, and store what it comes to."""
        body = self._kube.get(MODEL_ARTIFACTS, seen.metadata.name, seen.metadata.namespace)
        artifact = ModelArtifact.from_wire(body)
        if artifact.metadata.uid != seen.metadata.uid or artifact.metadata.terminating:
            return None  # the change is on its way here
        progress = self._advance(artifact, self._plan(artifact, credential), credential)
        if progress.status != artifact.status:
            stored = body.get("status") or {}
            written = body | {"status": progress.status.to_wire(stored)}
            self._kube.update(MODEL_ARTIFACTS, written, subresource="status")
            self._announce_changes(artifact, progress.status)
        self._note(artifact, progress)
        return progress.again_seconds

    def _plan(self, artifact: ModelArtifact, credential: Credential) -> Step:
        pace = self._notes.get(artifact.metadata.uid, Note()).pace
        now, interval = self._clock.now(), revalidate_seconds(self._settings.values())
        return resolution.plan(artifact, credential, pace, now, interval)

    def _advance(self, artifact: ModelArtifact, step: Step, credential: Credential) -> Progress:
        """Carry a step out; what has to be asked of a hub is asked here."""
        note = self._notes.get(artifact.metadata.uid, Note())
        if step.action is Action.REST:
            return self._counted(artifact, Progress(artifact.status, step.wait_seconds, note.pace))
        if step.action is Action.ANNOUNCE:
            status = resolution.announce(artifact, self._clock.now())
            return Progress(status, 0.0, note.pace)
        outcome: Outcome = step.outcome or self._errands.run(
            artifact, step.action, renewed=_renewed(note.pace, credential)
        )
        now, interval = self._clock.now(), revalidate_seconds(self._settings.values())
        conclusion = resolution.conclude(artifact, outcome, now, interval)
        again = conclusion.again_seconds
        pace = Pace(None if again is None else now + again, credential.version)
        return self._counted(artifact, Progress(conclusion.status, again, pace))

    def _counted(self, artifact: ModelArtifact, progress: Progress) -> Progress:
        """Add the nodes' counts; alone they are written at most every thirty seconds."""
        resolved = progress.status.resolved
        digest = resolved.manifest_digest if resolved else ""
        counts = self._holders.count(digest) if digest else NodeCounts()
        counted = replace(progress.status, nodes=counts)
        if progress.status != artifact.status or counted == artifact.status:
            return replace(progress, status=counted)
        last = self._notes.get(artifact.metadata.uid, Note()).counted_at
        wait = 0.0 if last is None else last + COUNTS_SECONDS - self._clock.monotonic()
        if wait <= 0:
            return replace(progress, status=counted)
        again = progress.again_seconds
        return replace(progress, again_seconds=wait if again is None else min(again, wait))

    def _note(self, artifact: ModelArtifact, progress: Progress) -> None:
        uid = artifact.metadata.uid
        counted_at = self._notes.get(uid, Note()).counted_at
        if progress.status.nodes != artifact.status.nodes:
            counted_at = self._clock.monotonic()
        self._notes[uid] = Note(progress.pace, counted_at)

    def _announce_changes(self, artifact: ModelArtifact, status: Status) -> None:
        """Tell as Events what people should see: a new trouble, and that it is over."""
        for kind, good in ((RESOLVED, NORMAL), (DEGRADED, WARNING)):
            before, after = find(artifact.status.conditions, kind), find(status.conditions, kind)
            if after is None or after.status != TRUE:
                continue
            if before is None or (before.status, before.reason) != (after.status, after.reason):
                message = after.message or "the source is resolved"
                self._events.tell(MODEL_ARTIFACTS, artifact.metadata, good, after.reason, message)

    def _release(self, artifact: ModelArtifact) -> float | None:
        """Let a deleted artifact go once nobody in its namespace names it."""
        self._notes.pop(artifact.metadata.uid, None)
        if FINALIZER not in artifact.metadata.finalizers:
            return None
        if self._is_named(artifact):
            return REFERRER_SECONDS
        others = tuple(name for name in artifact.metadata.finalizers if name != FINALIZER)
        self._write_finalizers(artifact, others)
        return None

    def _is_named(self, artifact: ModelArtifact) -> bool:
        namespace, name = artifact.metadata.key
        for resource, read in (
            (MODEL_DEPLOYMENTS, ModelDeployment.from_wire),
            (INSTANCES, Instance.from_wire),
        ):
            try:
                found = every(self._kube, resource, namespace)
                if any(read(body).names_artifact(name) for body in found):
                    return True
            except NotFound:
                continue  # a cluster without this kind has nobody who names an artifact in it
        return False

    def _write_finalizers(self, artifact: ModelArtifact, finalizers: tuple[str, ...]) -> None:
        # The version read makes this end in a conflict if anybody changed the list meanwhile.
        metadata: Json = {
            "finalizers": list(finalizers),
            "resourceVersion": artifact.metadata.resource_version,
        }
        namespace, name = artifact.metadata.key
        self._kube.merge_patch(MODEL_ARTIFACTS, name, {"metadata": metadata}, namespace)


def _renewed(pace: Pace | None, credential: Credential) -> bool:
    """Say whether the credential is one that was not asked with before."""
    return pace is None or pace.credential_version != credential.version
