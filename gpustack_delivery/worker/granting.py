"""What the webhooks look up before they judge a grant or a prefetch.

What a request names is read from the API server itself: a copy could be older than what its author
has just made. The nodes come from a copy, which every replica keeps: there may be thousands, and
their labels hardly ever change. What does not hang on each other is asked at once.

Rules: MP-RES-04..08, MP-PLC-04, MP-PLC-05, MP-BUD-05..10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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
from gpustack_delivery.worker.admitted import Admitted, Listing, Wish
from gpustack_delivery.worker.copies import NodeFacts, every
from gpustack_delivery.worker.inquiries import Inquiry
from gpustack_delivery.worker.reviews import Review
from gpustack_delivery.worker.targets import standing_nodes

# How long a prefetch that fits only without one not stored yet waits before it is judged again; on
# the replica that leads it hears of what is stored before that.
AGAIN_SECONDS: Final = 0.5

Bodies: TypeAlias = Mapping[str, Json]
"""Objects of one kind and place by their names, as they came over the wire."""


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


@dataclass(frozen=True, slots=True)
class Sight:
    """What a prefetch is judged by."""

    artifacts: Bodies
    binding: BindingSpec | None
    stores: Bodies
    others: Listing
    scene: Scene

    def artifact(self, name: str) -> ModelArtifact | None:
        """Return an artifact of the namespace."""
        body = self.artifacts.get(name)
        return ModelArtifact.from_wire(body) if body is not None else None

    def granted(self, binding: BindingSpec) -> list[StoreSpec]:
        """Return the stores of a grant that exist."""
        found = (self.stores.get(name) for name in binding.store_names)
        return [StoreSpec.from_wire(body.get("spec") or {}) for body in found if body is not None]

    def asks(self) -> list[Ask]:
        """Return what the namespace's other prefetches ask for."""
        return [
            _ask(self.artifact(other.spec.artifact_name), self._width(other))
            for other in self.others.prefetches
        ]

    def _width(self, prefetch: ModelPrefetch) -> int:
        """Return on how many nodes a prefetch is, or would be delivered now."""
        counted = prefetch.status.desired_nodes
        if _is_counted(prefetch):
            return counted
        return max(len(self.scene.expand(prefetch.spec)), counted)


class Granting:
    """Judges bindings and prefetches; safe on any number of threads, from `start` to `stop`."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._nodes = Mirror(kube, clock, Selection(NODES), NodeFacts.from_wire)
        self._admitted = Admitted(clock)

    def start(self) -> None:
        """Begin to follow the nodes."""
        self._nodes.start()

    def stop(self) -> None:
        """End it."""
        self._nodes.stop()

    def judge_new_binding(self, review: Review, inquiry: Inquiry) -> tuple[Denial, ...]:
        """Judge a binding that is to be created."""
        spec = review.new_spec
        if denials := judge_binding(spec):
            return denials
        names = [ref["name"] for ref in spec["storeRefs"]]
        return judge_stores(names, inquiry.ask(_all(MODEL_STORES))().keys())

    def judge_binding_update(self, old: Json, new: Json) -> tuple[Denial, ...]:
        """Judge a change of a binding."""
        return () if old == new else judge_binding_update(old, new)

    def judge_prefetch(self, review: Review, inquiry: Inquiry) -> tuple[Denial, ...]:
        """Judge a prefetch that is to be created, or changed."""
        if review.old_spec == review.new_spec:
            return ()
        spec = read_prefetch(review.new_spec)
        if not isinstance(spec, Spec):
            return spec
        while True:
            known = inquiry.news
            verdict = self._judge(review, spec, inquiry)
            if verdict is not None:
                return verdict
            inquiry.pause(
                AGAIN_SECONDS, known, "other prefetches of this namespace are being stored"
            )

    def _judge(self, review: Review, spec: Spec, inquiry: Inquiry) -> tuple[Denial, ...] | None:
        """Judge by what the API server holds now; None if it is to be asked again."""
        sight = self._look(review, spec, inquiry)
        self._admitted.notice(sight.others)
        artifact, binding = sight.artifact(spec.artifact_name), sight.binding
        denials = judge_references(spec, artifact_exists=artifact is not None, binding=binding)
        if denials or artifact is None or binding is None:
            return denials
        targets = sight.scene.expand(spec)
        mine, asked = _ask(artifact, len(targets)), sight.asks()
        denials = judge_targets(spec, targets, sight.scene.nodes, sight.granted(binding))
        denials = denials or judge_budget(mine, asked, spec.binding_name, binding)
        if denials:
            return denials
        wish = Wish((review.namespace, review.name), spec, mine)

        def fits(others: Sequence[Ask]) -> bool:
            return not judge_budget(mine, [*asked, *others], spec.binding_name, binding)

        entered = self._admitted.enter(wish, sight.others.began, fits, remember=not review.dry_run)
        return () if entered else None

    def _look(self, review: Review, spec: Spec, inquiry: Inquiry) -> Sight:
        """Read what a prefetch is judged by."""
        namespace, began = review.namespace, self._admitted.moment()
        artifacts = inquiry.ask(_all(MODEL_ARTIFACTS, namespace))
        binding = inquiry.ask(_binding(spec.binding_name, namespace))
        stores = inquiry.ask(_all(MODEL_STORES))
        prefetches = inquiry.ask(_all(MODEL_PREFETCHES, namespace))
        nodes = self._known_nodes(inquiry)
        others = _others(prefetches().values(), review.name)
        # Only the answers so far tell whether these are needed.
        to_expand = [spec, *(other.spec for other in others if not _is_counted(other))]
        by_type = [spec for spec in to_expand if spec.placement.node_selector is None]
        derived = [spec for spec in by_type if not spec.placement.instance_types]
        kinds = inquiry.ask(_all(INSTANCE_TYPES)) if by_type else dict
        deployments = inquiry.ask(_all(MODEL_DEPLOYMENTS, namespace)) if derived else dict
        scene = Scene(
            nodes(),
            {name: InstanceType.from_wire(body) for name, body in kinds().items()},
            [ModelDeployment.from_wire(body) for body in deployments().values()],
        )
        return Sight(artifacts(), binding(), stores(), Listing(others, began), scene)

    def _known_nodes(self, inquiry: Inquiry) -> Callable[[], Nodes]:
        if self._nodes.synced:
            return lambda: standing_nodes(self._nodes.items())
        bodies = inquiry.ask(_all(NODES))
        return lambda: standing_nodes(
            {("", name): NodeFacts.from_wire(body) for name, body in bodies().items()}
        )


def _all(resource: Resource, namespace: str = "") -> Callable[[Kube], Bodies]:
    """Return what reads every object of a kind; a kind that the cluster lacks has none."""

    def look(kube: Kube) -> Bodies:
        try:
            return {body["metadata"]["name"]: body for body in every(kube, resource, namespace)}
        except NotFound:
            return {}

    return look


def _binding(name: str, namespace: str) -> Callable[[Kube], BindingSpec | None]:
    """Return what reads a grant."""

    def look(kube: Kube) -> BindingSpec | None:
        try:
            body = kube.get(MODEL_STORE_BINDINGS, name, namespace)
        except NotFound:
            return None
        return ModelStoreBinding.from_wire(body).spec

    return look


def _others(bodies: Iterable[Json], name: str) -> list[ModelPrefetch]:
    """Return the namespace's prefetches but one; what nobody can carry out weighs nothing."""
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


def _is_counted(prefetch: ModelPrefetch) -> bool:
    """Say whether a prefetch's status tells on how many nodes it is as its spec is now."""
    return prefetch.status.observed_generation == prefetch.metadata.generation


def _ask(artifact: ModelArtifact | None, nodes: int) -> Ask:
    resolved = artifact.status.resolved if artifact else None
    if resolved is None:
        return Ask("", 0, nodes)
    return Ask(resolved.manifest_digest, resolved.size_bytes, nodes)
