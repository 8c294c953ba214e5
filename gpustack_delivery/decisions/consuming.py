"""How the Pods of ModelDeployments and Instances are rendered from their templates.

A hub artifact becomes the inline volume that any Pod could write by hand, and a preference for the
nodes that hold it. A claim or an image is mounted directly: the node plugin has no part in it.
Nothing else of the template is touched.

Rules: NS-MNT-01, NS-MNT-02, NS-REQ-02, NS-REQ-04, SC-PRF-01.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.decisions.pods import volume
from gpustack_delivery.decisions.preference import term
from gpustack_delivery.vocabulary.artifact import ClaimSource, HubSource, ImageSource, ModelArtifact
from gpustack_delivery.vocabulary.metadata import Metadata, OwnerReference
from gpustack_delivery.vocabulary.resources import PODS, Json, Resource
from gpustack_delivery.vocabulary.wire import present

CONSUMER_LABEL: Final = "worker.gpustack.ai/consumer"
# Where a queue places whole groups of Pods, a preference of single ones is in its way.
TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-preferred-topology"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PARTS: Final[tuple[tuple[str, type], ...]] = (
    ("metadata", dict),
    ("metadata.labels", dict),
    ("metadata.annotations", dict),
    ("spec", dict),
    ("spec.volumes", list),
    ("spec.initContainers", list),
    ("spec.containers", list),
    ("spec.affinity", dict),
    ("spec.affinity.nodeAffinity", dict),
    (f"spec.affinity.nodeAffinity.{_PREFERRED}", list),
)


@dataclass(frozen=True, slots=True)
class Use:
    """One artifact that a Pod mounts: the volume's name, where, and the artifact, resolved."""

    name: str
    mount_path: str
    artifact: ModelArtifact

    @property
    def digest(self) -> str:
        """Return the digest that the node plugin delivers, "" if it delivers nothing."""
        resolved = self.artifact.status.resolved
        of_hub = isinstance(self.artifact.spec.source, HubSource)
        return resolved.manifest_digest if resolved and of_hub else ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose Pod it is."""

    resource: Resource
    metadata: Metadata


def template_fault(template: Json) -> str:
    """Say which part of a template has a form that no Pod has, "" if none has.

    The schema takes any template, and the API server judges the Pod that is made of it: this is
    what must hold before one can be made.
    """
    for path, form in _PARTS:
        part: object = template
        for step in path.split("."):
            part = part.get(step) if isinstance(part, dict) else None
        if part is not None and not isinstance(part, form):
            return f"template.{path} must be {'a list' if form is list else 'an object'}"
    spec = template.get("spec") or {}
    for name in ("volumes", "initContainers", "containers"):
        for index, item in enumerate(spec.get(name) or ()):
            where = f"template.spec.{name}[{index}]"
            if not isinstance(item, dict):
                return f"{where} must be an object"
            if not isinstance(item.get("volumeMounts") or [], list):
                return f"{where}.volumeMounts must be a list"
    return ""


def mounted(artifact: ModelArtifact, name: str) -> Json:
    """Return the volume by which a Pod mounts an artifact of any source."""
    match artifact.spec.source:
        case ClaimSource(claim_name=claim):
            return {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        case ImageSource(reference=reference):
            return {"name": name, "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}
    return volume(artifact, name)


def render(
    owner: Owner,
    name: str,
    template: Json,
    uses: Sequence[Use],
    hostnames: Mapping[str, Sequence[str]],
) -> Json:
    """Return a Pod of a template.

    Args:
        owner: controls the Pod.
        name: the Pod's.
        template: a Pod template without a `template_fault`.
        uses: the artifacts to mount.
        hostnames: the hosts to prefer, by digest.
    """
    given = template.get("metadata") or {}
    reference = OwnerReference(
        owner.resource.api_version,
        owner.resource.kind,
        owner.metadata.name,
        owner.metadata.uid,
        controller=True,
    )
    annotations = given.get("annotations") or {}
    spec = copy.deepcopy(template.get("spec") or {})
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        *(mounted(use.artifact, use.name) for use in uses),
    ]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = [_mount(use) for use in uses]
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]
    if TOPOLOGY_ANNOTATION not in annotations:
        _prefer(spec, uses, hostnames)
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name,
            "namespace": owner.metadata.namespace,
            "labels": {**(given.get("labels") or {}), CONSUMER_LABEL: owner.resource.plural},
            "annotations": dict(annotations),
            "ownerReferences": [reference.to_wire()],
        },
        "spec": spec,
    }


def _mount(use: Use) -> Json:
    source = use.artifact.spec.source
    path = source.path if isinstance(source, ClaimSource) else ""
    mount: Json = {"name": use.name, "mountPath": use.mount_path, "readOnly": True}
    return mount | present({"subPath": path})


def _prefer(spec: Json, uses: Sequence[Use], hostnames: Mapping[str, Sequence[str]]) -> None:
    """Add one term for each digest that somebody holds, beside whatever the template prefers."""
    digests = dict.fromkeys(use.digest for use in uses if use.digest)
    terms = [term(hosts) for digest in digests if (hosts := hostnames.get(digest))]
    if terms:
        affinity = spec["affinity"] = spec.get("affinity") or {}
        of_nodes = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
        of_nodes[_PREFERRED] = [*(of_nodes.get(_PREFERRED) or ()), *terms]
