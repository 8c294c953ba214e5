"""Whatever happens in whatever order: pins are the union, budgets count, no Pod is an orphan.

Random changes by everybody who may make them, the controllers' restart among them, on a small
cluster; after each one the world is left to rest and compared with what its objects ask for, worked
out from the objects alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gpustack_delivery.vocabulary.resources import (
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    NODE_MODEL_STORES,
    NODES,
    PODS,
    Json,
    Resource,
)
from tests.unit.decisions.warm import DIGEST, OTHER, SIZE
from tests.unit.worker.warming_run import (
    SPEC,
    Run,
    add,
    add_artifact,
    add_prefetch,
    cluster,
    node_of,
    running,
    status,
)
from tests.unit.worker.world import ClusterKube, add_node

NODE_NAMES = ("node-a", "node-b", "node-c")
DIGESTS = {"model": DIGEST, "other": OTHER}
GRANT: Json = {"storeRefs": [{"name": "pool"}], "quota": {"bytes": 2 * SIZE}}
STEPS = 60


class Chaos:
    """Everybody else in the cluster, played by dice."""

    def __init__(self, kube: ClusterKube, dice: random.Random) -> None:
        self.kube = kube
        self._dice = dice
        self._generation = 1

    def act(self) -> None:
        """Do one thing."""
        acts: list[Callable[[], None]] = [
            self._write_prefetch,
            self._write_prefetch,
            self._report,
            self._report,
            self._end_pods,
            self._flip_artifact,
            self._flip_grant,
            self._flip_node,
            self._label_node,
            self._steal_pins,
            self._delete_prefetch,
            self._delete_prefetch,
            self._delete_pod,
        ]
        self._dice.choice(acts)()

    def _write_prefetch(self) -> None:
        self._generation += 1
        pool = self._dice.choice([{}, {"matchLabels": {"pool": "gpu"}}])
        add_prefetch(
            self.kube,
            self._dice.choice(["one", "two", "three"]),
            generation=self._generation,
            artifactRef={"name": self._dice.choice(["model"] * 3 + ["other"] * 3 + ["missing"])},
            placement={"nodeSelector": pool},
            retention={"pinned": self._dice.random() < 0.9},
        )

    def _delete_prefetch(self) -> None:
        name = self._dice.choice(["one", "two", "three"])
        if (found := self.kube.find(MODEL_PREFETCHES, name, "team-a")) is None:
            return
        self.kube.remove(MODEL_PREFETCHES, name, "team-a")
        for pod in self.kube.all(PODS):  # as the garbage collector does
            if pod["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]:
                self.kube.remove(PODS, pod["metadata"]["name"], "team-a")

    def _delete_pod(self) -> None:
        if found := self.kube.all(PODS):
            self.kube.remove(PODS, self._dice.choice(found)["metadata"]["name"], "team-a")

    def _end_pods(self) -> None:
        phase = self._dice.choice(["Running", "Succeeded", "Failed"])
        for pod in self.kube.all(PODS):
            self.kube.put(PODS, pod | {"status": {"phase": phase}})

    def _report(self) -> None:
        name = self._dice.choice(NODE_NAMES)
        stored = self.kube.find(NODE_MODEL_STORES, name)
        spec = stored["spec"] if stored else dict(SPEC)
        states = ["Downloading", "Ready", "Failed", None]
        found = {digest: self._dice.choice(states) for digest in DIGESTS.values()}
        models = [{"digest": d, "state": s, "sizeBytes": SIZE} for d, s in found.items() if s]
        body = {"metadata": {"name": name}, "spec": spec, "status": {"models": models}}
        self.kube.put(NODE_MODEL_STORES, body)

    def _steal_pins(self) -> None:
        """Write another's field, as an administrator might; it has to be put right."""
        name = self._dice.choice(NODE_NAMES)
        if stored := self.kube.find(NODE_MODEL_STORES, name):
            stored["spec"]["pinned"] = self._dice.choice([[], [DIGEST], [OTHER], ["sha256:x"]])
            self.kube.put(NODE_MODEL_STORES, stored)

    def _flip_artifact(self) -> None:
        name = self._dice.choice(list(DIGESTS))
        found = self.kube.find(MODEL_ARTIFACTS, name, "team-a") or {}
        if not found.get("status", {}).get("resolved"):
            add_artifact(self.kube, name, digest=DIGESTS[name])
        elif self._dice.random() < 0.3:
            self.kube.remove(MODEL_ARTIFACTS, name, "team-a")
        elif self._dice.random() < 0.3:
            add_artifact(self.kube, name, digest="")

    def _flip_grant(self) -> None:
        if not self.kube.find(MODEL_STORE_BINDINGS, "grant", "team-a"):
            add(self.kube, MODEL_STORE_BINDINGS, "grant", GRANT | {"allowPinned": True})
        elif self._dice.random() < 0.3:
            self.kube.remove(MODEL_STORE_BINDINGS, "grant", "team-a")

    def _flip_node(self) -> None:
        name = self._dice.choice(NODE_NAMES)
        if not self.kube.find(NODES, name):
            add_node(self.kube, name, pool="gpu")
        elif self._dice.random() < 0.5:
            self.kube.remove(NODES, name)
            if self.kube.find(NODE_MODEL_STORES, name):
                self.kube.remove(NODE_MODEL_STORES, name)

    def _label_node(self) -> None:
        name = self._dice.choice(NODE_NAMES)
        if self.kube.find(NODES, name):
            labels = self._dice.choice([{}, {"pool": "gpu"}])
            self.kube.put(NODES, {"metadata": {"name": name, "labels": labels}})


def every(kube: ClusterKube, resource: Resource) -> list[Json]:
    """Return every object of a kind."""
    return kube.all(resource)


def digest_of(kube: ClusterKube, prefetch: Json) -> str:
    """Return what a prefetch's artifact has resolved to, "" for nothing."""
    name = prefetch["spec"]["artifactRef"]["name"]
    found = kube.find(MODEL_ARTIFACTS, name, "team-a") or {}
    return str(found.get("status", {}).get("resolved", {}).get("manifestDigest", ""))


def targets_of(kube: ClusterKube, prefetch: Json) -> set[str]:
    """Return the nodes that a prefetch means."""
    wanted = prefetch["spec"]["placement"]["nodeSelector"].get("matchLabels", {})
    return {
        node["metadata"]["name"]
        for node in every(kube, NODES)
        if wanted.items() <= node["metadata"].get("labels", {}).items()
    }


def check(kube: ClusterKube) -> None:
    """Compare pins, Pods and the footprint with what the objects ask for."""
    prefetches = every(kube, MODEL_PREFETCHES)
    grant = kube.find(MODEL_STORE_BINDINGS, "grant", "team-a")
    for stored in every(kube, NODE_MODEL_STORES):
        name = stored["metadata"]["name"]
        wanted = {
            digest_of(kube, each)
            for each in prefetches
            if grant and each["spec"]["retention"]["pinned"] and name in targets_of(kube, each)
        }
        assert stored["spec"].get("pinned", []) == sorted(wanted - {""}), f"pins of {name}"
    by_uid = {each["metadata"]["uid"]: each for each in prefetches}
    live: list[tuple[str, str]] = []
    for pod in every(kube, PODS):
        owner = by_uid.get(pod["metadata"]["ownerReferences"][0]["uid"])
        assert owner is not None, "an orphaned Pod"
        assert node_of(pod) in targets_of(kube, owner), "a Pod of no target"
        attributes = pod["spec"]["volumes"][0]["csi"]["volumeAttributes"]
        assert attributes["manifestDigest"] == digest_of(kube, owner), "a Pod of another digest"
        if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            live.append((owner["metadata"]["name"], node_of(pod)))
    assert len(live) == len(set(live)), "two Pods at work on one node"
    if grant:
        found = status(kube, MODEL_STORE_BINDINGS, "grant").get("usedBytes")
        assert found == footprint(kube, prefetches)


def footprint(kube: ClusterKube, prefetches: list[Json]) -> str | None:
    """Return what a grant must show: distinct digests, times holders, times their size."""
    digests = {digest_of(kube, each) for each in prefetches}
    if "" in digests:
        return None
    holders = sum(
        model["digest"] in digests
        for stored in every(kube, NODE_MODEL_STORES)
        for model in stored.get("status", {}).get("models", [])
    )
    return str(holders * SIZE)


def rest(run: Run) -> None:
    """Let reports be gathered and pauses pass."""
    run.advance(1)
    run.advance(1)


@pytest.mark.parametrize("seed", range(4))
def test_the_world_is_as_its_objects_ask(seed: int) -> None:
    """After every random change, and after every restart in between."""
    dice: Any = random.Random(seed)  # noqa: S311 - dice, not secrets
    kube = cluster(*NODE_NAMES)
    add_artifact(kube, "other", digest=OTHER)
    chaos = Chaos(kube, dice)
    for _ in range(3):
        with running(kube) as run:
            for _ in range(STEPS // 3):
                chaos.act()
                rest(run)
                check(kube)
        chaos.act()
