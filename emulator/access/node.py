"""What node identities may do: the Node authorizer, in front of RBAC.

A kubelet is `system:node:NAME` in the group system:nodes. It may read what the Pods on its node
refer to, write its own Node, CSINode and Lease, and little else. The graph of a real API server is
computed here when it is asked for, from the Pods that are bound to the node. What a node may write
in detail is admission's part (`restriction`).
"""

from __future__ import annotations

from collections.abc import Iterator

from emulator.access.accounts import Objects
from emulator.access.rbac import Rbac, covers
from emulator.contracts import Access, Caller, Decision, Json

PREFIX = "system:node:"
NODES_GROUP = "system:nodes"
LEASES = "kube-node-lease"
_ALLOW = Decision(allowed=True)
_WRITES = ("create", "update", "patch")
_OWN_VERBS = ("get", "create", "update", "patch", "delete")


def _rule(group: str, resources: str, *verbs: str) -> Json:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


_RULES = (
    _rule("authentication.k8s.io", "tokenreviews", "create"),
    _rule("authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews", "create"),
    _rule("", "services", "get", "list", "watch"),
    _rule("", "events", *_WRITES),
    _rule("certificates.k8s.io", "certificatesigningrequests", "create", "get", "list", "watch"),
    _rule("node.k8s.io", "runtimeclasses", "get", "list", "watch"),
    _rule("storage.k8s.io", "csidrivers", "get", "list", "watch"),
)


class NodeAuthorizer:
    """Decides for node identities, and leaves everyone else, and every no, to RBAC."""

    def __init__(self, rbac: Rbac) -> None:
        """`rbac` has the last word."""
        self._rbac = rbac
        self._objects: Objects | None = None

    def bind(self, objects: Objects) -> None:
        """Say where Pods are read."""
        self._objects = objects

    def decide(self, access: Access) -> Decision:
        """Answer one question; never raises."""
        node = node_name(access.caller)
        own = self._decide(node, access) if node else Decision(allowed=False)
        if own.allowed:
            return own
        general = self._rbac.decide(access)
        if general.allowed:
            return general
        reasons = [reason for reason in (own.reason, general.reason) if reason]
        return Decision(allowed=False, reason=", ".join(reasons))

    def _decide(self, node: str, access: Access) -> Decision:
        judge = {
            ("", "secrets"): self._reads,
            ("", "configmaps"): self._reads,
            ("", "persistentvolumeclaims"): self._gets,
            ("", "serviceaccounts"): self._tokens,
            ("coordination.k8s.io", "leases"): _lease,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("", "nodes"): _node,
            ("", "pods"): self._pod,
        }.get((access.group, access.plural))
        if judge is not None and not access.path:
            return judge(node, access)
        return Decision(allowed=any(covers(rule, access) for rule in _RULES))

    def _reads(self, node: str, access: Access) -> Decision:
        if access.verb not in {"get", "list", "watch"}:
            return _no("can only read resources of this type")
        if access.subresource:
            return _no("cannot read subresource")
        if not access.namespace:
            return _no("can only read namespaced object of this type")
        return self._related(node, access)

    def _gets(self, node: str, access: Access) -> Decision:
        if access.verb != "get":
            return _no("can only get individual resources of this type")
        return _no("cannot get subresource") if access.subresource else self._related(node, access)

    def _tokens(self, node: str, access: Access) -> Decision:
        if access.verb != "create" or access.subresource != "token":
            return _no("can only create tokens for individual service accounts")
        return self._related(node, access)

    def _related(self, node: str, access: Access) -> Decision:
        if not access.name:
            return _no("No Object name found")
        wanted = (access.plural, access.name)
        if any(wanted in references(pod) for pod in self._pods(node, access.namespace)):
            return _ALLOW
        return _no(f"no relationship found between node '{node}' and this object")

    def _pod(self, node: str, access: Access) -> Decision:
        if access.subresource:
            allowed = {"status": ("update", "patch"), "eviction": ("create",)}
            return Decision(allowed=access.verb in allowed.get(access.subresource, ()))
        if access.verb in {"list", "watch"}:
            if f"spec.nodeName={node}" in access.field_selector.split(","):
                return _ALLOW
            return _no("can only list/watch pods with spec.nodeName field selector")
        if access.verb == "get":
            names = {pod["metadata"]["name"] for pod in self._pods(node, access.namespace)}
            if access.name in names:
                return _ALLOW
            return _no(f"no relationship found between node '{node}' and this object")
        return Decision(allowed=access.verb in {"create", "delete"})

    def _pods(self, node: str, namespace: str) -> Iterator[Json]:
        for pod in self._objects.all(("", "pods"), namespace) if self._objects else ():
            if pod["spec"].get("nodeName") == node:
                yield pod


def node_name(caller: Caller) -> str:
    """Return the node that a caller is the kubelet of, or ""."""
    if NODES_GROUP in caller.groups and caller.name.startswith(PREFIX):
        return caller.name.removeprefix(PREFIX)
    return ""


def references(pod: Json) -> Iterator[tuple[str, str]]:
    """Yield what a Pod refers to, as (plural, name): secrets, config maps, claims, its account."""
    spec = pod["spec"]
    yield "serviceaccounts", spec.get("serviceAccountName", "default")
    for secret in spec.get("imagePullSecrets") or ():
        yield "secrets", secret.get("name", "")
    for container in (*(spec.get("initContainers") or ()), *spec.get("containers", ())):
        yield from _environment(container)
    for volume in spec.get("volumes") or ():
        yield from _volume(volume)


def _environment(container: Json) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        yield "secrets", (source.get("secretRef") or {}).get("name", "")
        yield "configmaps", (source.get("configMapRef") or {}).get("name", "")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        yield "secrets", (source.get("secretKeyRef") or {}).get("name", "")
        yield "configmaps", (source.get("configMapKeyRef") or {}).get("name", "")


def _volume(volume: Json) -> Iterator[tuple[str, str]]:
    yield "secrets", (volume.get("secret") or {}).get("secretName", "")
    yield "configmaps", (volume.get("configMap") or {}).get("name", "")
    yield "persistentvolumeclaims", (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
    inline = volume.get("csi") or {}
    yield "secrets", (inline.get("nodePublishSecretRef") or {}).get("name", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield "secrets", (source.get("secret") or {}).get("name", "")
        yield "configmaps", (source.get("configMap") or {}).get("name", "")


def _no(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)


def _lease(node: str, access: Access) -> Decision:
    if access.verb not in _OWN_VERBS:
        return _no("can only get, create, update, patch, or delete a node lease")
    if access.namespace != LEASES:
        return _no(f'can only access leases in the "{LEASES}" system namespace')
    if access.verb != "create" and access.name != node:
        return _no("can only access node lease with the same name as the requesting node")
    return _ALLOW


def _csi_node(node: str, access: Access) -> Decision:
    if access.verb not in _OWN_VERBS:
        return _no("can only get, create, update, patch, or delete a CSINode")
    if access.subresource:
        return _no("cannot authorize CSINode subresources")
    if access.verb != "create" and access.name != node:
        return _no("can only access CSINode with the same name as the requesting node")
    return _ALLOW


def _node(node: str, access: Access) -> Decision:
    if access.subresource:
        writes = access.subresource == "status" and access.verb in {"update", "patch"}
        return Decision(allowed=writes)
    if access.verb in _WRITES:
        return _ALLOW
    if access.verb in {"get", "list", "watch"}:
        selected = f"metadata.name={node}" in access.field_selector.split(",")
        if access.name == node or (not access.name and selected):
            return _ALLOW
        if access.name:
            return _no(f"node '{node}' cannot read '{access.name}', only its own Node object")
        return _no(f"node '{node}' cannot read all nodes, only its own Node object")
    return Decision(allowed=False)
