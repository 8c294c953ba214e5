"""The demo's story: what is delivered to whom, what is refused, and whether all of it came true.

Each chapter does what a user of a cluster would do, waits for what the contract promises, and
keeps the facts that `Outcome` reports. A promise that is not kept is shown and makes the outcome
not ok; one that does not come in time ends the story with a Fault.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from gpustack_delivery.demo.model import ModelFolder, read_tensors
from gpustack_delivery.demo.screen import Screen
from gpustack_delivery.demo.stage import Stage
from gpustack_delivery.vocabulary.resources import DRIVER_NAME, GROUP, STORED_VERSION, Json

REPOSITORY: Final = "demo/model"
API: Final = f"{GROUP}/{STORED_VERSION}"
PUBLIC_API: Final = f"{GROUP}/v1"
"""The version that kubectl prefers, and so the one whose tables it prints."""
BANDWIDTH_BYTES: Final = 32 << 20
"""So that a download on loopback takes long enough to be watched."""
RESOLVE_SECONDS: Final = 120.0
EVENT_SECONDS: Final = 60.0
FILE_STATUSES: Final = frozenset({200, 206})
"""Answers whose body is a file's; a redirect's is not."""
_MOUNTS: Final = re.compile(r'^gpustack_model_manager_mounts_total\{result="(\w+)"\} (\S+)$', re.M)


@dataclass(frozen=True, slots=True)
class Artifact:
    """The resolved artifact that the Pods name."""

    name: str
    namespace: str
    uid: str
    digest: str
    file_count: int
    size_bytes: int


@dataclass(slots=True)
class Outcome:
    """What happened, as the last line of `--json` says it."""

    digest: str = ""
    nodes: int = 0
    mounts: dict[str, int] = field(default_factory=dict)
    hub_bytes: int = 0
    model_bytes: int = 0
    kernel_mounts: bool = False
    broken: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether every promise was kept."""
        return not self.broken

    def to_wire(self) -> Json:
        """Return the JSON object."""
        return {
            "ok": self.ok,
            "digest": self.digest,
            "nodes": self.nodes,
            "mounts": self.mounts,
            "hubBytes": self.hub_bytes,
            "modelBytes": self.model_bytes,
            "kernelMounts": self.kernel_mounts,
            "broken": self.broken,
        }


def tell(stage: Stage, folder: ModelFolder, screen: Screen) -> Outcome:
    """Act the whole story out and return its outcome.

    Raises:
        Fault: something that was promised did not come in time.
    """
    return _Story(stage, folder, screen).tell()


class _Story:
    def __init__(self, stage: Stage, folder: ModelFolder, screen: Screen) -> None:
        self._stage = stage
        self._folder = folder
        self._screen = screen
        self._client = stage.cluster.client
        self._outcome = Outcome(kernel_mounts=stage.kernel_mounts)

    def tell(self) -> Outcome:
        self._open_cluster()
        artifact = self._resolve()
        self._deliver(artifact)
        self._share(artifact)
        self._deliver_elsewhere(artifact)
        self._refuse(artifact)
        self._take_stock(artifact)
        return self._outcome

    def _promise(self, text: str, *, kept: bool) -> None:
        self._screen.check(text, ok=kept)
        if not kept:
            self._outcome.broken.append(text)

    # chapters

    def _open_cluster(self) -> None:
        stage, screen = self._stage, self._screen
        screen.chapter("A cluster of two nodes, a hub, and the chart")
        stage.hub.add_repository(REPOSITORY, self._folder.path)
        stage.install(
            {
                "model-artifact-huggingface-endpoint": stage.hub.url,
                "model-store-download-bandwidth": str(BANDWIDTH_BYTES),
            }
        )
        for namespace in ("team-a", "team-b"):
            self._client.create(_object("v1", "Namespace", namespace))
        how = "the kernel, in a private mount namespace"
        screen.say(f"API server {stage.cluster.url}, hub {stage.hub.url}")
        screen.say(f"mounts by {how if stage.kernel_mounts else 'an emulated table (not root)'}")
        screen.say(f"downloads limited to {_mib(BANDWIDTH_BYTES)}/s, to have something to see")
        self._outcome.nodes = len(stage.nodes)

    def _resolve(self) -> Artifact:
        self._screen.chapter(f"ModelArtifact team-a/minilm names {REPOSITORY} at main")
        artifact = _object(API, "ModelArtifact", "minilm", "team-a")
        artifact["spec"] = {"source": {"huggingFace": {"repository": REPOSITORY}}}
        self._client.create(artifact)
        found = self._stage.until(self._resolved, "the artifact is resolved", RESOLVE_SECONDS)
        resolved = found["status"]["resolved"]
        digest, size_bytes = resolved["manifestDigest"], resolved["sizeBytes"]
        self._screen.say(f"commit {resolved['revision']}")
        self._screen.say(f"digest {digest}")
        count = resolved["fileCount"]
        same = digest == self._folder.manifest.digest
        self._promise(f"{count} files, {size_bytes:,} bytes; the folder's own digest", kept=same)
        self._outcome.digest, self._outcome.model_bytes = digest, size_bytes
        self._screen.say("$ kubectl get mart -n team-a")
        path = f"/apis/{PUBLIC_API}/namespaces/team-a/modelartifacts"
        self._screen.table(self._stage.table(path))
        uid = found["metadata"]["uid"]
        return Artifact("minilm", "team-a", uid, digest, count, size_bytes)

    def _deliver(self, artifact: Artifact) -> None:
        self._screen.chapter("A first Pod on node-a waits while its node downloads")
        before = self._hub_bytes()
        pod = self._start_pod("first", "node-a", artifact)
        self._watch_download(pod, "node-a", artifact)
        for event in self._failed_mounts(pod):
            self._screen.say(f"FailedMount: {event}")
        whole = self._hub_bytes() - before == artifact.size_bytes
        self._promise("running; the hub served every byte exactly once", kept=whole)
        self._read_through(pod, "node-a")

    def _share(self, artifact: Artifact) -> None:
        self._screen.chapter("A second Pod on node-a shares the tree")
        before = len(self._stage.hub.requests.entries())
        answers = self._mounts()
        pod = self._start_pod("second", "node-a", artifact)
        self._until_running(pod, lambda: self._is_running(pod), artifact)
        self._tally("hit", answers)
        quiet = len(self._stage.hub.requests.entries()) == before
        self._promise("running; the hub was not asked at all", kept=quiet)

    def _deliver_elsewhere(self, artifact: Artifact) -> None:
        self._screen.chapter("A third Pod on node-b makes that node download its own copy")
        pod = self._start_pod("third", "node-b", artifact)
        self._watch_download(pod, "node-b", artifact)
        self._read_through(pod, "node-b")

    def _refuse(self, artifact: Artifact) -> None:
        self._screen.chapter("A Pod in team-b names the same digest, and is refused")
        before = self._mounts()
        pod = self._start_pod("stranger", "node-a", artifact, namespace="team-b")
        events = self._stage.until(
            lambda: self._failed_mounts(pod) or None, "the refusal is recorded", EVENT_SECONDS
        )
        self._screen.say(f"FailedMount: {events[0]}")
        self._tally("denied", before)
        refused = any("PermissionDenied" in event for event in events)
        self._promise("the digest is on the node, and is no authorization", kept=refused)
        self._client.delete("v1", "Pod", "stranger", namespace="team-b")

    def _take_stock(self, artifact: Artifact) -> None:
        self._screen.chapter("What the cluster and the scrapers see")
        self._stage.until(self._reported, "both nodes report the tree", EVENT_SECONDS)
        prefix = f"/apis/{PUBLIC_API}"
        self._screen.say("$ kubectl get nms")
        self._screen.table(self._stage.table(f"{prefix}/nodemodelstores"))
        # The artifact's own counts are up to half a minute old; this one is made when it is asked.
        path = f"{prefix}/namespaces/team-a/modelartifacts/{artifact.name}/progress"
        self._screen.say(f"$ kubectl get --raw {path}")
        self._screen.say(json.dumps(self._stage.read(path)))
        self._screen.say("$ kubectl get pods -n team-a")
        self._screen.table(self._stage.table("/api/v1/namespaces/team-a/pods"))
        for node, plugin in self._stage.plugins.items():
            self._screen.say(f"$ curl -k {plugin.metrics_url}/metrics   # {node}")
            self._screen.rows([], [[line] for line in _figures(self._stage.metrics(node))])
        outcome = self._outcome
        outcome.hub_bytes = self._hub_bytes()
        once = outcome.hub_bytes == artifact.size_bytes * outcome.nodes
        as_told = outcome.mounts == {"materialized": 2, "hit": 1, "denied": 1}
        self._promise(
            f"three Pods mount {_mib(artifact.size_bytes)} each; the hub gave "
            f"{_mib(outcome.hub_bytes)}, one copy a node",
            kept=once and as_told,
        )

    # what a user would do

    def _start_pod(
        self, name: str, node: str, artifact: Artifact, namespace: str = "team-a"
    ) -> Json:
        pod = _object("v1", "Pod", name, namespace)
        attributes = {
            "artifact": artifact.name,
            "artifactUID": artifact.uid,
            "manifestDigest": artifact.digest,
        }
        csi = {"driver": DRIVER_NAME, "readOnly": True, "volumeAttributes": attributes}
        mount = {"name": "model", "mountPath": "/model", "readOnly": True}
        pod["spec"] = {
            "nodeName": node,
            "containers": [{"name": "server", "image": "server", "volumeMounts": [mount]}],
            "volumes": [{"name": "model", "csi": csi}],
        }
        return self._client.create(pod)

    def _watch_download(self, pod: Json, node: str, artifact: Artifact) -> None:
        """Show the node's live figures until the Pod runs."""
        before = self._mounts()
        with self._screen.meter(node) as meter:

            def running() -> bool:
                for download in self._stage.downloads(node):
                    meter(download["downloadedBytes"], download["sizeBytes"])
                return self._is_running(pod)

            self._until_running(pod, running, artifact)
            meter(artifact.size_bytes, artifact.size_bytes)
        self._tally("materialized", before)

    def _read_through(self, pod: Json, node: str) -> None:
        mount = self._stage.nodes[node].pod_mount(pod)
        files = mount.files()
        self._promise(f"the Pod sees {len(files)} files", kept=bool(files))
        try:
            mount.write("intruder", b"")
        except OSError as error:
            self._promise(f"writing is refused: {error.strerror}", kept=True)
        else:
            self._promise("writing is refused", kept=False)
        weights = next((path for path in files if path.endswith(".safetensors")), "")
        original = read_tensors(self._folder.path / weights) if weights else None
        if original is None:
            same = all(
                mount.read(path) == (self._folder.path / path).read_bytes() for path in files
            )
            self._promise("every byte read through the mount is the repository's", kept=same)
            return
        tensors = read_tensors(mount.folder / weights)
        self._screen.say(
            f"{original.file}: {original.count} tensors, {original.parameters:,} parameters"
        )
        if original.mean is not None:
            self._screen.say(f"{original.largest}: mean {original.mean:+.6e}")
        self._promise("the tensors are the repository's", kept=tensors == original)

    # what a user would see

    def _resolved(self) -> Json | None:
        artifact = self._client.get(API, "ModelArtifact", "minilm", namespace="team-a")
        for condition in (artifact.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Resolved" and condition["status"] == "True":
                return artifact
        return None

    def _is_running(self, pod: Json) -> bool:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        now = self._client.get("v1", "Pod", name, namespace=namespace)
        return bool(now["status"].get("phase") == "Running")

    def _until_running(self, pod: Json, ask: Callable[[], bool], artifact: Artifact) -> None:
        # What the bandwidth alone takes, thrice, and kubelet's retries on top.
        seconds = 3 * artifact.size_bytes / BANDWIDTH_BYTES + 180
        self._stage.until(ask, f"Pod {pod['metadata']['name']} runs", seconds)

    def _failed_mounts(self, pod: Json) -> list[str]:
        events = self._client.list("v1", "Event", namespace=pod["metadata"]["namespace"])
        return [
            event["message"]
            for event in events
            if event["reason"] == "FailedMount"
            and event["involvedObject"].get("uid") == pod["metadata"]["uid"]
        ]

    def _reported(self) -> bool:
        stores = self._client.list(API, "NodeModelStore")
        entries = [(store.get("status") or {}).get("models") or [] for store in stores]
        return len(stores) == len(self._stage.nodes) and all(
            any(entry["digest"] == self._outcome.digest and entry.get("referenced") for entry in e)
            for e in entries
        )

    def _hub_bytes(self) -> int:
        """Return the bytes of files that the hub gave, itself or by its content host."""
        requests = self._stage.hub.requests
        asked = requests.entries("*/resolve/*", host="hub") + requests.entries(host="cdn")
        return sum(entry.sent_bytes for entry in asked if entry.status in FILE_STATUSES)

    # which answers the plugins gave

    def _mounts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for node in self._stage.plugins:
            for result, count in _MOUNTS.findall(self._stage.metrics(node)):
                counts[result] += int(float(count))
        return counts

    def _tally(self, result: str, before: Counter[str]) -> None:
        """Count one Pod under the answer its mount got; kubelet may have asked more than once."""
        grown = self._mounts() - before
        if grown[result]:
            self._outcome.mounts[result] = self._outcome.mounts.get(result, 0) + 1


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Json:
    metadata: Json = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _figures(metrics: str) -> Iterator[str]:
    """Yield the plugin's own figures that are not zero, without buckets and creation times."""
    for line in metrics.splitlines():
        own = line.startswith("gpustack_model_manager_")
        if own and "_bucket" not in line and "_created" not in line and not line.endswith(" 0.0"):
            yield line


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"
