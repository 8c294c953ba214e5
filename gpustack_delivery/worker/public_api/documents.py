"""OpenAPI of the public versions, made from what the API server publishes of the stored one.

The schemas stand in the CustomResourceDefinitions and nowhere else: a document of `v1` is the
stored version's with its names changed, cut down to the kinds and verbs that are served here.
Settings borrow the paths of a stored kind, whose parameters mean the same there, and have a schema
of their own, like `progress`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpustack_delivery.decisions.progress import KIND as PROGRESS_KIND
from gpustack_delivery.vocabulary.resources import GROUP, STORED_VERSION, Json, Resource
from gpustack_delivery.worker.public_api.targets import (
    PROGRESS,
    SERVED,
    SETTINGS,
    VERSION,
    Served,
)

_REFERENCE: Final = "#/components/schemas/"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_GVK: Final = "x-kubernetes-group-version-kind"
_ACTION: Final = "x-kubernetes-action"
_VERBS: Final = {"post": "create", "put": "update"}
_JSON: Final = "application/json"
_BODIES: Final = frozenset(
    {
        _JSON,
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    }
)
_SETTING_BODIES: Final = _BODIES - {"application/json-patch+json"}
# A kind whose paths are those of any object in a namespace.
_PATTERN: Final = next(one for one in SERVED[GROUP] if one.resource.plural == "modelartifacts")


def documents(stored: Mapping[str, Any]) -> dict[str, Json]:
    """Return the OpenAPI v3 documents by their key in the index.

    Args:
        stored: the API server's document of the stored version.
    """
    return {
        f"apis/{GROUP}/{VERSION}": _document(stored, SERVED[GROUP], _BODIES),
        f"apis/{SETTINGS.group}/{VERSION}": _document(
            stored, SERVED[SETTINGS.group], _SETTING_BODIES
        ),
    }


def _document(stored: Mapping[str, Any], kinds: tuple[Served, ...], bodies: frozenset[str]) -> Json:
    schemas: Json = dict((stored.get("components") or {}).get("schemas") or {})
    paths: Json = {}
    for served in kinds:
        before = _PATTERN.resource if served.resource == SETTINGS else served.resource
        rename = _renaming(before, served.resource)
        for path, item in (stored.get("paths") or {}).items():
            if kept := _path_item(path, item, before, served, bodies):
                paths[_public_path(path, before, served.resource)] = rename(kept)
        if before == served.resource:
            found = (_schema_name(before, STORED_VERSION, end) for end in ("", "List"))
            for name in found:
                if name in schemas:
                    schemas[rename(name)] = rename(schemas[name])
    if kinds == SERVED[GROUP]:
        paths |= _progress_path(paths)
    schemas |= _own_schemas()
    return {
        "openapi": "3.0.0",
        "info": {"title": "gpustack-delivery", "version": VERSION},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(used(paths, schemas, _REFERENCE).items()))},
    }


def used(root: Any, schemas: Mapping[str, Any], prefix: str) -> Json:
    """Return the schemas that something refers to, directly or through others."""
    found: Json = {}
    due = list(_references(root, prefix))
    while due:
        name = due.pop()
        if name in schemas and name not in found:
            found[name] = schemas[name]
            due.extend(_references(schemas[name], prefix))
    return found


def _references(value: Any, prefix: str) -> Iterator[str]:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(prefix)
        for held in value.values():
            yield from _references(held, prefix)
    elif isinstance(value, list):
        for held in value:
            yield from _references(held, prefix)


def _path_item(
    path: str, item: Mapping[str, Any], before: Resource, served: Served, bodies: frozenset[str]
) -> Json:
    """Return what is served of a stored path: nothing, or its methods with a verb we have."""
    kept: Json = {}
    if path in _paths_of(before):
        for method, operation in item.items():
            if not isinstance(operation, dict):
                continue
            action = operation.get(_ACTION, "")
            if _VERBS.get(action, action) in served.verbs:
                kept[method] = _spoken(operation, bodies)
    return kept | {"parameters": item["parameters"]} if kept and "parameters" in item else kept


def _spoken(operation: Json, bodies: frozenset[str]) -> Json:
    """Return an operation with the media types that are read and written here alone."""
    spoken = copy.deepcopy(operation)
    if body := spoken.get("requestBody"):
        body["content"] = {media: at for media, at in body["content"].items() if media in bodies}
    for response in spoken.get("responses", {}).values():
        if content := response.get("content"):
            response["content"] = {media: at for media, at in content.items() if media == _JSON}
    return spoken


def _paths_of(resource: Resource) -> frozenset[str]:
    root = f"/apis/{GROUP}/{STORED_VERSION}"
    within = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    plural = resource.plural
    return frozenset({f"{root}/{plural}", f"{within}/{plural}", f"{within}/{plural}/{{name}}"})


def _public_path(path: str, before: Resource, after: Resource) -> str:
    head, _, tail = path.removeprefix(f"/apis/{GROUP}/{STORED_VERSION}").partition(before.plural)
    return f"/apis/{after.group}/{VERSION}{head}{after.plural}{tail}"


def _schema_name(resource: Resource, version: str, end: str = "") -> str:
    group = ".".join(reversed(resource.group.split(".")))
    return f"{group}.{version}.{resource.kind}{end}"


def _renaming(before: Resource, after: Resource) -> Callable[[Any], Any]:
    """Return what puts one kind's public name in place of its stored one, in names and schemas."""
    names = {
        _schema_name(before, STORED_VERSION, end): _schema_name(after, VERSION, end)
        for end in ("", "List")
    }

    def rename(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: _identity(held) if key == _GVK else rename(held) for key, held in value.items()
            }
        if isinstance(value, list):
            return [rename(held) for held in value]
        if isinstance(value, str):
            name = value.removeprefix(_REFERENCE)
            if name in names:
                return value.replace(name, names[name])
            return value.replace(before.kind, after.kind) if before.kind != after.kind else value
        return value

    def _identity(value: Any) -> Any:
        if isinstance(value, list):
            return [_identity(held) for held in value]
        kind = str(value.get("kind", "")).replace(before.kind, after.kind)
        return {"group": after.group, "version": VERSION, "kind": kind}

    return rename


def _progress_path(paths: Mapping[str, Any]) -> Json:
    """Return the path of `progress`, with the parameters of the artifact that it is of."""
    artifact = f"/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/modelartifacts/{{name}}"
    if artifact not in paths:
        return {}
    kind = Resource(GROUP, VERSION, PROGRESS, PROGRESS_KIND)
    content = {_JSON: {"schema": {"$ref": _REFERENCE + _schema_name(kind, VERSION)}}}
    operation = {
        "description": "read how far an artifact's delivery is",
        "operationId": f"read{PROGRESS_KIND}",
        "responses": {"200": {"description": "OK", "content": content}},
        _ACTION: "get",
        _GVK: {"group": GROUP, "version": VERSION, "kind": PROGRESS_KIND},
    }
    item = {"get": operation, "parameters": paths[artifact].get("parameters", [])}
    return {f"{artifact}/{PROGRESS}": item}


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str) -> Json:
    return {"type": "integer", "format": "int64", "description": description}


def _object(resource: Resource, description: str, properties: Json) -> Json:
    standard: Json = {
        "apiVersion": _text("The version of the schema that the object is written in."),
        "kind": _text("The kind of the object, in CamelCase."),
        "metadata": {"allOf": [{"$ref": f"{_REFERENCE}{_META}ObjectMeta"}]},
    }
    identity = {"group": resource.group, "version": VERSION, "kind": resource.kind}
    return {
        "type": "object",
        "description": description,
        "properties": standard | properties,
        _GVK: [identity],
    }


def _own_schemas() -> Json:
    """Return the schemas of what is stored under no kind of its own."""
    setting = _object(
        SETTINGS,
        "Setting is one of the operator's Settings; all of them always exist.",
        {
            "spec": {
                "type": "object",
                "description": "What somebody stored.",
                "properties": {"value": _text("Absent for the seed or the default.")},
            },
            "status": {
                "type": "object",
                "description": "What is in force.",
                "properties": {"value": _text("The value, the seed or the default.")},
            },
        },
    )
    name = _schema_name(SETTINGS, VERSION)
    listed = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"{_REFERENCE}{_META}ListMeta"}]},
            "items": {"type": "array", "items": {"$ref": _REFERENCE + name}},
        },
        _GVK: [{"group": SETTINGS.group, "version": VERSION, "kind": f"{SETTINGS.kind}List"}],
    }
    progress = Resource(GROUP, VERSION, PROGRESS, PROGRESS_KIND)
    return {
        name: setting,
        f"{name}List": listed,
        _schema_name(progress, VERSION): _object(
            progress, f"{PROGRESS_KIND} counts an artifact's delivery over nodes.", _COUNTS
        ),
    }


_COUNTS: Final[Json] = {
    "timestamp": _text("When it was counted."),
    "manifestDigest": _text("The digest that is counted; empty when there is none."),
    "sizeBytes": _number("The size of the whole content, 0 while unknown."),
    "ready": _number("Nodes that hold the files whole."),
    "downloading": _number("Nodes that are downloading them."),
    "failed": _number("Nodes whose last attempt failed."),
    "downloadingBytes": _number("What the downloading nodes have received together."),
    "downloadingPercent": _number("How far they are on average; absent when none downloads."),
    "live": _number("How many of them were asked just now."),
    "failureReasons": {
        "type": "array",
        "description": "How many nodes failed for each reason.",
        "items": {
            "type": "object",
            "properties": {"reason": _text("The reason."), "count": _number("The nodes.")},
        },
    },
    "reason": _text("Why there is nothing to count; absent when there is."),
}
