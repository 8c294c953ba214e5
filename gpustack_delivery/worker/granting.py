"""What the webhooks look up before they judge a grant or a prefetch.

What a request names is read from the API server itself: a copy could be older than what its author
has just made. The nodes come from a copy, which every replica keeps: there may be thousands, and
their labels hardly ever change.

Rules: MP-RES-04..08, MP-PLC-04, MP-PLC-05, MP-BUD-05..10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.decisions.budget import Ask
from gpustack_delivery.decisions.granting import (
    judge_binding,
    judge_binding_update,
    judge_budget,
    judge_references,
    judge_stores,
    judge_targets,
    read_prefetch,
)
from gpustack_delivery.decisions.placement import Nodes, derive, expand, matcher
from gpustack_delivery.errors import NotFound
from gpustack_delivery.mirror import Mirror
from gpustack_delivery.ports import Clock, Kube, Selection
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.consumers import (
    INSTANCE_TYPES,
    MODEL_DEPLOYMENTS,
    InstanceType,
    ModelDeployment,
)
from gpustack_delivery.vocabulary.grants import BindingSpec, ModelStoreBinding, StoreSpec
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch, Spec
from gpustack_delivery.vocabulary.resources import (
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODES,
    Json,
    Resource,
)
from gpustack_delivery.worker.copies import NodeFacts, every
from gpustack_delivery.worker.targets import standing_nodes


@dataclass(frozen=True, slots=True)
class Scene:
    """What placements of one namespace are expanded over."""

    nodes: Nodes
    kinds: Mapping[str, InstanceType]
    deployments: Sequence[ModelDeployment]

    def expand(self, spec: Spec) -> tuple[str, ...]:
        """Return the targets of a prefetch of the namespace."""
        derived = derive(self.deployments, spec.artifact_name)
        return expand(matcher(spec.placement, self.kinds, derived), self.nodes)


class Granting:
    """Judges bindings and prefetches; safe on any number of threads, from `start` to `stop`."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._nodes = Mirror(kube, clock, Selection(NODES), NodeFacts.from_wire)

    def start(self) -> None:
        """Begin to follow the nodes."""
        self._nodes.start()

    def stop(self) -> None:
        """End it."""
        self._nodes.stop()

    def judge_new_binding(self, spec: Json) -> tuple[Denial, ...]:
        """Judge a binding that is to be created."""
        if denials := judge_binding(spec):
            return denials
        names = [ref["name"] for ref in spec["storeRefs"]]
        return judge_stores(names, {name for name in names if self._find(MODEL_STORES, name)})

    def judge_binding_update(self, old: Json, new: Json) -> tuple[Denial, ...]:
        """Judge a change of a binding."""
        return () if old == new else judge_binding_update(old, new)

    def judge_prefetch(self, namespace: str, name: str, old: Json, new: Json) -> tuple[Denial, ...]:
        """Judge a prefetch that is to be created, `old` empty, or changed."""
        if old == new:
            return ()
        spec = read_prefetch(new)
        if not isinstance(spec, Spec):
            return spec
        artifact = self._find(MODEL_ARTIFACTS, spec.artifact_name, namespace)
        found = self._find(MODEL_STORE_BINDINGS, spec.binding_name, namespace)
        binding = ModelStoreBinding.from_wire(found).spec if found else None
        denials = judge_references(spec, artifact_exists=artifact is not None, binding=binding)
        if denials or artifact is None or binding is None:
            return denials
        others = self._others(namespace, name)
        scene = self._scene(namespace, [spec, *(other.spec for other in others)])
        targets = scene.expand(spec)
        denials = judge_targets(spec, targets, scene.nodes, self._granted(binding))
        if denials:
            return denials
        mine = _ask(ModelArtifact.from_wire(artifact), len(targets))
        asked = self._asks(namespace, others, scene)
        return judge_budget(mine, asked, spec.binding_name, binding)

    def _others(self, namespace: str, name: str) -> list[ModelPrefetch]:
        """Return the namespace's prefetches but one; what nobody can carry out weighs nothing."""
        bodies = self._all(MODEL_PREFETCHES, namespace)
        found = [
            ModelPrefetch.from_wire(body)
            for body in bodies
            if isinstance(read_prefetch(body.get("spec") or {}), Spec)
        ]
        return [
            prefetch
            for prefetch in found
            if prefetch.metadata.name != name and not prefetch.metadata.terminating
        ]

    def _asks(self, namespace: str, prefetches: Sequence[ModelPrefetch], scene: Scene) -> list[Ask]:
        """Return what the namespace's other prefetches ask for, as they would be delivered now."""
        if not prefetches:
            return []
        found = map(ModelArtifact.from_wire, self._all(MODEL_ARTIFACTS, namespace))
        artifacts = {artifact.metadata.name: artifact for artifact in found}
        return [
            _ask(
                artifacts.get(prefetch.spec.artifact_name),
                max(len(scene.expand(prefetch.spec)), prefetch.status.desired_nodes),
            )
            for prefetch in prefetches
        ]

    def _granted(self, binding: BindingSpec) -> list[StoreSpec]:
        found = (self._find(MODEL_STORES, name) for name in binding.store_names)
        return [StoreSpec.from_wire(store.get("spec") or {}) for store in found if store]

    def _scene(self, namespace: str, specs: Sequence[Spec]) -> Scene:
        """Read what the placements need to be expanded, and no more."""
        by_type = [spec for spec in specs if spec.placement.node_selector is None]
        derived = [spec for spec in by_type if not spec.placement.instance_types]
        kinds = map(InstanceType.from_wire, self._all(INSTANCE_TYPES) if by_type else ())
        deployments = self._all(MODEL_DEPLOYMENTS, namespace) if derived else []
        return Scene(
            self._known_nodes(),
            {kind.metadata.name: kind for kind in kinds},
            [ModelDeployment.from_wire(body) for body in deployments],
        )

    def _known_nodes(self) -> Nodes:
        if self._nodes.synced:
            return standing_nodes(self._nodes.items())
        listed = {
            ("", body["metadata"]["name"]): NodeFacts.from_wire(body) for body in self._all(NODES)
        }
        return standing_nodes(listed)

    def _find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        try:
            return self._kube.get(resource, name, namespace)
        except NotFound:
            return None

    def _all(self, resource: Resource, namespace: str = "") -> list[dict[str, Any]]:
        """Return every object of a kind; a kind that the cluster lacks has none."""
        try:
            return list(every(self._kube, resource, namespace))
        except NotFound:
            return []


def _ask(artifact: ModelArtifact | None, nodes: int) -> Ask:
    resolved = artifact.status.resolved if artifact else None
    if resolved is None:
        return Ask("", 0, nodes)
    return Ask(resolved.manifest_digest, resolved.size_bytes, nodes)
