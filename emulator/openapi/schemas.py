"""Schemas: built-in kinds from the table of their fields, custom resources from their CRD.

Field descriptions of built-in kinds are not part of the table, so `kubectl explain pod` shows
structure and types without prose; a CRD's own descriptions are all there. Merge keys come from the
same table as the patches use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emulator.contracts import Json, Resource
from emulator.kinds import typed
from emulator.patches import builtin

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
REFERENCE = "#/components/schemas/"
_META_CLASSES = frozenset(
    {
        "V1ObjectMeta",
        "V1OwnerReference",
        "V1ManagedFieldsEntry",
        "V1LabelSelector",
        "V1LabelSelectorRequirement",
    }
)
_PLACES = {
    "V1Container": "containers",
    "V1EphemeralContainer": "ephemeralContainers",
    "V1NodeStatus": "status",
    "V1ServiceSpec": "spec",
}
_STANDARD: Json = {
    "apiVersion": {
        "type": "string",
        "description": "The version of the schema that the object is written in.",
    },
    "kind": {"type": "string", "description": "The kind of the object, in CamelCase."},
}
_SIMPLE: dict[str, Json] = {
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "float": {"type": "number", "format": "double"},
    "int": {"type": "integer"},
    "intstr": {"x-kubernetes-int-or-string": True},
    "micro": {"type": "string", "format": "date-time"},
    "quantity": {"x-kubernetes-int-or-string": True},
    "str": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
}


def schema_name(resource: Resource) -> str:
    """Return the name under which an object's schema stands, as clients know it."""
    if resource.custom:
        return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    group = (resource.group or "core").partition(".")[0]
    return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"


def object_schemas(resource: Resource, crd_schema: Json | None) -> dict[str, Json]:
    """Return the schemas of an object and its list, and everything they refer to."""
    name = schema_name(resource)
    class_name = typed.class_of(resource.api_version, resource.kind)
    if crd_schema is not None:
        found = {name: _custom(crd_schema), **_closure("V1ObjectMeta")}
    elif class_name is not None:
        found = _closure(class_name)
        found[name] = found.pop(_class_schema_name(class_name))
    else:
        found = {name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    found[name] = {**found[name], "x-kubernetes-group-version-kind": [kind]}
    found[f"{name}List"] = {
        "type": "object",
        "description": f"{resource.kind}List is a list of {resource.kind}",
        "required": ["items"],
        "properties": {
            **_STANDARD,
            "items": {"type": "array", "items": reference(name)},
            "metadata": {"allOf": [reference(f"{META}ListMeta")]},
        },
        "x-kubernetes-group-version-kind": [{**kind, "kind": f"{resource.kind}List"}],
    }
    return {**found, **_COMMON}


def reference(name: str) -> Json:
    """Return a reference to a schema of the same document."""
    return {"$ref": REFERENCE + name}


def _custom(crd_schema: Json) -> Json:
    schema: Json = _published(crd_schema)
    properties = {**_STANDARD, "metadata": {"allOf": [reference(f"{META}ObjectMeta")]}}
    properties |= {
        name: content
        for name, content in (schema.get("properties") or {}).items()
        if name not in properties
    }
    schema["properties"] = properties
    schema.setdefault("type", "object")
    return schema


def _published(schema: Any) -> Any:
    """Return a copy in which a value that may be a number or a string says so in plain OpenAPI."""
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: _published(value) for key, value in schema.items()}
    if copied.get("x-kubernetes-int-or-string") is True:
        copied.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return copied


def _class_schema_name(class_name: str) -> str:
    if class_name in _META_CLASSES:
        return META + class_name.removeprefix("V1")
    return f"io.k8s.api.v1.{class_name.removeprefix('V1')}"


def _closure(class_name: str) -> dict[str, Json]:
    """Return the schema of a class and of every class it reaches."""
    found: dict[str, Json] = {}
    waiting = [class_name]
    while waiting:
        current = waiting.pop()
        name = _class_schema_name(current)
        if name not in found:
            found[name] = _class_schema(current)
            waiting.extend(_reached(current))
    return found


def _reached(class_name: str) -> Iterator[str]:
    for kind in typed.fields(class_name).values():
        bare = kind.rpartition(":")[2]
        if bare not in _SIMPLE:
            yield bare


def _class_schema(class_name: str) -> Json:
    required = sorted(typed.required(class_name))
    schema: Json = {"type": "object"}
    if required:
        schema["required"] = required
    schema["properties"] = {
        name: _field_schema(name, kind, class_name)
        for name, kind in typed.fields(class_name).items()
    }
    return schema


def _field_schema(name: str, kind: str, class_name: str) -> Json:
    form, _, rest = kind.partition(":")
    if form == "list":
        return {
            "type": "array",
            "items": _field_schema("", rest, class_name),
            **_merging(name, class_name),
        }
    if form == "map":
        return {"type": "object", "additionalProperties": _field_schema("", rest, class_name)}
    if form in _SIMPLE:
        return dict(_SIMPLE[form])
    # A reference stands in allOf beside other words; alone inside lists and maps.
    target = reference(_class_schema_name(form))
    return {"allOf": [target]} if name else target


def _merging(name: str, class_name: str) -> Json:
    keys = builtin.list_keys(name, _PLACES.get(class_name, ""))
    if keys:
        return {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(keys),
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": keys[0],
        }
    if name in builtin.STRATEGIC_SETS:
        return {"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}
    return {"x-kubernetes-list-type": "atomic"}


_COMMON: dict[str, Json] = {
    f"{META}DeleteOptions": {
        "type": "object",
        "properties": {
            **_STANDARD,
            "dryRun": {"type": "array", "items": {"type": "string"}},
            "gracePeriodSeconds": {"type": "integer", "format": "int64"},
            "orphanDependents": {"type": "boolean"},
            "preconditions": {
                "type": "object",
                "properties": {"resourceVersion": {"type": "string"}, "uid": {"type": "string"}},
            },
            "propagationPolicy": {"type": "string"},
        },
    },
    f"{META}ListMeta": {
        "type": "object",
        "properties": {
            "continue": {"type": "string"},
            "remainingItemCount": {"type": "integer", "format": "int64"},
            "resourceVersion": {"type": "string"},
            "selfLink": {"type": "string"},
        },
    },
    f"{META}Patch": {"type": "object"},
    f"{META}Status": {
        "type": "object",
        "properties": {
            **_STANDARD,
            "code": {"type": "integer", "format": "int32"},
            "details": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "message": {"type": "string"},
            "metadata": {"allOf": [reference(f"{META}ListMeta")]},
            "reason": {"type": "string"},
            "status": {"type": "string"},
        },
    },
}
