"""The controllers of pools, grants, prefetches and pins on a small cluster, held by their tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpustack_delivery.vocabulary.resources import (
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODE_MODEL_STORES,
    PODS,
    Json,
    Resource,
)
from gpustack_delivery.worker.bindings import Bindings
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.events import Events
from gpustack_delivery.worker.prefetches import Prefetches, Warming
from gpustack_delivery.worker.residents import Residents
from gpustack_delivery.worker.settings import Settings
from gpustack_delivery.worker.stores import Stores
from gpustack_delivery.worker.term import Part
from tests.unit.decisions.warm import DIGEST, SIZE
from tests.unit.fakes import eventually
from tests.unit.worker.world import (
    NAMESPACE,
    ClusterKube,
    SilentObserver,
    SteppedClock,
    add_driver,
    add_node,
    idle,
)

THREADS = 10  # two of the stores', two of the bindings', four of the prefetches', two of the pins'
SPEC: Json = {
    "watermarks": {"highPercent": 80, "lowPercent": 70},
    "download": {"concurrency": 8},
    "hub": {"huggingFaceEndpoint": "https://huggingface.co"},
}


class PassCounter:
    """Counts passes by controller."""

    def __init__(self) -> None:
        self.passes: Counter[str] = Counter()

    def reconciled(self, controller: str, seconds: float, *, failed: bool) -> None:
        """Count one."""
        self.passes[controller] += 1


class Run:
    """The running controllers, seen from outside."""

    def __init__(self, kube: ClusterKube, clock: SteppedClock, counter: PassCounter) -> None:
        self.clock = clock
        self._kube = kube
        self._counter = counter

    def passes(self, controller: str) -> int:
        """Return how many passes a controller has made."""
        return self._counter.passes[controller]

    def rest(self) -> None:
        """Wait until everything rests."""
        idle(self._kube, self.clock, THREADS)

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition, and then until everything rests."""
        eventually(condition)
        self.rest()

    def advance(self, seconds: float) -> None:
        """Let what is on its way arrive, time pass, and everything come to rest."""
        self.rest()
        self.clock.advance(seconds)
        self.rest()


@contextmanager
def running(kube: ClusterKube) -> Iterator[Run]:
    """Run the controllers on a cluster."""
    clock, counter = SteppedClock(), PassCounter()
    copies = Copies(kube, clock)
    events = Events(kube, clock)
    following = Settings(kube, clock, NAMESPACE, {}, events)
    residents = Residents(copies)
    parts: list[Part] = [
        Stores(kube, clock, counter, copies),
        Bindings(kube, clock, SilentObserver(), copies, residents),
        Prefetches(kube, clock, SilentObserver(), Warming(copies, residents, following, events)),
    ]
    following.start()
    copies.start()
    assert following.wait_synced(20)
    assert copies.wait_synced(20)
    for part in parts:
        part.start()
    try:
        run = Run(kube, clock, counter)
        run.rest()
        yield run
    finally:
        following.stop()
        copies.stop()
        for part in reversed(parts):
            part.stop()


def cluster(*nodes: str) -> ClusterKube:
    """Return a cluster of GPU nodes with the plugin, a store, a grant that may pin, an artifact."""
    kube = ClusterKube()
    add_driver(kube)
    for name in nodes:
        add_node(kube, name, pool="gpu")
        add_report(kube, name)
    add(kube, MODEL_STORES, "pool", {"nodeSelector": {}}, namespace="")
    grant = {"storeRefs": [{"name": "pool"}], "quota": {"bytes": "1Gi"}, "allowPinned": True}
    add(kube, MODEL_STORE_BINDINGS, "grant", grant)
    add_artifact(kube)
    return kube


def add(
    kube: ClusterKube,
    resource: Resource,
    name: str,
    spec: Json,
    *,
    namespace: str = "team-a",
    generation: int = 1,
) -> None:
    """Put an object as its author would, its status kept."""
    stored = kube.find(resource, name, namespace) or {}
    metadata = {"name": name, "generation": generation}
    if namespace:
        metadata["namespace"] = namespace
    kube.put(resource, {"metadata": metadata, "spec": spec, "status": stored.get("status", {})})


def add_artifact(kube: ClusterKube, name: str = "model", *, digest: str = DIGEST) -> None:
    """Put an artifact; one without a digest has not resolved."""
    status: Json = {"conditions": [{"type": "Resolved", "status": "True" if digest else "False"}]}
    if digest:
        status["resolved"] = {
            "manifestDigest": digest,
            "digestSource": "Hub",
            "sizeBytes": SIZE,
            "resolvedTime": "2026-09-25T06:00:00Z",
        }
    source = {"huggingFace": {"repository": "org/model", "revision": "main"}}
    body = {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"source": source},
        "status": status,
    }
    kube.put(MODEL_ARTIFACTS, body)


def add_prefetch(
    kube: ClusterKube, name: str = "warm", *, generation: int = 1, **spec: Any
) -> None:
    """Put a prefetch of every node."""
    body = {
        "artifactRef": {"name": "model"},
        "bindingRef": {"name": "grant"},
        "placement": {"nodeSelector": {}},
        **spec,
    }
    add(kube, MODEL_PREFETCHES, name, body, generation=generation)


def add_report(kube: ClusterKube, node: str, *models: Json, total: int = 100) -> None:
    """Put a node's object with what its plugin reports; what is pinned stays."""
    stored = kube.find(NODE_MODEL_STORES, node) or {}
    status = {"capacity": {"totalBytes": total, "storedBytes": 0}, "models": list(models)}
    spec = stored.get("spec", SPEC | {"store": "pool"})
    kube.put(NODE_MODEL_STORES, {"metadata": {"name": node}, "spec": spec, "status": status})


def held(state: str = "Ready", **more: Any) -> Json:
    """Return an entry of the digest."""
    return {"digest": DIGEST, "state": state, "sizeBytes": SIZE, **more}


def status(kube: ClusterKube, resource: Resource, name: str) -> Json:
    """Return an object's status."""
    namespace = "" if resource is MODEL_STORES else "team-a"
    found = kube.find(resource, name, namespace)
    assert found is not None
    result: Json = found.get("status") or {}
    return result


def reason(kube: ClusterKube, resource: Resource, name: str, kind: str) -> str:
    """Return a condition's reason, "" while there is none."""
    conditions = status(kube, resource, name).get("conditions", [])
    return str(next((each["reason"] for each in conditions if each["type"] == kind), ""))


def pods(kube: ClusterKube) -> list[str]:
    """Return the nodes that Pods are for, in order."""
    return sorted(node_of(pod) for pod in kube.all(PODS))


def node_of(pod: Json) -> str:
    """Return the node that a warm-up Pod is for."""
    required = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


def pinned(kube: ClusterKube, node: str) -> list[str]:
    """Return what a node keeps."""
    found = kube.find(NODE_MODEL_STORES, node)
    assert found is not None
    result: list[str] = found["spec"].get("pinned", [])
    return result
