"""NodeRestriction: a kubelet writes only what belongs to its own node.

The Node authorizer lets a node identity write Nodes, Pods, CSINodes, Leases and token requests;
this step looks at which one. Everyone else passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from emulator.access.node import LEASES, node_name
from emulator.admission.matching import Reader
from emulator.contracts import Attributes, Json
from emulator.errors import ApiError, forbidden

_RESTRICTED_PREFIX = "node-restriction.kubernetes.io/"
_KUBELET_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELET_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")


class NodeRestriction:
    """The `contracts.Admission` of node identities. Knows no objects before `bind`."""

    def __init__(self) -> None:
        """Start unbound."""
        self._reader: Reader | None = None

    def bind(self, reader: Reader) -> None:
        """Say where Pods are read."""
        self._reader = reader

    def mutate(self, attributes: Attributes, warn: Callable[[str], None]) -> Json | None:
        """Change nothing, but refuse as early as the real plugin does. Raises ApiError 403."""
        node = node_name(attributes.caller)
        if not node:
            return None
        judge = {
            ("", "nodes"): self._node,
            ("", "pods"): self._pod,
            ("", "serviceaccounts"): self._token,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("coordination.k8s.io", "leases"): _lease,
        }.get(attributes.target.resource.collection)
        reason = judge(node, attributes) if judge else ""
        if reason:
            raise _refused(attributes, reason)
        return None

    def validate(self, attributes: Attributes, warn: Callable[[str], None]) -> None:
        """Judge a deletion, which `mutate` does not see. Raises ApiError 403."""
        if attributes.operation == "DELETE":
            self.mutate(attributes, warn)

    def _node(self, node: str, attributes: Attributes) -> str:
        if _name(attributes) != node:
            return f'node "{node}" is not allowed to modify node "{_name(attributes)}"'
        old, new = attributes.old_object, attributes.object
        if attributes.operation != "UPDATE" or old is None or new is None:
            return ""
        forbidden_labels = sorted(filter(_is_restricted, _changed_labels(old, new)))
        if forbidden_labels:
            return f"is not allowed to modify labels: {', '.join(forbidden_labels)}"
        if (old.get("spec") or {}).get("taints") != (new.get("spec") or {}).get("taints"):
            return f'node "{node}" is not allowed to modify taints'
        return ""

    def _pod(self, node: str, attributes: Attributes) -> str:
        pod = attributes.old_object or attributes.object or {}
        bound = (pod.get("spec") or {}).get("nodeName") == node
        who, own = f'node "{node}"', "pods with spec.nodeName set to itself"
        if attributes.operation == "DELETE" and not bound:
            return f"{who} can only delete {own}"
        if attributes.target.subresource == "status" and not bound:
            return f"{who} can only update pod status for {own}"
        if attributes.operation == "CREATE" and not attributes.target.subresource:
            annotations = pod["metadata"].get("annotations") or {}
            if "kubernetes.io/config.mirror" not in annotations:
                return f"pod has no mirror annotation, {who} can only create mirror pods"
        return ""

    def _token(self, node: str, attributes: Attributes) -> str:
        if attributes.target.subresource != "token":
            return ""
        spec = (attributes.object or {}).get("spec") or {}
        reference = spec.get("boundObjectRef") or {}
        if reference.get("kind") != "Pod" or not reference.get("name"):
            return "node requested token not bound to a pod"
        if not reference.get("uid"):
            return "node requested token with a pod binding without a uid"
        namespace = attributes.target.namespace
        pod = self._reader.get(("", "pods"), namespace, reference["name"]) if self._reader else None
        if pod is None or pod["metadata"]["uid"] != reference["uid"]:
            return f'node requested token bound to a pod "{reference["name"]}" that is not there'
        if pod["spec"].get("nodeName") != node:
            return "node requested token bound to a pod scheduled on a different node"
        return self._audience_fault(node, pod, spec.get("audiences") or ())

    def _audience_fault(self, node: str, pod: Json, audiences: Iterable[str]) -> str:
        allowed = {*_SERVER_AUDIENCES, *_pod_audiences(pod, self._drivers(pod))}
        for audience in audiences:
            if audience not in allowed:
                return (
                    f'audience "{audience}" not found in pod spec volume, '
                    f"system:node:{node} is not authorized to request tokens for this audience"
                )
        return ""

    def _drivers(self, pod: Json) -> Iterable[Json]:
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("csi") or {}).get("driver")
            driver = (
                self._reader.get(("storage.k8s.io", "csidrivers"), "", name)
                if name and self._reader
                else None
            )
            if driver is not None:
                yield driver


_SERVER_AUDIENCES = ("", "https://kubernetes.default.svc.cluster.local")


def _pod_audiences(pod: Json, drivers: Iterable[Json]) -> Iterable[str]:
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield (source.get("serviceAccountToken") or {}).get("audience", "")
    for driver in drivers:
        for request in (driver.get("spec") or {}).get("tokenRequests") or ():
            yield request.get("audience", "")


def _refused(attributes: Attributes, reason: str) -> ApiError:
    return forbidden(attributes.target.resource, _name(attributes), reason)


def _name(attributes: Attributes) -> str:
    content = attributes.object or attributes.old_object or {}
    return attributes.target.name or str((content.get("metadata") or {}).get("name", ""))


def _changed_labels(old: Json, new: Json) -> set[str]:
    before, after = old["metadata"].get("labels") or {}, new["metadata"].get("labels") or {}
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _is_restricted(label: str) -> bool:
    if label.startswith(_RESTRICTED_PREFIX):
        return True
    domain, slash, _ = label.partition("/")
    if not slash or label in _KUBELET_LABELS or label.startswith(_KUBELET_PREFIXES):
        return False
    return domain.endswith((".kubernetes.io", ".k8s.io")) or domain in {"kubernetes.io", "k8s.io"}


def _csi_node(node: str, attributes: Attributes) -> str:
    if _name(attributes) == node:
        return ""
    return "can only access CSINode with the same name as the requesting node"


def _lease(node: str, attributes: Attributes) -> str:
    if attributes.target.namespace != LEASES:
        return f'can only access leases in the "{LEASES}" system namespace'
    if _name(attributes) == node:
        return ""
    return "can only access node lease with the same name as the requesting node"
