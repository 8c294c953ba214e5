"""Runs the Pods of ModelDeployments and Instances, where nobody else does.

A deployment has so many Pods for each of its roles, and a Pod that ended is replaced; an instance
has one Pod, which stays as it ended. A Pod is rendered once, when its artifacts are resolved:
changed templates count for Pods made afterwards, as in a ReplicaSet. A role or an instance without
containers runs nothing.

Rules: NS-MNT-01, NS-MNT-02, NS-REQ-02, NS-REQ-04, SC-PRF-01, SC-PRF-02.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from gpustack_delivery.decisions.consuming import Owner, Use, render, template_fault
from gpustack_delivery.decisions.preference import HOSTNAME, holders
from gpustack_delivery.decisions.settings import NODE_DELIVERY
from gpustack_delivery.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.artifact import HubSource, ModelArtifact
from gpustack_delivery.vocabulary.consumers import (
    INSTANCES,
    MODEL_DEPLOYMENTS,
    Instance,
    ModelDeployment,
    ModelVolume,
)
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import PODS, Json
from gpustack_delivery.vocabulary.settings import DELIVERY_MODE
from gpustack_delivery.worker.controller import Controller, Observer
from gpustack_delivery.worker.copies import ConsumerPod, Copies
from gpustack_delivery.worker.events import WARNING, Events
from gpustack_delivery.worker.settings import Settings

_THREADS: Final = 2
_VOLUME: Final = "model"
_LOOK_AGAIN_SECONDS: Final = 5.0

Consumer: TypeAlias = ModelDeployment | Instance


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one consumer wants to run: templates by Pod name, and the volumes of each."""

    owner: Owner
    templates: Mapping[str, Json]
    volumes: Sequence[ModelVolume]
    replaces: bool


class Consumers:
    """Keeps every consumer's Pods, from `start` to `stop`."""

    def __init__(
        self, kube: Kube, clock: Clock, observer: Observer, copies: Copies, settings: Settings
    ) -> None:
        self._kube = kube
        self._events = Events(kube, clock)
        self._copies = copies
        self._settings = settings
        make = partial(Controller, clock=clock, observer=observer, threads=_THREADS)
        self._deployments = make("deployments", self._reconcile_deployment)
        self._instances = make("instances", self._reconcile_instance)
        copies.deployments.subscribe(lambda key, _old, _new: self._deployments.enqueue(key))
        copies.instances.subscribe(lambda key, _old, _new: self._instances.enqueue(key))
        copies.consumer_pods.subscribe(self._pod_changed)
        copies.artifacts.subscribe(self._artifact_changed)

    def start(self) -> None:
        """Begin to work; the copies are synced by then."""
        self._deployments.start()
        self._instances.start()
        for key in self._copies.deployments.items():
            self._deployments.enqueue(key)
        for key in self._copies.instances.items():
            self._instances.enqueue(key)

    def stop(self) -> None:
        """Let the work under way end."""
        self._deployments.stop()
        self._instances.stop()

    def _pod_changed(self, _key: Key, old: ConsumerPod | None, new: ConsumerPod | None) -> None:
        for pod in (old, new):
            for owner in pod.metadata.owners if pod else ():
                key = (pod.metadata.namespace if pod else "", owner.name)
                if owner.kind == MODEL_DEPLOYMENTS.kind:
                    self._deployments.enqueue(key)
                elif owner.kind == INSTANCES.kind:
                    self._instances.enqueue(key)

    def _artifact_changed(
        self, key: Key, old: ModelArtifact | None, new: ModelArtifact | None
    ) -> None:
        if new is None or (old is not None and old.status.is_resolved == new.status.is_resolved):
            return
        namespace, name = key
        for place, deployment in self._copies.deployments.items().items():
            if place[0] == namespace and deployment.names_artifact(name):
                self._deployments.enqueue(place)
        for place, instance in self._copies.instances.items().items():
            if place[0] == namespace and instance.names_artifact(name):
                self._instances.enqueue(place)

    def _reconcile_deployment(self, key: Key) -> float | None:
        found = self._copies.deployments.get(key[1], key[0])
        if found is None or found.metadata.terminating:
            return None
        owner = Owner(MODEL_DEPLOYMENTS, found.metadata)
        if self._is_malformed(owner, (role.template for role in found.roles)):
            return None
        templates = {
            f"{found.metadata.name}-{role.name}-{number}": role.template
            for role in found.roles
            if _runs(role.template)
            for number in range(role.replicas)
        }
        model = ModelVolume(_VOLUME, found.mount_path, found.artifact_name)
        volumes = [model] if found.artifact_name else []
        return self._run(_Plan(owner, templates, volumes, replaces=True))

    def _reconcile_instance(self, key: Key) -> float | None:
        found = self._copies.instances.get(key[1], key[0])
        if found is None or found.metadata.terminating:
            return None
        owner = Owner(INSTANCES, found.metadata)
        if self._is_malformed(owner, [found.template]):
            return None
        templates = {found.metadata.name: found.template} if _runs(found.template) else {}
        return self._run(_Plan(owner, templates, found.volumes, replaces=False))

    def _is_malformed(self, owner: Owner, templates: Iterable[Json]) -> bool:
        """Tell the author of a template that no Pod can be made of; what runs then stays."""
        fault = next(filter(None, map(template_fault, templates)), "")
        if fault:
            self._events.tell(owner.resource, owner.metadata, WARNING, "InvalidTemplate", fault)
        return bool(fault)

    def _run(self, plan: _Plan) -> float | None:
        """Delete the Pods that are too many or ended, and make those that are missing."""
        pods = {pod.metadata.name: pod for pod in self._pods_of(plan.owner.metadata)}
        for name, pod in pods.items():
            ended = plan.replaces and pod.ended
            if (name not in plan.templates or ended) and not pod.metadata.terminating:
                self._delete(pod.metadata)
        missing = plan.templates.keys() - pods.keys()
        uses = self._uses(plan) if missing else []
        if uses is None:
            return None  # the artifact's next change brings us back
        hostnames = self._hostnames(uses) if missing else {}
        again = None
        for name in sorted(missing):
            body = render(plan.owner, name, plan.templates[name], uses, hostnames)
            try:
                self._kube.create(PODS, body, plan.owner.metadata.namespace)
            except AlreadyExists:
                again = _LOOK_AGAIN_SECONDS  # ours and not seen yet, or somebody else's
            except (Invalid, Forbidden) as fault:
                said = f"the Pod {name} is refused: {fault.detail or fault}"
                about = plan.owner.resource, plan.owner.metadata
                self._events.tell(*about, WARNING, "FailedCreate", said)
                raise
        return again

    def _pods_of(self, owner: Metadata) -> Iterator[ConsumerPod]:
        for pod in self._copies.consumer_pods.items().values():
            if any(each.controller and each.uid == owner.uid for each in pod.metadata.owners):
                yield pod

    def _uses(self, plan: _Plan) -> list[Use] | None:
        """Return what a new Pod mounts, None while an artifact is not resolved.

        A deployment under Engine delivery leaves hub artifacts to the engine.
        """
        namespace, found = plan.owner.metadata.namespace, []
        by_node = self._settings.values()[DELIVERY_MODE.name] == NODE_DELIVERY
        for each in plan.volumes:
            artifact = self._copies.artifacts.get(each.artifact_name, namespace)
            if artifact is None or not artifact.status.is_resolved:
                return None
            by_engine = plan.replaces and not by_node
            if not (by_engine and isinstance(artifact.spec.source, HubSource)):
                found.append(Use(each.name, each.mount_path, artifact))
        return found

    def _hostnames(self, uses: Sequence[Use]) -> dict[str, list[str]]:
        """Return the hosts to prefer for every digest."""
        copies = self._copies
        stores = {key[1]: store for key, store in copies.node_stores.items().items()}
        driven = {key[1] for key, lists in copies.csi_nodes.items().items() if lists}
        labels = {key[1]: node.labels for key, node in copies.nodes.items().items()}
        return {
            use.digest: [
                labels[node][HOSTNAME]
                for node in holders(use.digest, stores, driven)
                if HOSTNAME in labels.get(node, {})
            ]
            for use in uses
            if use.digest
        }

    def _delete(self, pod: Metadata) -> None:
        try:
            self._kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except (NotFound, Conflict):
            return  # gone, or another one by now


def _runs(template: Mapping[str, Any]) -> bool:
    return bool((template.get("spec") or {}).get("containers"))
