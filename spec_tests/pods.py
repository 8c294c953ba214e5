"""Artifacts and Pods, as a spec test speaks of them.

An `Artifact` is what a Pod's author knows: name, UID and digest. A `Pod` is an object at the API
server that the emulated kubelet runs, which calls the plugin in its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from spec_tests import oracle
from spec_tests.oracle import Tree

Json = dict[str, Any]
VOLUME: Final = "model"


class World(Protocol):
    """What a node needs of the world it stands in."""

    @property
    def api(self) -> Any:
        """Return the emulator's client, as cluster admin."""

    @property
    def seat(self) -> Any:
        """Return what the target gave the world to stand on."""

    @property
    def shape(self) -> Any:
        """Return how the world was built."""

    def advance(self, seconds: float) -> None:
        """Move the clock and let everything come to rest."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A ModelArtifact as a Pod's author knows it, and the tree that its digest stands for."""

    name: str
    namespace: str
    uid: str
    digest: str
    tree: Tree
    token: str = field(default="", repr=False)

    @property
    def attributes(self) -> dict[str, str]:
        """Return the volume attributes that mount it."""
        return {"artifact": self.name, "artifactUID": self.uid, "manifestDigest": self.digest}

    def presenting(self, token: str) -> Artifact:
        """Return the artifact with another token for kubelet to present."""
        return replace(self, token=token)

    def claiming(self, digest: str) -> Artifact:
        """Return the artifact under another digest than its tree's."""
        return replace(self, digest=digest)


class Place(Protocol):
    """What a Pod needs of the node it runs on."""

    @property
    def pods_dir(self) -> Path:
        """Return kubelet's directory of Pods."""


class Pod:
    """A Pod at the API server, run by the emulated kubelet of its node."""

    def __init__(self, world: World, node: Place, manifest: Json) -> None:
        """Create it."""
        self._world = world
        self._node = node
        self._created: Json = world.api.create(manifest)
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]

    @property
    def uid(self) -> str:
        """Return the Pod's UID."""
        uid: str = self._created["metadata"]["uid"]
        return uid

    @property
    def target(self) -> Path:
        """Return where its volume is mounted on the node."""
        return self._node.pods_dir / self.uid / "volumes/kubernetes.io~csi" / VOLUME / "mount"

    def phase(self) -> str:
        """Return the Pod's phase."""
        pod: Json = self._world.api.get("v1", "Pod", self.name, namespace=self.namespace)
        return str(pod.get("status", {}).get("phase", ""))

    def failed_mounts(self) -> list[str]:
        """Return the messages of the FailedMount events recorded on it."""
        events: list[Json] = self._world.api.list("v1", "Event", namespace=self.namespace)
        return [
            event["message"]
            for event in events
            if event["reason"] == "FailedMount" and event["involvedObject"].get("uid") == self.uid
        ]

    def wait_until_running(self, within_seconds: int = 300) -> None:
        """Let time pass until kubelet's retries have brought the Pod up."""
        for _ in range(within_seconds):
            if self.phase() == "Running":
                return
            self._world.advance(1)
        raise AssertionError(f"Pod {self.name} is {self.phase()}; events: {self.failed_mounts()}")

    def is_gone(self) -> bool:
        """Say whether the object is no longer there."""
        fields = f"metadata.name={self.name}"
        return not self._world.api.list("v1", "Pod", namespace=self.namespace, fields=fields)

    def delete(self) -> None:
        """Ask for its end; kubelet unmounts before the object goes."""
        self._world.api.delete("v1", "Pod", self.name, namespace=self.namespace)


def pod_manifest(
    artifact: Artifact, node: str, *, name: str, namespace: str, attributes: Mapping[str, str]
) -> Json:
    """Return a hand-written Pod that mounts an artifact."""
    csi: Json = {
        "driver": oracle.DRIVER,
        "readOnly": True,
        "volumeAttributes": {**artifact.attributes, **attributes},
    }
    if artifact.token:
        csi["nodePublishSecretRef"] = {"name": f"{artifact.name}-token"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "main",
                    "image": "consumer",
                    "volumeMounts": [{"name": VOLUME, "mountPath": "/model", "readOnly": True}],
                }
            ],
            "volumes": [{"name": VOLUME, "csi": csi}],
        },
    }
