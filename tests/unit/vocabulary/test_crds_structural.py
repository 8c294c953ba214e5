"""Every definition is one that an API server establishes: the rules of structural schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.house.charts import ours

_SCALARS: Final = {"string", "integer", "boolean", "number"}
# https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions
_FORBIDDEN: Final = {
    "$ref", "definitions", "dependencies", "deprecated", "discriminator", "id", "patternProperties",
    "readOnly", "writeOnly", "xml", "uniqueItems",
}  # fmt: skip
_FORMATS: Final = {"int32", "int64", "date-time"}
CRDS: Final = [item for key, item in ours({}).items() if key.startswith("CustomResourceDefinition")]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema of a schema with its path."""
    yield path or "the root", schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(below := schema.get(key), dict):
            yield from nodes(below, f"{path}[{key}]")


def faults(path: str, node: dict[str, Any]) -> Iterator[str]:
    """Say what an API server would refuse in one schema."""
    free = node.get("x-kubernetes-int-or-string") or (
        node.get("x-kubernetes-preserve-unknown-fields") and "type" not in node
    )
    if bool(free) == ("type" in node):
        yield f"{path}: a type, or int-or-string, and not both"
    if "properties" in node and "additionalProperties" in node:
        yield f"{path}: properties and additionalProperties exclude each other"
    if found := _FORBIDDEN & node.keys():
        yield f"{path}: {found} is forbidden"
    if node.get("format", "int32") not in _FORMATS:
        yield f"{path}: format {node['format']} is not known"
    if missing := set(node.get("required", ())) - node.get("properties", {}).keys():
        yield f"{path}: requires {missing}, which is not declared"
    if node.get("type") == "array":
        yield from _list_faults(path, node)
    elif {"items", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"} & node.keys():
        yield f"{path}: speaks of a list and is none"
    if "default" in node and node.get("nullable") and node["default"] is None:
        yield f"{path}: a default of null is dropped"


def _list_faults(path: str, node: dict[str, Any]) -> Iterator[str]:
    items = node.get("items")
    if not isinstance(items, dict):
        yield f"{path}: an array has one schema of its items"
        return
    keys = node.get("x-kubernetes-list-map-keys", [])
    if (node.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield f"{path}: list-type map and its keys come together"
    for key in keys:
        held = items.get("properties", {}).get(key, {})
        if held.get("type") not in _SCALARS or held.get("nullable"):
            yield f"{path}: the key {key} is no scalar"
        if key not in items.get("required", ()) and "default" not in held:
            yield f"{path}: the key {key} is neither required nor has it a default"


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd["spec"]["names"]["plural"])
def test_definition_is_established(crd: dict[str, Any]) -> None:
    """Its schemas are structural, its names fit together, and its columns lead into the schema."""
    spec = crd["spec"]
    assert crd["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    (version,) = spec["versions"]
    root = version["schema"]["openAPIV3Schema"]
    assert [fault for path, node in nodes(root) for fault in faults(path, node)] == []
    # Of metadata only name and generateName may be restricted, and here nothing is.
    assert root["properties"]["metadata"] == {"type": "object"}
    for column in version["additionalPrinterColumns"]:
        first = column["jsonPath"].split(".")[1]
        assert first in root["properties"], column["name"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"description": "no type"},
        {"type": "string", "x-kubernetes-int-or-string": True},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "required": ["a"]},
        {"type": "array"},
        {"type": "string", "format": "ipv8"},
        {"type": "string", "uniqueItems": True},
        {"type": "string", "x-kubernetes-list-type": "set"},
        {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"},
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
    ],
)
def test_what_is_not_structural_is_noticed(wrong: dict[str, Any]) -> None:
    """Each rule finds the schema that breaks it."""
    assert list(faults("here", wrong))
