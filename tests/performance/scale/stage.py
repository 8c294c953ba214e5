"""A cluster of so many nodes, and what its people do to it.

Nodes are paper: their objects and their configz are real, their kubelets are not. They lie in fifty
pools with a ModelStore each; ten namespaces have fifty artifacts and twenty pinned prefetches each,
every prefetch of one pool. Each node reports the content of its pool's prefetches as ready, so that
nobody has to run Pods. Reports are written past the webhook that ties them to a plugin's Pod: of
thousands of Pods there is none.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from emulator.chart import render
from emulator.cluster import Cluster
from emulator.follow import Follower
from emulator.hubs import HuggingFaceHub
from gpustack_delivery.embedded import CHART
from gpustack_delivery.vocabulary.settings import SECRET_NAME
from tests.performance.scale.process import NAMESPACE, RELEASE

Json = dict[str, Any]

API: Final = "worker.gpustack.ai/v1alpha1"
DRIVER: Final = "model.csi.gpustack.ai"
POOLS: Final = 50
NAMESPACES: Final = 10
ARTIFACTS: Final = 500
PREFETCHES: Final = 200
SIZE_BYTES: Final = 64
_RENEW_SECONDS: Final = 15.0
_LEFT_OUT: Final = frozenset(("DaemonSet", "Deployment", "Service", "APIService", "NetworkPolicy"))
_PAST: Final = "nodemodelstores-status.validate.worker.gpustack.ai"


class Stage:
    """The cluster, from `with` to its end."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.cluster = Cluster()
        self.specs: dict[str, Json] = {}
        self.resolved: dict[str, str] = {}
        self._over = threading.Event()
        self._kubelets = threading.Thread(target=self._live, name="kubelets", daemon=True)

    def __enter__(self) -> Self:
        """Start the cluster, install the chart, add the nodes."""
        self.cluster.start()
        self.hub: HuggingFaceHub = self.cluster.add_hub()
        for number in range(ARTIFACTS):
            weights = number.to_bytes(4, "big") * (SIZE_BYTES // 4)
            self.hub.add_repository(f"org/model-{number}", {"model.safetensors": weights})
        self.cluster.apply(_installed())
        client = self.cluster.client
        self._followers = (
            Follower(client, (API, "NodeModelStore"), self._store_seen, name="bench:stores"),
            Follower(client, (API, "ModelArtifact"), self._artifact_seen, name="bench:artifacts"),
        )
        for follower in self._followers:
            follower.start()
        self._kubelets.start()
        for number in range(self.nodes):
            labels = {"pool": f"p{number % POOLS}"}
            self.cluster.paper_nodes.add(f"n{number}", labels=labels, drivers=[DRIVER])
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._over.set()
        self._kubelets.join()
        for follower in self._followers:
            follower.stop()
        self.cluster.stop()

    def configure(self) -> None:
        """Make pools, grants and artifacts, as administrators and tenants do."""
        create = self.cluster.client.create
        for pool in range(POOLS):
            selector = {"matchLabels": {"pool": f"p{pool}"}}
            create(_object("ModelStore", f"pool-{pool}", {"nodeSelector": selector}))
        for number in range(NAMESPACES):
            space = f"team-{number}"
            create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
            pools = range(number, POOLS, NAMESPACES)  # those of its prefetches
            stores = [{"name": f"pool-{pool}"} for pool in pools]
            grant = {"storeRefs": stores, "quota": {"bytes": "1Ti"}, "allowPinned": True}
            create(_object("ModelStoreBinding", "grant", grant, space))
        for number in range(ARTIFACTS):
            source = {"huggingFace": {"repository": f"org/model-{number}"}}
            name, space = _artifact(number)
            create(_object("ModelArtifact", name, {"source": source}, space))

    def configured(self) -> bool:
        """Say whether every node has its object, in its pool, and every artifact its digest."""
        return len(self.resolved) == ARTIFACTS and self._all(lambda spec: "store" in spec)

    def report(self) -> None:
        """Let every node report that it holds what its pool's prefetches name."""
        for number in range(self.nodes):
            self.report_of(f"n{number}", self._wanted(number % POOLS))

    def report_of(self, node: str, digests: list[str]) -> None:
        """Let one node report some digests."""
        models = [{"digest": d, "state": "Ready", "sizeBytes": SIZE_BYTES} for d in digests]
        capacity = {"totalBytes": 1 << 40, "storedBytes": 1 << 20, "usedPercent": 1}
        status = {"capacity": capacity, "models": models}
        patch = {"status": status}
        client = self.cluster.client
        client.patch(API, "NodeModelStore", node, patch, subresource="status")

    def touch(self, number: int) -> None:
        """Let one node get a label that nobody asks for, and one digest more."""
        node, label = f"n{number}", {"metadata": {"labels": {"touched": "yes"}}}
        self.cluster.client.patch("v1", "Node", node, label)
        more = self.resolved[f"m{PREFETCHES + number % (ARTIFACTS - PREFETCHES)}"]
        self.report_of(node, [*self._wanted(number % POOLS), more])

    def warm(self) -> None:
        """Create the prefetches."""
        for number in range(PREFETCHES):
            name, space = _artifact(number)
            spec = {
                "artifactRef": {"name": name},
                "bindingRef": {"name": "grant"},
                "placement": {"nodeSelector": {"matchLabels": {"pool": f"p{number % POOLS}"}}},
                "retention": {"pinned": True},
            }
            self.cluster.client.create(_object("ModelPrefetch", name, spec, space))

    def warmed(self) -> bool:
        """Say whether every node pins what its pool's prefetches want."""
        wanted = {f"p{pool}": sorted(self._wanted(pool)) for pool in range(POOLS)}
        specs = dict(self.specs)
        return all(
            specs[f"n{number}"].get("pinned") == wanted[f"p{number % POOLS}"]
            for number in range(self.nodes)
        )

    def setting(self, value: int) -> tuple[Callable[[], object], Callable[[], bool]]:
        """Return what changes one Setting, and what says whether it has reached every node."""
        data = {"model-store-download-concurrency": base64.b64encode(b"%d" % value).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "data": data}
        metadata = {"name": SECRET_NAME, "namespace": NAMESPACE}
        return (
            lambda: self.cluster.apply({**secret, "metadata": metadata}),
            lambda: self._all(lambda spec: spec["download"]["concurrency"] == value),
        )

    def _all(self, holds: Callable[[Json], bool]) -> bool:
        specs = list(dict(self.specs).values())
        return len(specs) == self.nodes and all(map(holds, specs))

    def _wanted(self, pool: int) -> list[str]:
        """Return the digests that a pool's prefetches name."""
        return [self.resolved[f"m{number}"] for number in range(pool, PREFETCHES, POOLS)]

    def _live(self) -> None:
        """Renew the kubelets' Leases, without which the nodes would be lost."""
        while not self._over.wait(_RENEW_SECONDS):
            self.cluster.paper_nodes.renew()

    def _store_seen(self, kind: str, store: Json) -> None:
        name = store["metadata"]["name"]
        if kind == "DELETED":
            self.specs.pop(name, None)
        else:
            self.specs[name] = store["spec"]

    def _artifact_seen(self, _kind: str, artifact: Json) -> None:
        found = artifact.get("status", {}).get("resolved", {}).get("manifestDigest")
        if found:
            self.resolved[artifact["metadata"]["name"]] = found


def _artifact(number: int) -> tuple[str, str]:
    return f"m{number}", f"team-{number % NAMESPACES}"


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def _installed() -> Iterator[Json]:
    """Yield what of the chart the worker needs."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for found in render(CHART, release=RELEASE, namespace=NAMESPACE):
        if found["kind"] not in _LEFT_OUT:
            if "webhooks" in found:
                found["webhooks"] = [hook for hook in found["webhooks"] if hook["name"] != _PAST]
            yield found
