"""What must hold of a cluster once everybody is at rest, worked out from its objects alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from emulator.client import Client

Json = dict[str, Any]

API: Final = "worker.gpustack.ai/v1alpha1"
DRIVER: Final = "model.csi.gpustack.ai"
TEAM: Final = "team-a"


class Facts:
    """Every object that counts, read at one moment at which nothing moves."""

    def __init__(self, client: Client) -> None:
        self.nodes = _named(client.list("v1", "Node"))
        self.stores = _named(client.list(API, "NodeModelStore"))
        self.prefetches = _named(client.list(API, "ModelPrefetch", namespace=TEAM))
        self.grants = _named(client.list(API, "ModelStoreBinding", namespace=TEAM))
        self._artifacts = _named(client.list(API, "ModelArtifact", namespace=TEAM))
        self.pods = client.list("v1", "Pod", namespace=TEAM)
        self.driven = {
            item["metadata"]["name"]
            for item in client.list("storage.k8s.io/v1", "CSINode")
            if any(driver["name"] == DRIVER for driver in item["spec"].get("drivers") or ())
        }
        self.installed = DRIVER in _named(client.list("storage.k8s.io/v1", "CSIDriver"))

    def resolved(self, prefetch: Json) -> Json:
        """Return what a prefetch's artifact has resolved to, empty for nothing."""
        artifact = self._artifacts.get(prefetch["spec"]["artifactRef"]["name"], {})
        found: Json = artifact.get("status", {}).get("resolved", {})
        return found

    def targets(self, prefetch: Json) -> set[str]:
        """Return the nodes that a prefetch means."""
        wanted = prefetch["spec"]["placement"]["nodeSelector"].get("matchLabels", {})
        return {
            name
            for name, node in self.nodes.items()
            if wanted.items() <= node["metadata"].get("labels", {}).items()
        }


def faults(facts: Facts, concurrency: int) -> list[str]:
    """Return what is wrong, a line each; nothing when every update has been heard of."""
    found = [*_stores(facts, concurrency), *_pins(facts), *_budget(facts), *_pods(facts)]
    return sorted(found)


def _stores(facts: Facts, concurrency: int) -> Iterator[str]:
    """No NodeModelStore without its reason, none missing, and each as it is configured."""
    for name, store in facts.stores.items():
        owners = [owner["uid"] for owner in store["metadata"].get("ownerReferences", ())]
        if not facts.installed:
            yield f"the object of {name} stands without a CSIDriver"
        elif name not in facts.nodes:
            yield f"the object of {name} stands without its Node"
        elif owners != [facts.nodes[name]["metadata"]["uid"]]:
            yield f"the object of {name} is owned by {owners}"
        elif store["spec"]["download"]["concurrency"] != concurrency:
            yield f"the object of {name} has not heard of a Setting"
    if facts.installed:
        for name in facts.driven & facts.nodes.keys() - facts.stores.keys():
            yield f"{name} runs the plugin and has no object"


def _pins(facts: Facts) -> Iterator[str]:
    """Every node pins the union of what the prefetches ask of it."""
    for name, store in facts.stores.items():
        wanted = {
            facts.resolved(prefetch).get("manifestDigest", "")
            for prefetch in facts.prefetches.values()
            if prefetch["spec"].get("retention", {}).get("pinned")
            and facts.grants
            and name in facts.targets(prefetch)
        }
        pinned = store["spec"].get("pinned", [])
        if pinned != sorted(wanted - {""}):
            yield f"{name} pins {pinned} and not {sorted(wanted)}"


def _budget(facts: Facts) -> Iterator[str]:
    """A grant counts each digest of the namespace on every node that lists it."""
    resolved = [facts.resolved(prefetch) for prefetch in facts.prefetches.values()]
    sizes = {each.get("manifestDigest", ""): each.get("sizeBytes", 0) for each in resolved}
    held = Counter(
        model["digest"]
        for store in facts.stores.values()
        for model in store.get("status", {}).get("models", ())
    )
    used = None if "" in sizes else str(sum(size * held[d] for d, size in sizes.items()))
    for name, grant in facts.grants.items():
        counted = grant.get("status", {}).get("usedBytes")
        if counted != used:
            yield f"{name} counts {counted} and not {used}"


def _pods(facts: Facts) -> Iterator[str]:
    """A warm-up Pod has a prefetch that wants it, and a node's work has one Pod."""
    by_uid = {prefetch["metadata"]["uid"]: prefetch for prefetch in facts.prefetches.values()}
    live: Counter[tuple[str, str]] = Counter()
    for pod in facts.pods:
        name, node = pod["metadata"]["name"], _node_of(pod)
        owner = by_uid.get(pod["metadata"]["ownerReferences"][0]["uid"])
        (csi,) = (volume["csi"] for volume in pod["spec"]["volumes"] if "csi" in volume)
        digest = csi["volumeAttributes"]["manifestDigest"]
        if owner is None:
            yield f"the Pod {name} is an orphan"
        elif node not in facts.targets(owner):
            yield f"the Pod {name} is for {node}, which is no target"
        elif digest != facts.resolved(owner).get("manifestDigest"):
            yield f"the Pod {name} warms another digest"
        elif pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            live[owner["metadata"]["name"], node] += 1
    for (prefetch, node), count in live.items():
        if count > 1:
            yield f"{count} Pods of {prefetch} are at work on {node}"


def _node_of(pod: Json) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


def _named(items: list[Json]) -> dict[str, Json]:
    return {
        item["metadata"]["name"]: item
        for item in items
        if "deletionTimestamp" not in item["metadata"]
    }
