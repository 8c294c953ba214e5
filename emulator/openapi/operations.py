"""Paths: which operations a resource has, with the parameters that clients look for.

kubectl decides from these whether it may leave field validation and dry runs to the server.
"""

from __future__ import annotations

from emulator.contracts import Json, Resource
from emulator.openapi.schemas import META, reference, schema_name

_JSON = "application/json"
_YAML = "application/yaml"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC = "application/strategic-merge-patch+json"


def _parameter(name: str, kind: str, description: str, place: str = "query") -> Json:
    parameter: Json = {"name": name, "in": place, "description": description}
    if place == "path":
        parameter["required"] = True
    return parameter | {"schema": {"type": kind, "uniqueItems": True}}


_WRITE = [
    _parameter(
        "dryRun", "string", "With All the request goes through every stage but is not stored."
    ),
    _parameter("fieldManager", "string", "The name under which written fields are owned."),
    _parameter(
        "fieldValidation", "string", "What unknown and duplicate fields do: Ignore, Warn or Strict."
    ),
]
_FORCE = _parameter("force", "boolean", "An apply takes over fields that other managers own.")
_READ = [
    _parameter("resourceVersion", "string", "The version that the answer may not be older than.")
]
_DELETE = [
    _WRITE[0],
    _parameter("gracePeriodSeconds", "integer", "Seconds before the object is deleted."),
    _parameter(
        "propagationPolicy",
        "string",
        "What happens to dependents: Orphan, Background or Foreground.",
    ),
]
_LIST = [
    _parameter("allowWatchBookmarks", "boolean", "The watch may send bookmarks."),
    _parameter("continue", "string", "Where the previous page ended."),
    _parameter("fieldSelector", "string", "Restricts the objects by their fields."),
    _parameter("labelSelector", "string", "Restricts the objects by their labels."),
    _parameter("limit", "integer", "The most objects of one page."),
    *_READ,
    _parameter("resourceVersionMatch", "string", "How resourceVersion is applied to a list."),
    _parameter("sendInitialEvents", "boolean", "The watch starts with every object there is."),
    _parameter("timeoutSeconds", "integer", "How long the call may last."),
    _parameter("watch", "boolean", "Watch for changes instead of listing."),
]
_NAME = _parameter("name", "string", "The name of the object.", "path")
_NAMESPACE = _parameter("namespace", "string", "The namespace of the object.", "path")
_PRETTY = _parameter("pretty", "string", "Indent the answer.")


def paths(resource: Resource) -> dict[str, Json]:
    """Return the path items of a resource and of its status and scale."""
    root = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    place = [_NAMESPACE] if resource.namespaced else []
    within = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    collection = f"{within}/{resource.plural}"
    found = {
        collection: _item(
            resource, {"get": "list", "post": "create", "delete": "deletecollection"}, place
        ),
        f"{collection}/{{name}}": _item(
            resource,
            {"get": "get", "put": "update", "delete": "delete", "patch": "patch"},
            [_NAME, *place],
        ),
    }
    if resource.namespaced:
        found[f"{root}/{resource.plural}"] = _item(resource, {"get": "list"}, [])
    for subresource in sorted(resource.subresources & {"status", "scale"}):
        found[f"{collection}/{{name}}/{subresource}"] = _item(
            resource,
            {"get": "get", "put": "update", "patch": "patch"},
            [_NAME, *place],
            subresource,
        )
    return {path: item for path, item in found.items() if item.keys() - {"parameters"}}


def _item(
    resource: Resource, methods: dict[str, str], parameters: list[Json], part: str = ""
) -> Json:
    item: Json = {
        method: _operation(resource, method, verb, part)
        for method, verb in methods.items()
        if part or verb in resource.verbs
    }
    return {**item, "parameters": [*parameters, _PRETTY]}


def _operation(resource: Resource, method: str, verb: str, part: str) -> Json:
    name = schema_name(resource)
    answer = f"{name}List" if verb == "list" else f"{META}Status" if "delete" in verb else name
    if part == "scale":
        answer = "io.k8s.api.autoscaling.v1.Scale"
    parameters = {
        "create": _WRITE,
        "update": _WRITE,
        "patch": [*_WRITE, _FORCE],
        "get": _READ,
        "list": _LIST,
        "delete": _DELETE,
        "deletecollection": _LIST,
    }[verb]
    operation: Json = {
        "description": f"{verb} {part + ' of ' if part else ''}{resource.kind}",
        "operationId": f"{verb}{resource.kind}{part.capitalize()}",
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": {_JSON: {"schema": reference(answer)}}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": {"create": "post", "update": "put"}.get(verb, verb),
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "kind": resource.kind,
            "version": resource.version,
        },
    }
    body = {"post": (_JSON, _YAML), "put": (_JSON, _YAML), "patch": _patch_types(resource)}.get(
        method
    )
    if body:
        wanted = reference(f"{META}Patch") if method == "patch" else reference(answer)
        content = {media_type: {"schema": wanted} for media_type in body}
        operation["requestBody"] = {"content": content, "required": True}
    return operation


def _patch_types(resource: Resource) -> tuple[str, ...]:
    return _PATCHES if resource.custom else (*_PATCHES, _STRATEGIC)
