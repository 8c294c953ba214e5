"""Strategic merge patch for built-in kinds.

A merge patch that also merges keyed lists item by item, with its directives: `$patch` (merge,
replace, delete), `$retainKeys`, `$deleteFromPrimitiveList/NAME` and `$setElementOrder/NAME`. Pure:
the document is never changed.
"""

from __future__ import annotations

import copy
from typing import Any

from emulator.contracts import Json
from emulator.errors import bad_request
from emulator.patches import builtin

_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


def strategic_merge_patch(document: Json, patch: Any) -> Json:
    """Return `document` after the patch. Raises ApiError 400 for a patch that is malformed."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is a JSON object")
    return _merge_map(document, patch, "")


def _merge_map(target: Json, patch: Json, name: str) -> Json:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    content = {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "replace":
        return {key: _settled(value) for key, value in content.items() if value is not None}
    if directive not in {None, "merge"}:
        raise bad_request(f"Unknown patch type found: {directive}")
    merged = _reduced(target, patch)
    for key, value in content.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(merged.get(key), value, key, name)
    for key, order in patch.items():
        field = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and isinstance(merged.get(field), list):
            merged[field] = _ordered(merged[field], order, _merge_key(field, name))
    return merged


def _reduced(target: Json, patch: Json) -> Json:
    """Return the target without what the patch's own directives take out of it."""
    retained = patch.get(_RETAIN, target)
    reduced = {key: value for key, value in target.items() if key in retained}
    for key, values in patch.items():
        field = key.removeprefix(_DELETE_FROM)
        if key.startswith(_DELETE_FROM) and field in reduced:
            reduced[field] = [item for item in reduced[field] or [] if item not in values]
    return reduced


def _merge_key(name: str, parent: str) -> str:
    return next(iter(builtin.list_keys(name, parent)), "")


def _merge_value(target: Any, patch: Any, name: str, parent: str) -> Any:
    if isinstance(patch, dict):
        return _merge_map(target if isinstance(target, dict) else {}, patch, name)
    if isinstance(patch, list):
        key = _merge_key(name, parent)
        if key:
            return _merge_list(target if isinstance(target, list) else [], patch, key, name)
        if name in builtin.STRATEGIC_SETS:
            held = target if isinstance(target, list) else []
            return [*held, *(item for item in patch if item not in held)]
        if not any(isinstance(item, dict) for item in patch):
            return list(patch)
    return _settled(patch)


def _merge_list(target: list[Any], patch: list[Any], key: str, name: str) -> list[Any]:
    replaced = any(
        isinstance(item, dict) and item.get("$patch") == "replace" and key not in item
        for item in patch
    )
    merged = [] if replaced else list(target)
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request(f"error decoding patch: the items of {name} are JSON objects")
        if item.get("$patch") == "replace" and key not in item:
            continue
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((index for index, held in enumerate(merged) if held.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(_merge_map({}, item, name))
        else:
            merged[at] = _merge_map(merged[at], item, name)
    return merged


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Return the items in the patch's order; one it does not name stays behind its neighbour."""
    names = [_identity(entry, key) for entry in order]
    named = [item for item in items if _identity(item, key) in names]
    result = sorted(named, key=lambda item: names.index(_identity(item, key)))
    for at, item in enumerate(items):
        if _identity(item, key) not in names:
            result.insert(result.index(items[at - 1]) + 1 if at else 0, item)
    return result


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _settled(value: Any) -> Any:
    """Return a copy without directives and without nulls, as a value that replaces another."""
    if isinstance(value, dict):
        return {
            key: _settled(item)
            for key, item in value.items()
            if item is not None and not key.startswith("$")
        }
    if isinstance(value, list):
        return [_settled(item) for item in value]
    return copy.deepcopy(value)
