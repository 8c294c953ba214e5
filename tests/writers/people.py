"""Everybody who writes to a cluster beside the worker, and what may befall it, played by dice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from emulator.cluster import Cluster
from emulator.contracts import DeleteOptions
from emulator.errors import ApiError
from emulator.faults import Conflict, Hangup, Refuse
from emulator.faults.effects import Effect
from tests.writers.invariants import API, DRIVER, TEAM

Json = dict[str, Any]

NODES: Final = ("node-a", "node-b", "node-c")
MODELS: Final = ("one", "two")
PREFETCHES: Final = ("x", "y", "z")
GRANT: Final[Json] = {
    "storeRefs": [{"name": "pool"}],
    "quota": {"bytes": "1Gi"},
    "allowPinned": True,
}
_WRITTEN: Final = ("nodemodelstores", "model*/status", "pods", "leases")
_PHASES: Final = ("Running", "Succeeded", "Failed")
_STATES: Final = ("Downloading", "Ready", "Failed")


class People:
    """The others; each act is one write, or one trouble. What admission refuses is refused."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._dice = dice
        self._acts: list[Callable[[], object]] = [
            self._put_prefetch,
            self._put_prefetch,
            self._drop_prefetch,
            self._flip_artifact,
            self._flip_grant,
            self._report,
            self._report,
            self._end_pods,
            self._drop_pod,
            self._label_node,
            self._flicker,
            self._flip_driver,
            self._drop_store,
            self._meddle,
            self._meddle,
            self._break_requests,
            self._break_watches,
        ]

    def act(self) -> str:
        """Do one thing; return what it was."""
        act = self._dice.choice(self._acts)
        name = getattr(act, "__name__", "").strip("_").replace("_", " ")
        try:
            act()
        except ApiError as error:
            return f"{name}: {error.code}"
        return name

    def bury(self) -> None:
        """Let Pods go whose time has come, as kubelets do."""
        for pod in self._client.list("v1", "Pod", namespace=TEAM):
            metadata = pod["metadata"]
            if "deletionTimestamp" in metadata:
                at_once = DeleteOptions(grace_period_seconds=0)
                self._client.delete("v1", "Pod", metadata["name"], namespace=TEAM, options=at_once)

    def _put_prefetch(self) -> None:
        pool = self._dice.choice([{}, {"matchLabels": {"pool": "gpu"}}])
        self._put(
            "ModelPrefetch",
            self._dice.choice(PREFETCHES),
            {
                "artifactRef": {"name": self._dice.choice(MODELS)},
                "bindingRef": {"name": "grant"},
                "placement": {"nodeSelector": pool},
                "retention": {"pinned": self._dice.random() < 0.8},
            },
        )

    def _drop_prefetch(self) -> None:
        self._client.delete(API, "ModelPrefetch", self._dice.choice(PREFETCHES), namespace=TEAM)

    def _flip_artifact(self) -> None:
        name = self._dice.choice(MODELS)
        if self._named("ModelArtifact", name) and self._dice.random() < 0.4:
            self._client.delete(API, "ModelArtifact", name, namespace=TEAM)
        else:
            self._put("ModelArtifact", name, {"source": source(name)})

    def _flip_grant(self) -> None:
        if self._named("ModelStoreBinding", "grant") and self._dice.random() < 0.4:
            self._client.delete(API, "ModelStoreBinding", "grant", namespace=TEAM)
        else:
            self._put("ModelStoreBinding", "grant", GRANT)

    def _report(self) -> None:
        """Report a node's content, as its plugin does."""
        digests = [
            item["status"]["resolved"]["manifestDigest"]
            for item in self._client.list(API, "ModelArtifact", namespace=TEAM)
            if "resolved" in item.get("status", {})
        ]
        held = [digest for digest in digests if self._dice.random() < 0.7]
        models = [{"digest": digest, "state": self._dice.choice(_STATES)} for digest in held]
        patch = {"status": {"models": models}}
        node = self._dice.choice(NODES)
        self._client.patch(API, "NodeModelStore", node, patch, subresource="status")

    def _end_pods(self) -> None:
        phase = self._dice.choice(_PHASES)
        for pod in self._client.list("v1", "Pod", namespace=TEAM):
            self._client.update_status(pod | {"status": pod["status"] | {"phase": phase}})

    def _drop_pod(self) -> None:
        if pods := self._client.list("v1", "Pod", namespace=TEAM):
            name = self._dice.choice(pods)["metadata"]["name"]
            self._client.delete("v1", "Pod", name, namespace=TEAM)

    def _label_node(self) -> None:
        pool = self._dice.choice(["gpu", None])
        patch = {"metadata": {"labels": {"pool": pool}}}
        self._client.patch("v1", "Node", self._dice.choice(NODES), patch)

    def _flicker(self) -> None:
        """Take the driver off a node, or put it on again, as kubelet does."""
        name = self._dice.choice(NODES)
        drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": None}]
        found = drivers if self._dice.random() < 0.7 else None
        patch = {"spec": {"drivers": found}}
        self._client.patch("storage.k8s.io/v1", "CSINode", name, patch)

    def _flip_driver(self) -> None:
        kind = ("storage.k8s.io/v1", "CSIDriver")
        there = self._client.list(*kind)
        if there and self._dice.random() < 0.3:
            self._client.delete(*kind, DRIVER)
        else:
            metadata, spec = {"name": DRIVER}, {"attachRequired": False}
            body = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": spec}
            self._client.apply(body)

    def _drop_store(self) -> None:
        self._client.delete(API, "NodeModelStore", self._dice.choice(NODES))

    def _meddle(self) -> None:
        """Write what is somebody else's: pins, configuration, owners or a status."""
        name = self._dice.choice(NODES)
        patch: Json = self._dice.choice(
            [
                {"spec": {"pinned": []}},
                {"spec": {"pinned": ["sha256:" + "a" * 64]}},
                {"spec": {"download": {"concurrency": 63}}},
                {"metadata": {"ownerReferences": None}},
            ]
        )
        self._client.patch(API, "NodeModelStore", name, patch)

    def _break_requests(self) -> None:
        """Let some of the worker's next writes fail, or be done and not answered; cause some."""
        effects: list[Effect] = [Conflict(), Refuse(500), Hangup(), Hangup(done=True)]
        chosen, times = self._dice.choice(effects), self._dice.randint(1, 4)
        self._cluster.faults.add(
            chosen, verb="write", resource=self._dice.choice(_WRITTEN), times=times
        )
        self._dice.choice([self._put_prefetch, self._drop_store, self._report, self._label_node])()

    def _break_watches(self) -> None:
        faults = self._cluster.faults
        if self._dice.random() < 0.5:
            faults.forget_history()
        faults.drop_watches(reset=self._dice.random() < 0.5)

    def _named(self, kind: str, name: str) -> bool:
        found = self._client.list(API, kind, namespace=TEAM)
        return any(item["metadata"]["name"] == name for item in found)

    def _put(self, kind: str, name: str, spec: Json) -> None:
        metadata = {"name": name, "namespace": TEAM}
        self._client.apply({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})


def source(name: str) -> Json:
    """Return where a model comes from."""
    return {"huggingFace": {"repository": f"org/{name}"}}
