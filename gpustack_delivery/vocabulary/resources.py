"""The Kubernetes resources that the worker and the node plugin speak of.

A `Resource` is all that is needed to address one: its URL parts and whether it lives in a
namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

Json: TypeAlias = dict[str, Any]
"""A decoded JSON object, in the wire's own camelCase."""

GROUP: Final = "worker.gpustack.ai"
STORED_VERSION: Final = "v1alpha1"
DRIVER_NAME: Final = "model.csi.gpustack.ai"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of the Kubernetes API; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = ["/apis/" + self.group if self.group else "/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _ours(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(GROUP, STORED_VERSION, plural, kind, namespaced)


MODEL_ARTIFACTS: Final = _ours("modelartifacts", "ModelArtifact", namespaced=True)
NODE_MODEL_STORES: Final = _ours("nodemodelstores", "NodeModelStore", namespaced=False)
MODEL_STORES: Final = _ours("modelstores", "ModelStore", namespaced=False)
MODEL_STORE_BINDINGS: Final = _ours("modelstorebindings", "ModelStoreBinding", namespaced=True)
MODEL_PREFETCHES: Final = _ours("modelprefetches", "ModelPrefetch", namespaced=True)

NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
SELF_SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
