"""Whether a mount request is a request at all, and whether its Pod may have what it asks for.

Two kinds of no. A request without its volume id, target or capability is malformed: kubelet would
never send it. Anything else that breaks a rule is refused, and the message names the rule, because
kubelet shows it to the Pod's owner as a FailedMount event. Nothing here looks at the node's
content: a digest that lies on the disk is no permission.

The namespace judged is the one kubelet wrote into the request over whatever the Pod's own
attributes said.

Rules: NS-AUT-01..10, NS-AUT-12, NS-MNT-03.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import PurePosixPath
from typing import Final

from gpustack_delivery.errors import Malformed, Refused
from gpustack_delivery.vocabulary.artifact import HubSource, ModelArtifact, Resolved
from gpustack_delivery.vocabulary.patterns import Patterns

_MOST_NAME_BYTES: Final = 255
_MOST_PATH_BYTES: Final = 4095


class Access(Enum):
    """What the volume's capability asks for; `UNSTATED` has a capability without either kind."""

    MOUNT = auto()
    BLOCK = auto()
    UNSTATED = auto()
    ABSENT = auto()


@dataclass(frozen=True, slots=True)
class MountRequest:
    """One publish call, its credential apart.

    `target` is the path as kubelet sent it and `resolved_target` the same path with the symlinks of
    its parent followed. The pod fields are kubelet's, the artifact fields the Pod author's.
    """

    volume_id: str
    target: str
    resolved_target: str
    access: Access
    ephemeral: bool
    pod_namespace: str
    artifact: str
    artifact_uid: str
    manifest_digest: str
    pod_name: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class KubeletDirectory:
    """The kubelet directory as configured, and with its symlinks followed."""

    path: PurePosixPath
    resolved: PurePosixPath


@dataclass(frozen=True, slots=True)
class Grant:
    """What an authorized request may have: the digest, and where its files can be fetched.

    `resolved.revision` is empty when the artifact resolved to its own anchor.
    """

    artifact_uid: str
    source: HubSource
    patterns: Patterns
    resolved: Resolved

    @property
    def digest(self) -> str:
        """Return the manifest digest."""
        return self.resolved.manifest_digest


def check_form(request: MountRequest) -> None:
    """Check that a request has what every publish call has.

    Raises:
        Malformed: no volume id, no target that can be a path, or no capability.
    """
    if not request.volume_id:
        raise Malformed("the request has no volume id")
    if not request.target:
        raise Malformed("the request has no target path")
    if _too_long(request.target):
        raise Malformed("the request's target path is longer than the kernel takes a path")
    if request.access is Access.ABSENT:
        raise Malformed("the request has no volume capability")


def judge(
    request: MountRequest, kubelet: KubeletDirectory, artifact: ModelArtifact | None
) -> Grant:
    """Judge a well-formed request against every rule, in the order they are documented.

    Args:
        request: the publish call.
        kubelet: the directory that every target must lie in.
        artifact: the ModelArtifact that the request names, looked up in the Pod's namespace; None
            without one.

    Raises:
        Refused: a rule says no; the message names it.
    """
    _judge_volume(request, kubelet)
    return _judge_artifact(request, artifact)


def _too_long(target: str) -> bool:
    """Say whether a path, or a name in it, is too long for the kernel."""
    longest = max(len(name) for name in target.encode().split(b"/"))
    return longest > _MOST_NAME_BYTES or len(target.encode()) > _MOST_PATH_BYTES


def lies_in(target: str, directory: PurePosixPath) -> bool:
    """Say whether an absolute path lies below a directory, `.` and `..` worked out on paper."""
    # normpath keeps two leading slashes apart from one; for a target they mean the same.
    plain = PurePosixPath("/" + os.path.normpath(target).lstrip("/"))
    return target.startswith("/") and "\0" not in target and directory in plain.parents


def _judge_volume(request: MountRequest, kubelet: KubeletDirectory) -> None:
    if not request.ephemeral:
        raise Refused(
            "the volume must be inline ephemeral: csi.storage.k8s.io/ephemeral is not true"
        )
    if request.access is not Access.MOUNT:
        raise Refused("the volume must have a mount capability; a block volume is not served")
    inside = lies_in(request.target, kubelet.path) and lies_in(
        request.resolved_target, kubelet.resolved
    )
    if not inside:
        raise Refused("the target path must lie under the kubelet directory, symlinks followed")


def _judge_artifact(request: MountRequest, artifact: ModelArtifact | None) -> Grant:
    if artifact is None:
        raise Refused(
            f"a ModelArtifact named by the artifact attribute must exist in the Pod's namespace: "
            f"there is no {request.artifact[:253]!r}"
        )
    if artifact.metadata.uid != request.artifact_uid:
        raise Refused(
            "the ModelArtifact's UID must equal the artifactUID attribute: it was created again, "
            "or the attribute names another one"
        )
    source = artifact.spec.source
    if not isinstance(source, HubSource):
        raise Refused("the ModelArtifact's source must be Hugging Face or ModelScope")
    resolved = artifact.status.resolved
    if resolved is None or not artifact.status.is_resolved:
        raise Refused(
            "the ModelArtifact must be Resolved=True; its Resolved condition says why it is not"
        )
    if not resolved.manifest_digest or resolved.manifest_digest != request.manifest_digest:
        raise Refused(
            "the ModelArtifact's status.resolved.manifestDigest must equal "
            "the manifestDigest attribute"
        )
    return Grant(artifact.metadata.uid, source, artifact.spec.patterns, resolved)
