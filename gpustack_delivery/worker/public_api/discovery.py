"""What the public API says of itself: groups, versions and resources, for whoever may ask.

Rules: VW-RES-01, NS-OWN-09.
"""

from __future__ import annotations

from typing import Final

from gpustack_delivery.decisions.progress import KIND
from gpustack_delivery.vocabulary.resources import GROUP, Json
from gpustack_delivery.worker.public_api.targets import PROGRESS, SERVED, VERSION, Served

_CATEGORY: Final = "gpustack"


def find(path: str) -> Json | None:
    """Return the document at a path, or None."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["apis"]:
            groups = [_group(group) for group in SERVED]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in SERVED:
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group)
        case ["apis", group, version] if group in SERVED and version == VERSION:
            return _resources(group)
    return None


def _group(group: str) -> Json:
    version = {"groupVersion": f"{group}/{VERSION}", "version": VERSION}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _resources(group: str) -> Json:
    resources = [_resource(served) for served in SERVED[group]]
    if group == GROUP:
        resources.append(
            {
                "name": f"modelartifacts/{PROGRESS}",
                "singularName": "",
                "namespaced": True,
                "kind": KIND,
                "verbs": ["get"],
            }
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{VERSION}",
        "resources": resources,
    }


def _resource(served: Served) -> Json:
    resource = served.resource
    found: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(served.verbs),
        "categories": [_CATEGORY],
    }
    return found | ({"shortNames": [served.short_name]} if served.short_name else {})
