"""Broken authorizations of mounts: each breaks one seam, in the way its name says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from gpustack_delivery import embedded
from gpustack_delivery.decisions import authorization
from gpustack_delivery.decisions.authorization import Access
from gpustack_delivery.errors import Refused
from gpustack_delivery.node import csi, mounting
from gpustack_delivery.node.mounting import Mounting
from gpustack_delivery.vocabulary.artifact import Status
from tests.mutants.seams import Around, Patch, breaks, never


@breaks("NS-AUT-05")
def ignores_the_uid(patch: Patch) -> None:
    """Take an artifact by its name."""
    _judge_another(
        patch,
        lambda request, _, artifact: replace(
            request, artifact_uid=artifact.metadata.uid if artifact else request.artifact_uid
        ),
    )


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


@breaks("NS-AUT-01")
def takes_no_word_for_yes(patch: Patch) -> None:
    """Refuse only volumes that say they are not ephemeral."""
    read = csi._read

    def believed(request: Any) -> Any:
        said = request.volume_context.get("csi.storage.k8s.io/ephemeral", "")
        return replace(read(request), ephemeral=said != "false")

    patch.setattr(csi, "_read", believed)


@breaks("NS-AUT-02")
def takes_a_block_volume_for_a_mount(patch: Patch) -> None:
    """Mount a directory where a block device was asked for."""
    patch.setitem(csi._ACCESS, "block", Access.MOUNT)


@breaks("NS-AUT-02")
def takes_an_unstated_access_for_a_mount(patch: Patch) -> None:
    """Mount for a capability that names no access at all."""
    patch.setitem(csi._ACCESS, None, Access.MOUNT)


@breaks("NS-AUT-02")
def needs_no_capability(patch: Patch) -> None:
    """Mount for a request without a capability."""

    def mounting_one(request: Any, *_: Any) -> Any:
        absent = request.access is Access.ABSENT
        return replace(request, access=Access.MOUNT) if absent else request

    check_form = authorization.check_form
    patch.setattr(mounting, "check_form", lambda request: check_form(mounting_one(request)))
    _judge_another(patch, mounting_one)


@breaks("NS-AUT-03")
def follows_no_symlinks(patch: Patch) -> None:
    """Judge a target by its letters, dots worked out."""
    _judge_another(
        patch,
        lambda request, kubelet, _: replace(
            request, resolved_target=str(kubelet.resolved / "pods")
        ),
    )


@breaks("NS-AUT-03")
def works_no_dots_out(patch: Patch) -> None:
    """Judge a target by how it begins."""

    def lies_in(target: str, directory: PurePosixPath) -> bool:
        return target.startswith(f"{directory}/")

    patch.setattr(authorization, "lies_in", lies_in)
    patch.setattr(mounting, "follow", str)
    patch.setattr(csi, "follow", str)


@breaks("NS-AUT-03")
def takes_a_neighbour_for_its_own(patch: Patch) -> None:
    """Forget where the name of kubelet's directory ends."""
    lies_in = authorization.lies_in

    def near(target: str, directory: PurePosixPath) -> bool:
        return lies_in(target, directory) or target.startswith(str(directory))

    patch.setattr(authorization, "lies_in", near)


@breaks("NS-AUT-04")
def looks_in_every_namespace(patch: Patch) -> None:
    """Find an artifact by its UID, wherever it lives."""
    judge_and_mount = Mounting._judge_and_mount

    def mounted(self: Any, request: Any, token: Any) -> None:
        for (namespace, _), found in self._around.artifacts.items().items():
            if found.metadata.uid == request.artifact_uid:
                request = replace(request, pod_namespace=namespace)
        judge_and_mount(self, request, token)

    patch.setattr(Mounting, "_judge_and_mount", mounted)


@breaks("NS-AUT-06")
def serves_every_source(patch: Patch) -> None:
    """Mount a claim's content if its digest lies on the disk."""
    patch.setattr(authorization, "HubSource", object)


@breaks("NS-AUT-08")
def knows_better_than_the_volume(patch: Patch) -> None:
    """Mount what the artifact is resolved to, whatever the volume asks for."""

    def corrected(request: Any, _: Any, artifact: Any) -> Any:
        resolved = artifact and artifact.status.resolved
        digest = resolved.manifest_digest if resolved else request.manifest_digest
        return replace(request, manifest_digest=digest)

    _judge_another(patch, corrected)


@breaks("NS-AUT-12")
def keeps_the_rule_to_itself(patch: Patch) -> None:
    """Refuse without a reason."""
    judge = authorization.judge

    def judged(*given: Any) -> Any:
        try:
            return judge(*given)
        except Refused:
            raise Refused("the mount is not authorized") from None

    patch.setattr(mounting, "judge", judged)


@breaks("NS-AUT-13")
def judges_running_mounts_again(patch: Patch) -> None:
    """Treat every publish as a new mount."""
    patch.setattr(Mounting, "_shows", never)


@breaks("NS-AUT-13")
def unmounts_what_is_revoked(patch: Patch) -> None:
    """Take a mount away whose artifact is no longer resolved, as soon as somebody looks."""
    publish = Mounting.publish

    def published(self: Any, request: Any, token: Any) -> None:
        for reference in list(self._around.store.references._by_target.values()):
            resolved = (
                found.status.resolved.manifest_digest
                for found in self._around.artifacts.items().values()
                if found.status.is_resolved and found.status.resolved
            )
            if reference.digest not in set(resolved):
                self.unpublish(reference.volume_id, reference.target)
        publish(self, request, token)

    patch.setattr(Mounting, "publish", published)


@breaks("NS-AUT-14")
def starts_with_an_empty_picture(patch: Patch) -> None:
    """Take artifacts that were not read yet for missing ones."""
    made = Mounting.__init__

    def started(self: Any, around: Any, *rest: Any) -> None:
        made(self, replace(around, artifacts=Around(around.artifacts, synced=True)), *rest)

    patch.setattr(Mounting, "__init__", started)


def _judge_another(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Let another request be judged, made of the request, kubelet's directory and the artifact."""
    judge = authorization.judge

    def judged(request: Any, kubelet: Any, artifact: Any) -> Any:
        return judge(change(request, kubelet, artifact), kubelet, artifact)

    patch.setattr(mounting, "judge", judged)
