"""The roles and bindings that every cluster starts with, as far as clients and people lean on them.

What anonymous and authenticated users may look at, and the roles for people: cluster-admin, admin,
edit, view, of which the last three gather what other ClusterRoles offer them by label. Roles of
controllers that are not emulated are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emulator.contracts import Json

_LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATION = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_API = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
_ISSUER = ("/.well-known/openid-configuration", "/openid/v1/jwks")

_VIEWED: dict[str, tuple[str, ...]] = {
    "": (
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    "apps": (
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ),
    "batch": ("cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    "discovery.k8s.io": ("endpointslices",),
    "networking.k8s.io": ("ingresses", "networkpolicies"),
    "policy": ("poddisruptionbudgets", "poddisruptionbudgets/status"),
}
_EDITED: dict[str, tuple[str, ...]] = {
    "": (
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/eviction",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "replicationcontrollers",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ),
    "apps": (
        "daemonsets",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ),
    "batch": ("cronjobs", "jobs"),
    "networking.k8s.io": ("ingresses", "networkpolicies"),
    "policy": ("poddisruptionbudgets",),
}


def objects() -> Iterator[Json]:
    """Yield the ClusterRoles and ClusterRoleBindings of a new cluster."""
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    yield _role("cluster-admin", everything)
    yield _binding("cluster-admin", "system:masters")
    yield _role("system:public-info-viewer", [_urls(_HEALTH)])
    yield _binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated")
    yield _role("system:discovery", [_urls(sorted({*_API, *_HEALTH}))])
    yield _binding("system:discovery", "system:authenticated")
    yield _role(
        "system:basic-user",
        [
            _rule(
                "authorization.k8s.io",
                ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
                ("create",),
            ),
            _rule("authentication.k8s.io", ("selfsubjectreviews",), ("create",)),
        ],
    )
    yield _binding("system:basic-user", "system:authenticated")
    issuer = [url for path in _ISSUER for url in (path, f"{path}/")]
    yield _role("system:service-account-issuer-discovery", [_urls(issuer)])
    yield _binding("system:service-account-issuer-discovery", "system:serviceaccounts")
    yield _role(
        "system:auth-delegator",
        [
            _rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
            _rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
        ],
    )
    yield _role("system:monitoring", [_urls(("/healthz", "/livez", "/metrics", "/readyz"))])
    yield _binding("system:monitoring", "system:monitoring")
    yield from _people()


def _people() -> Iterator[Json]:
    for name in ("admin", "edit", "view"):
        role = _role(name, None)
        offered = {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": offered}]}
        if name != "admin":  # admin gathers edit, and edit gathers view
            above = {"edit": "admin", "view": "edit"}[name]
            role["metadata"]["labels"] |= {
                f"rbac.authorization.k8s.io/aggregate-to-{above}": "true"
            }
        yield role
    access = [
        _rule("authorization.k8s.io", ("localsubjectaccessreviews",), ("create",)),
        _rule("rbac.authorization.k8s.io", ("rolebindings", "roles"), (*_READ, *_WRITE)),
    ]
    edited = [_rule(group, resources, _WRITE) for group, resources in _EDITED.items()]
    edited += [
        _rule("", ("secrets",), _READ),
        _rule("", ("serviceaccounts",), ("impersonate",)),
        _rule("", ("serviceaccounts/token",), ("create",)),
    ]
    viewed = [_rule(group, resources, _READ) for group, resources in _VIEWED.items()]
    for name, rules in (("admin", access), ("edit", edited), ("view", viewed)):
        role = _role(f"system:aggregate-to-{name}", rules)
        role["metadata"]["labels"] |= {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}
        yield role


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _urls(paths: Sequence[str]) -> Json:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


def _role(name: str, rules: list[Json] | None) -> Json:
    return {
        "apiVersion": _VERSION,
        "kind": "ClusterRole",
        "metadata": _metadata(name),
        "rules": rules,
    }


def _binding(name: str, *groups: str) -> Json:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
        for group in groups
    ]
    return {
        "apiVersion": _VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(name),
        "roleRef": reference,
        "subjects": subjects,
    }


def _metadata(name: str) -> Json:
    return {"name": name, "labels": dict(_LABEL), "annotations": dict(_ANNOTATION)}
