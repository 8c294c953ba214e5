"""Structural schemas at work on an object: pruning of undeclared fields, and defaulting.

Both change the object in place. `validation` judges what is left.
"""

from __future__ import annotations

from typing import Any

from emulator.contracts import Json, copied

_TYPE_META = ("apiVersion", "kind", "metadata")


def prune(schema: Json, object_: Json) -> list[str]:
    """Drop what a schema does not declare, root metadata apart; return the paths."""
    dropped: list[str] = []
    _prune_object(schema, object_, "", dropped, keep=_TYPE_META)
    return sorted(dropped)


def _prune(schema: Json, value: Any, path: str, dropped: list[str]) -> None:
    if isinstance(value, dict):
        keep = _TYPE_META if schema.get("x-kubernetes-embedded-resource") else ()
        _prune_object(schema, value, path, dropped, keep)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, element in enumerate(value):
            _prune(items, element, f"{path}[{index}]", dropped)


def _prune_object(
    schema: Json, value: Json, path: str, dropped: list[str], keep: tuple[str, ...]
) -> None:
    properties = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    open_ = additional is True or schema.get("x-kubernetes-preserve-unknown-fields")
    for name in list(value):
        where = f"{path}.{name}" if path else name
        if name in keep:
            continue
        if name in properties:
            _prune(properties[name], value[name], where, dropped)
        elif isinstance(additional, dict):
            _prune(additional, value[name], where, dropped)
        elif not open_:
            del value[name]
            dropped.append(where)


def default(schema: Json, value: Any) -> None:
    """Fill in defaults; a null that is not allowed counts as absent."""
    if isinstance(value, dict):
        _default_object(schema, value)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for element in value:
            default(items, element)


def _default_object(schema: Json, value: Json) -> None:
    properties = schema.get("properties", {})
    for name, declared in properties.items():
        if name in value and value[name] is None and not declared.get("nullable"):
            del value[name]
        if name not in value and "default" in declared:
            value[name] = copied(declared["default"])
        if name in value:
            default(declared, value[name])
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for name in value:
            if name not in properties:
                default(additional, value[name])
