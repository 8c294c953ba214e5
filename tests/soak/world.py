"""The emulated API and hub around a node under attack: its store, some models, what was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from emulator.cluster import Cluster
from emulator.hubs import LfsRule
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.embedded import CHART
from gpustack_delivery.vocabulary.manifest import Manifest
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import pattern

NODE: Final = "node-a"
NAMESPACE: Final = "team-a"
VERSION: Final = "worker.gpustack.ai/v1alpha1"
_KIB: Final = 1 << 10
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Model:
    """A repository, the artifact that names it, and what every mount of it must show."""

    name: str
    uid: str
    digest: str
    files: Mapping[str, bytes]

    @property
    def hex(self) -> str:
        """Return the digest without its algorithm."""
        return self.digest.removeprefix("sha256:")

    @property
    def size_bytes(self) -> int:
        """Return the sum of the files' sizes."""
        return sum(map(len, self.files.values()))


def contents(seed: int) -> dict[str, bytes]:
    """Return the files of one model: many segments by LFS and by git, small, empty and nested."""
    return {
        "big.safetensors": pattern(900 * _KIB + 77, seed),
        "deep/er/middle.bin": pattern(200 * _KIB, seed + 1000),
        "deep/empty": b"",
        "config.json": b'{"seed": %d}' % seed,
    } | {f"small/{n}.txt": pattern(3000 + n, seed + 2000 + n) for n in range(4)}


class World:
    """A cluster with one node's store and some models, from `with` to its end.

    Args:
        high, low: the node's watermarks in percent.
        bytes_per_second: what its downloads may take, 0 for anything.

    """

    def __init__(
        self, *, models: int, high: int = 95, low: int = 50, bytes_per_second: int = 0
    ) -> None:
        self._stack = ExitStack()
        self._wanted = models
        self._watermarks = {"highPercent": high, "lowPercent": low}
        self._download = {"concurrency": 4}
        if bytes_per_second:
            self._download["bytesPerSecond"] = bytes_per_second

    def __enter__(self) -> Self:
        """Start the API and the hub, and create everything."""
        with ExitStack() as stack:
            self.cluster = stack.enter_context(Cluster())
            self.cluster.apply(CHART / "crds")
            self.hub = self.cluster.add_hub()
            self._http = Http(environment={})
            stack.callback(self._http.close)
            self.kubeconfig: Path = self.cluster.kubeconfig()
            client = self.cluster.client
            client.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            )
            store: dict[str, Any] = {
                "apiVersion": VERSION,
                "kind": "NodeModelStore",
                "metadata": {"name": NODE},
                "spec": {
                    "watermarks": self._watermarks,
                    "download": self._download,
                    "hub": {"huggingFaceEndpoint": self.hub.url},
                    "kubelet": {},
                },
            }
            client.create(store)
            self.models = [self._model(number) for number in range(self._wanted)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        self._stack.close()

    def asked_bytes(self) -> int:
        """Return how many bytes of files were asked for since `forget_requests`."""
        total = 0
        for entry in self.hub.requests.entries(method="GET"):
            if entry.status == 206 and (span := _RANGE.fullmatch(entry.range)):
                total += int(span[2]) - int(span[1]) + 1
        return total

    def forget_requests(self) -> None:
        """Forget what a process asked that has died; wait until the hub has noticed its death."""
        eventually(lambda: not self.hub.requests.in_flight, "the end of a dead process's requests")
        self.hub.requests.clear()

    def reports(self, ready: Set[str], used: Set[str]) -> bool:
        """Say whether the node reports exactly these digests as published and in use."""
        store = self.cluster.client.get(VERSION, "NodeModelStore", NODE)
        entries = store.get("status", {}).get("models", [])
        found = {e["digest"] for e in entries if e["state"] == "Ready"}
        return found == ready and {e["digest"] for e in entries if e.get("referenced")} == used

    def _model(self, number: int) -> Model:
        name, files = f"m{number}", contents(number)
        repository = f"org/{name}"
        self.hub.add_repository(repository, files, lfs=LfsRule(patterns=("*.safetensors",)))
        hub = HuggingFace(self.hub.url, self._http)
        commit = hub.resolve(repository, "main", None)
        digest = Manifest.of(hub.list_tree(repository, commit, None)).digest
        artifact = self.cluster.client.create(
            {
                "apiVersion": VERSION,
                "kind": "ModelArtifact",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"source": {"huggingFace": {"repository": repository}}},
            }
        )
        moment = "2026-01-01T00:00:00Z"
        condition = {"type": "Resolved", "status": "True", "reason": "Resolved", "message": ""}
        artifact["status"] = {
            "resolved": {"revision": commit, "manifestDigest": digest, "resolvedTime": moment},
            "conditions": [condition | {"lastTransitionTime": moment}],
        }
        self.cluster.client.update_status(artifact)
        return Model(name, artifact["metadata"]["uid"], digest, files)
