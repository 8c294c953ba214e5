"""Broken mounts and their authorization: each breaks one seam, in the way its name says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustack_delivery import embedded
from gpustack_delivery.decisions import authorization
from gpustack_delivery.node import csi, mounting
from gpustack_delivery.vocabulary.artifact import Status
from tests.mutants.seams import Around, Patch, breaks, change_world, idle


@breaks("NS-MNT-05")
def mounts_writable(patch: Patch) -> None:
    """Bind without a thought for read-only."""

    def changed(mounts: Any) -> Any:
        def bind(source: Path, target: Path) -> None:
            mounts.bind(source, target, read_only=False)

        return Around(mounts, bind_read_only=bind)

    change_world(patch, mounts=changed)


@breaks("NS-REF-07")
def stacks_mounts(patch: Patch) -> None:
    """Bind at every publish, whatever is mounted there."""
    mount = mounting.Mounting._mount

    def mounted(self: Any, *args: Any) -> None:
        self._clear = idle
        try:
            mount(self, *args)
        finally:
            del self._clear

    patch.setattr(mounting.Mounting, "_mount", mounted)
    patch.setattr(mounting.Mounting, "_shows", lambda *_: False)


@breaks("NS-AUT-05")
def ignores_the_uid(patch: Patch) -> None:
    """Take an artifact by its name."""
    judge = authorization.judge

    def judged(request: Any, kubelet: Any, artifact: Any) -> Any:
        if artifact is not None:
            request = replace(request, artifact_uid=artifact.metadata.uid)
        return judge(request, kubelet, artifact)

    patch.setattr(mounting, "judge", judged)


@breaks("NS-AUT-07")
def ignores_revocations(patch: Patch) -> None:
    """Mount whatever was resolved once."""
    patch.setattr(Status, "is_resolved", property(lambda status: status.resolved is not None))


@breaks("NS-AUT-09")
def believes_the_pods_attributes(patch: Patch) -> None:
    """Read the namespace from the attributes that the Pod's author wrote."""
    start_plugin, read = embedded.Embedded.start_plugin, csi._read
    clusters: list[Any] = []

    def started(self: Any, node: Any) -> Any:
        clusters.append(self._cluster)
        return start_plugin(self, node)

    def believed(request: Any) -> Any:
        found = read(request)
        for pod in clusters[-1].client.list("v1", "Pod"):
            if pod["metadata"]["uid"] == found.pod_uid:
                attributes = pod["spec"]["volumes"][0]["csi"]["volumeAttributes"]
                claimed = attributes.get("csi.storage.k8s.io/pod.namespace", found.pod_namespace)
                return replace(found, pod_namespace=claimed)
        return found

    patch.setattr(embedded.Embedded, "start_plugin", started)
    patch.setattr(csi, "_read", believed)


@breaks("NS-AUT-10")
def takes_content_for_permission(patch: Patch) -> None:
    """Mount what lies on the disk for whoever knows its digest."""
    judge_and_mount = mounting.Mounting._judge_and_mount

    def mounted(self: Any, request: Any, token: Any) -> None:
        with self._around.store.trees.hold(request.manifest_digest) as tree:
            if tree is not None:
                self._mount(request, request.manifest_digest, tree)
                return
        judge_and_mount(self, request, token)

    patch.setattr(mounting.Mounting, "_judge_and_mount", mounted)


@breaks("NS-AUT-11")
def makes_the_target_first(patch: Patch) -> None:
    """Make the target directory before anybody is judged."""
    judge_and_mount = mounting.Mounting._judge_and_mount

    def mounted(self: Any, request: Any, token: Any) -> None:
        Path(request.resolved_target).mkdir(parents=True, exist_ok=True)
        judge_and_mount(self, request, token)

    patch.setattr(mounting.Mounting, "_judge_and_mount", mounted)
