"""ModelPrefetches: warm-up Pods where content is missing, pins where it is to stay, and a status.

Each pass gathers the facts of one prefetch from the copies, has `decisions.prefetching` plan, and
carries the plan out; every part of it may be carried out twice. A Pod that the server refuses, by a
quota or a policy, is told as an Event, and the rest of the plan is done all the same. A prefetch
that goes takes its Pods along by their owner references.

Nodes report often, and a prefetch may have thousands of them: their reports are gathered for a
second before a pass looks at them.

Rules: MP-RES-09, MP-POD-01..07, MP-PIN-01..03, MP-STA-01..05.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from gpustack_delivery.decisions.pods import Rendering, WarmUp, warm_up
from gpustack_delivery.decisions.prefetching import Attempt, Facts, Mark, Plan, pins, plan
from gpustack_delivery.errors import AlreadyExists, ApiFault, NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.grants import ModelStoreBinding
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch
from gpustack_delivery.vocabulary.resources import MODEL_PREFETCHES, PODS, Json
from gpustack_delivery.vocabulary.settings import WARMUP_IMAGE
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.events import WARNING, Events
from gpustack_delivery.worker.pins import FIELD_MANAGER, Pins
from gpustack_delivery.worker.residents import Residents
from gpustack_delivery.worker.settings import Settings
from gpustack_delivery.worker.targets import Targets

REPORT_SECONDS: Final = 1.0
_REFUSED_SECONDS: Final = 30.0
_UNSEEN_SECONDS: Final = 2.0
_THREADS: Final = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Warming:
    """What the controller of prefetches looks at."""

    copies: Copies
    residents: Residents
    settings: Settings
    events: Events


class Prefetches:
    """The controller of ModelPrefetches; keys are namespace and name."""

    def __init__(self, kube: Kube, clock: Clock, observer: Observer, warming: Warming) -> None:
        self._kube = kube
        self._clock = clock
        self._copies = warming.copies
        self._residents = warming.residents
        self._settings = warming.settings
        self._events = warming.events
        self._targets = Targets(warming.copies)
        self._pins = Pins(kube, clock, observer, warming.copies)
        self._marks: dict[Key, dict[str, Mark]] = {}
        self._controller = Controller(
            "prefetches", self._reconcile, clock, observer, threads=_THREADS
        )
        self._subscribe()

    def start(self) -> None:
        """Begin to work; the copies are synced by then."""
        for key, prefetch in self._copies.prefetches.items().items():
            if not prefetch.metadata.terminating:
                facts = self._gather(prefetch)
                self._pins.wish(key, facts.digest, pins(facts, self._clock.now()))
        self._pins.start()
        self._controller.start()
        self._enqueue_all()

    def stop(self) -> None:
        """Let the work under way end."""
        self._controller.stop()
        self._pins.stop()

    def _subscribe(self) -> None:
        copies = self._copies
        copies.prefetches.subscribe(self._prefetch_changed)
        copies.artifacts.subscribe(self._artifact_changed)
        copies.bindings.subscribe(self._binding_changed)
        copies.warm_ups.subscribe(self._pod_changed)
        self._targets.subscribe(self._controller.enqueue)
        self._residents.subscribe(self._entry_changed)
        self._settings.subscribe(self._enqueue_all)

    def _enqueue_all(self) -> None:
        for key in self._copies.prefetches.items():
            self._controller.enqueue(key)

    def _prefetch_changed(
        self, key: Key, old: ModelPrefetch | None, new: ModelPrefetch | None
    ) -> None:
        """Look again when what is wanted changed; the status is our own."""
        if old is None or new is None or _wish(old) != _wish(new):
            self._controller.enqueue(key)

    def _artifact_changed(
        self, key: Key, old: ModelArtifact | None, new: ModelArtifact | None
    ) -> None:
        if old is not None and new is not None and _identity(old) == _identity(new):
            return
        for name, prefetch in self._copies.prefetches.items().items():
            if (name[0], prefetch.spec.artifact_name) == key:
                self._controller.enqueue(name)

    def _binding_changed(
        self, key: Key, _old: ModelStoreBinding | None, _new: ModelStoreBinding | None
    ) -> None:
        for name, prefetch in self._copies.prefetches.items().items():
            if (name[0], prefetch.spec.binding_name) == key:
                self._controller.enqueue(name)

    def _pod_changed(self, _key: Key, old: WarmUp | None, new: WarmUp | None) -> None:
        for pod in (old, new):
            for owner in pod.metadata.owners if pod else ():
                if owner.kind == MODEL_PREFETCHES.kind and pod:
                    self._controller.enqueue((pod.metadata.namespace, owner.name), REPORT_SECONDS)

    def _entry_changed(self, digest: str, old: ModelEntry | None, new: ModelEntry | None) -> None:
        if old and new and replace(old, downloaded_bytes=0) == replace(new, downloaded_bytes=0):
            return  # how far a download is matters only when a Pod may have stalled
        for key, prefetch in self._copies.prefetches.items().items():
            artifact = self._copies.artifacts.get(prefetch.spec.artifact_name, key[0])
            resolved = artifact.status.resolved if artifact else None
            if resolved is not None and resolved.manifest_digest == digest:
                self._controller.enqueue(key, REPORT_SECONDS)

    def _reconcile(self, key: Key) -> float | None:
        namespace, name = key
        prefetch = self._copies.prefetches.get(name, namespace)
        if prefetch is None or prefetch.metadata.terminating:
            self._pins.withdraw(key)
            self._targets.drop(key)
            self._marks.pop(key, None)
            return None
        facts = self._gather(prefetch)
        made = plan(facts, self._clock.now())
        self._marks[key] = dict(made.marks)
        self._pins.wish(key, facts.digest, made.pinned)
        waits = [made.again_seconds, self._carry_out(facts, made)]
        if made.status != prefetch.status:
            metadata = prefetch.metadata
            body: Json = {
                "metadata": {"name": name, "namespace": namespace, "uid": metadata.uid},
                "status": made.status.to_wire(),
            }
            self._kube.apply(
                MODEL_PREFETCHES, body, field_manager=FIELD_MANAGER, subresource="status"
            )
        return min((wait for wait in waits if wait is not None), default=None)

    def _gather(self, prefetch: ModelPrefetch) -> Facts:
        copies, namespace = self._copies, prefetch.metadata.namespace
        artifact = copies.artifacts.get(prefetch.spec.artifact_name, namespace)
        binding = copies.bindings.get(prefetch.spec.binding_name, namespace)
        targets, fault = self._targets.of(prefetch)
        facts = Facts(
            prefetch,
            artifact,
            targets,
            fault,
            warm_ups=[
                pod
                for (space, _), pod in copies.warm_ups.items().items()
                if space == namespace and pod.belongs_to(prefetch)
            ],
            may_pin=binding is not None and binding.spec.allow_pinned,
            marks=self._marks.get(prefetch.metadata.key, {}),
        )
        entries = self._residents.entries(facts.digest) if facts.digest else {}
        # Of thousands of targets nearly all hold the content: only the others may need a Pod.
        lacking = tuple(name for name in targets if not _holds(entries.get(name)))
        renderings = self._renderings(artifact, lacking)
        return replace(
            facts,
            entries=entries,
            fingerprints={node: made.fingerprint for node, made in renderings.items()},
        )

    def _renderings(
        self, artifact: ModelArtifact | None, targets: tuple[str, ...]
    ) -> dict[str, Rendering]:
        """Return what Pods would be made from now; nothing while the artifact is not mountable."""
        if artifact is None or not artifact.status.is_resolved or artifact.metadata.terminating:
            return {}
        image = self._settings.values()[WARMUP_IMAGE.name]
        nodes = {name: self._copies.nodes.get(name) for name in targets}
        return {
            name: Rendering(artifact, image, node.taints)
            for name, node in nodes.items()
            if node is not None
        }

    def _carry_out(self, facts: Facts, made: Plan) -> float | None:
        """Remove and make Pods; return when to look again, in seconds."""
        for pod in made.remove:
            with suppress(NotFound):
                namespace = pod.metadata.namespace
                self._kube.delete(PODS, pod.metadata.name, namespace, uid=pod.metadata.uid)
        renderings = self._renderings(facts.artifact, tuple(each.node for each in made.make))
        waits = [self._make(facts.prefetch, each, renderings) for each in made.make]
        return min((wait for wait in waits if wait is not None), default=None)

    def _make(
        self, prefetch: ModelPrefetch, attempt: Attempt, renderings: dict[str, Rendering]
    ) -> float | None:
        rendering = renderings.get(attempt.node)
        if rendering is None or not rendering.digest:
            return _UNSEEN_SECONDS  # it changed since the plan was made
        body = warm_up(prefetch, attempt.node, attempt.number, rendering)
        try:
            self._kube.create(PODS, body, prefetch.metadata.namespace)
        except AlreadyExists:
            return _UNSEEN_SECONDS  # an earlier pass made it, and the copy does not show it yet
        except ApiFault as fault:
            message = f"no warm-up Pod for node {attempt.node}: {fault}"
            _log.warning("%s: %s %s", "/".join(prefetch.metadata.key), message, fault.detail)
            self._events.tell(
                MODEL_PREFETCHES, prefetch.metadata, WARNING, "WarmUpRefused", message
            )
            return max(_REFUSED_SECONDS, fault.retry_after_seconds)
        return None


def _wish(prefetch: ModelPrefetch) -> tuple[object, ...]:
    metadata = prefetch.metadata
    return metadata.uid, metadata.generation, metadata.terminating


def _holds(entry: ModelEntry | None) -> bool:
    return entry is not None and entry.state is ModelState.READY


def _identity(artifact: ModelArtifact) -> tuple[object, ...]:
    """Return what warming an artifact depends on."""
    resolved = artifact.status.resolved
    return (
        artifact.metadata.uid,
        artifact.metadata.terminating,
        resolved and resolved.manifest_digest,
        artifact.status.is_resolved,
        artifact.status.conditions if not artifact.status.is_resolved else (),
    )
