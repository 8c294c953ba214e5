"""Discovery documents from the resources that are served here: lists, and the aggregated form."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence

from emulator.contracts import Json, Resource

GROUP_ORDER = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
)
_SUBRESOURCES: dict[tuple[str, str], tuple[str, str, str, tuple[str, ...]]] = {
    # (plural, subresource): group, version and kind when they are not the resource's own, verbs
    ("namespaces", "finalize"): ("", "", "", ("update",)),
    ("nodes", "proxy"): (
        "",
        "",
        "NodeProxyOptions",
        ("create", "delete", "get", "patch", "update"),
    ),
    ("pods", "attach"): ("", "", "PodAttachOptions", ("create", "get")),
    ("pods", "binding"): ("", "", "Binding", ("create",)),
    ("pods", "eviction"): ("policy", "v1", "Eviction", ("create",)),
    ("pods", "exec"): ("", "", "PodExecOptions", ("create", "get")),
    ("pods", "log"): ("", "", "", ("get",)),
    ("pods", "portforward"): ("", "", "PodPortForwardOptions", ("create", "get")),
    ("pods", "proxy"): ("", "", "PodProxyOptions", ("create", "delete", "get", "patch", "update")),
    ("serviceaccounts", "token"): ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    ("services", "proxy"): (
        "",
        "",
        "ServiceProxyOptions",
        ("create", "delete", "get", "patch", "update"),
    ),
}
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_READ_WRITE = ("get", "patch", "update")
_ANSWERED = {
    "pods": {"binding", "eviction"},
    "serviceaccounts": {"token"},
}  # subresources without a state
_CUSTOM_VERBS = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
_STORED_AS = {
    # What a kind was first stored as, where that is not what it is served as.
    ("events.k8s.io", "Event"): "/v1/Event",
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (
        "apiextensions.k8s.io/v1beta1/CustomResourceDefinition"
    ),
}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return what versions are ordered by: stable before beta before alpha, newer before older.

    A version that is not of the form v1, v1beta1 comes after all that are, by name.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return (3, 0, 0, version)
    major, stage, minor = found.groups()
    return ({"": 0, "beta": 1, "alpha": 2}[stage or ""], -int(major), -int(minor or 0), "")


def _ordered(resources: Sequence[Resource]) -> list[Resource]:
    return sorted(resources, key=lambda resource: resource.plural)


def _subresources(resource: Resource) -> list[tuple[str, tuple[str, str, str], tuple[str, ...]]]:
    """Return each subresource: its name, the (group, version, kind) it answers with, and its verbs.

    Group and version are empty when they are the resource's own.
    """
    # A custom resource lists status before scale, built-in kinds sort by name.
    answered = set() if resource.group else _ANSWERED.get(resource.plural, set())
    names = sorted(resource.subresources | answered, reverse=resource.custom)
    found = []
    for name in names:
        default = ("autoscaling", "v1", "Scale") if name == "scale" else ("", "", "")
        group, version, kind, verbs = _SUBRESOURCES.get(
            (resource.plural, name), (*default, _READ_WRITE)
        )
        found.append((name, (group, version, kind or resource.kind), verbs))
    return found


def resource_list(resources: Sequence[Resource]) -> list[Json]:
    listed: list[Json] = []
    for resource in _ordered(resources):
        entry: Json = {
            "name": resource.plural,
            "singularName": resource.singular or resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": _verbs(resource),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        if "watch" in resource.verbs:
            entry["storageVersionHash"] = _storage_hash(resource)
        listed.append(entry)
        for name, (group, version, kind), verbs in _subresources(resource):
            part: Json = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if group:
                part |= {"group": group, "version": version}
            listed.append({**part, "kind": kind, "verbs": list(verbs)})
    return listed


def _verbs(resource: Resource) -> list[str]:
    if resource.custom:
        return [verb for verb in _CUSTOM_VERBS if verb in resource.verbs]
    return list(resource.verbs)


def _storage_hash(resource: Resource) -> str:
    own = f"{resource.group}/{resource.version}/{resource.kind}"
    stored = _STORED_AS.get((resource.group, resource.kind), own)
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def discovered_version(version: str, resources: Sequence[Resource]) -> Json:
    """Return one version of a group as aggregated discovery shows it."""
    return {
        "version": version,
        "resources": [_discovered(resource) for resource in _ordered(resources)],
        "freshness": "Current",
    }


def _discovered(resource: Resource) -> Json:
    own = (resource.group, resource.version) if resource.custom else ("", "")
    entry: Json = {
        "resource": resource.plural,
        "responseKind": _response_kind((*own, resource.kind)),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": _verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    parts = [
        {
            "subresource": name,
            "responseKind": _response_kind((group, version, kind) if group else (*own, kind)),
            "verbs": list(verbs),
        }
        for name, (group, version, kind), verbs in _subresources(resource)
    ]
    return {**entry, "subresources": parts} if parts else entry


def _response_kind(kind: tuple[str, str, str]) -> Json:
    return {"group": kind[0], "version": kind[1], "kind": kind[2]}
