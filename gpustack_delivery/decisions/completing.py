"""What a Pod's author may leave out of an inline volume: the artifact's UID and its digest.

A volume that names its artifact alone is completed from the artifact of that name in the Pod's own
namespace, which is all that the author could have looked up. What stands in a volume already is
never changed: a UID or a digest that is not the artifact's is refused here, because the node would
refuse it later and a Pod's volumes cannot be mended. A volume with both is not looked at, so asking
twice changes nothing. None of this is permission: the node judges the mount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpustack_delivery.decisions.addresses import object_name_fault
from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.vocabulary.artifact import (
    ATTRIBUTE_ARTIFACT,
    ATTRIBUTE_DIGEST,
    ATTRIBUTE_UID,
    RESOLVED,
    HubSource,
    ModelArtifact,
)
from gpustack_delivery.vocabulary.conditions import find
from gpustack_delivery.vocabulary.resources import DRIVER_NAME, Json

_SECRET_REF: Final = "nodePublishSecretRef"  # noqa: S105 - a field's name


@dataclass(frozen=True, slots=True)
class Gap:
    """An inline volume of ours that names an artifact and lacks its UID, its digest or both.

    `given` holds the attributes of those two that are there; `index` counts the Pod's volumes.
    """

    index: int
    artifact: str
    given: Mapping[str, str]
    has_secret: bool

    @property
    def path(self) -> str:
        """Return the JSON pointer of the volume's source."""
        return f"/spec/volumes/{self.index}/csi"

    @property
    def field(self) -> str:
        """Return the field of the volume's attributes, as messages name it."""
        return f"spec.volumes[{self.index}].csi.volumeAttributes"


def gaps(pod: Mapping[str, Any]) -> tuple[Gap, ...]:
    """Return what is to be completed in a Pod; a volume that names no artifact is the node's."""
    found = []
    for index, volume in enumerate((pod.get("spec") or {}).get("volumes") or ()):
        source = volume.get("csi") or {}
        attributes = source.get("volumeAttributes") or {}
        given = {
            key: attributes[key] for key in (ATTRIBUTE_UID, ATTRIBUTE_DIGEST) if key in attributes
        }
        ours = source.get("driver") == DRIVER_NAME and ATTRIBUTE_ARTIFACT in attributes
        if ours and len(given) < 2:
            has_secret = source.get(_SECRET_REF) is not None
            found.append(Gap(index, attributes[ATTRIBUTE_ARTIFACT], given, has_secret))
    return tuple(found)


def name_fault(gap: Gap) -> Denial | None:
    """Return why a volume's artifact cannot be the name of one, None when it can."""
    fault = object_name_fault(gap.artifact)
    if not fault:
        return None
    message = f"{fault}; name a ModelArtifact of the Pod's own namespace, without the namespace"
    return Denial(f"{gap.field}.{ATTRIBUTE_ARTIFACT}", message)


def complete(gap: Gap, artifact: ModelArtifact | None, namespace: str) -> list[Json] | Denial:
    """Return the JSON patch that completes a volume, or why there is none.

    Args:
        gap: the volume; its name has no fault.
        artifact: the artifact of that name in the Pod's namespace, None when there is none.
        namespace: the Pod's.
    """
    name = gap.artifact
    here = f"{gap.field}.{ATTRIBUTE_ARTIFACT}"
    if artifact is None:
        message = (
            f"there is no ModelArtifact {name} in the Pod's namespace {namespace}: create it "
            "there, or name one that is"
        )
        return Denial(here, message)
    source, resolved = artifact.spec.source, artifact.status.resolved
    if not isinstance(source, HubSource):
        message = (
            f"the ModelArtifact {name} is a claim or an image: mount that as a volume of its own; "
            f"`gpustack-delivery volume {name} -n {namespace}` prints it"
        )
        return Denial(here, message)
    if resolved is None or not artifact.status.is_resolved:
        message = (
            f"the ModelArtifact {name} is not resolved yet ({_state(artifact)}): create the Pod "
            "again once its condition Resolved is True"
        )
        return Denial(here, message)
    wanted = {ATTRIBUTE_UID: artifact.metadata.uid, ATTRIBUTE_DIGEST: resolved.manifest_digest}
    for key, value in gap.given.items():
        if value != wanted[key]:
            message = (
                f"the ModelArtifact {name} has another {key}: leave it out, and it is filled in"
            )
            return Denial(f"{gap.field}.{key}", message)
    patch: list[Json] = [
        {"op": "add", "path": f"{gap.path}/volumeAttributes/{key}", "value": value}
        for key, value in wanted.items()
        if key not in gap.given
    ]
    if source.secret_name and not gap.has_secret:
        named = {"name": source.secret_name}
        patch.append({"op": "add", "path": f"{gap.path}/{_SECRET_REF}", "value": named})
    return patch


def _state(artifact: ModelArtifact) -> str:
    """Return the reason of the Resolved condition; its message may hold what others wrote."""
    condition = find(artifact.status.conditions, RESOLVED)
    return condition.reason if condition and condition.reason else "Resolving"
