"""JSON patch and JSON merge patch on plain documents, with the refusals of a Kubernetes API server.

Pure: the document that comes in is never changed. Two leniencies of the real server are kept
because clients lean on them: `replace` of a missing member adds it, and `test` of a missing member
against null holds.
"""

from __future__ import annotations

import copy
from typing import Any

from emulator.contracts import Json
from emulator.errors import ApiError, bad_request, failure

MISSING: Any = object()
_GO_TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}


def rejected() -> ApiError:
    """Return the 422 that every JSON patch which cannot be applied gets; the real server says no
    more either.
    """
    message = "the server rejected our request due to an error in our request"
    return failure(422, "Invalid", message, {})


def json_patch(document: Json, operations: Any) -> Json:
    """Return `document` after the operations of an RFC 6902 patch. Raises ApiError 400 or 422."""
    if operations is None:
        return copy.deepcopy(document)
    if not isinstance(operations, list):
        raise _undecodable(operations, "[]handlers.jsonPatchOp")
    root: list[Any] = [copy.deepcopy(document)]
    for operation in operations:
        if not isinstance(operation, dict):
            raise rejected()
        _operate(root, operation)
    if not isinstance(root[0], dict):
        raise rejected()
    return root[0]


def merge_patch(document: Json, patch: Any) -> Json:
    """Return `document` after an RFC 7386 merge patch. Raises ApiError 400 when it is no object."""
    if not isinstance(patch, dict):
        raise _undecodable(patch, "map[string]interface {}")
    merged: Json = _merge(document, patch)
    return merged


def _undecodable(patch: Any, wanted: str) -> ApiError:
    found = _GO_TYPES.get(type(patch), "null")
    message = f"json: cannot unmarshal {found} into Go value of type {wanted}"
    return bad_request(f"error decoding patch: {message}")


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _operate(root: list[Any], operation: Json) -> None:
    # The document hangs in a one-item list, so that the empty path, the whole document, is a place
    # like any other.
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise rejected()
    if kind == "remove":
        _take(root, path)
    elif kind == "test":
        found = _find(root, path)
        if not _same(None if found is MISSING else found, operation.get("value")):
            raise rejected()
    elif kind in {"add", "replace"}:
        if "value" not in operation:
            raise rejected()
        _put(root, path, copy.deepcopy(operation["value"]), insert=kind == "add")
    elif kind in {"move", "copy"}:
        source = operation.get("from")
        value = _find(root, source) if isinstance(source, str) else MISSING
        if value is MISSING:
            raise rejected()
        value = _take(root, str(source)) if kind == "move" else copy.deepcopy(value)
        _put(root, path, value, insert=True)
    else:
        raise rejected()


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: 1 and true are different, 1 and 1.0 are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _tokens(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise rejected()
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _index(items: list[Any], token: str, *, insert: bool) -> int:
    if token == "-" and insert:  # noqa: S105 - a JSON pointer token, no secret
        return len(items)
    try:
        index = int(token)
    except ValueError:
        raise rejected() from None
    limit = len(items) + insert
    if index < 0:
        index += limit
    if not 0 <= index < limit:
        raise rejected()
    return index


def _place(root: list[Any], path: str) -> tuple[Any, str]:
    """Return the container that the path's last token speaks of, and that token."""
    tokens = ["0", *_tokens(path)]
    container: Any = root
    for token in tokens[:-1]:
        container = _member(container, token)
        if not isinstance(container, dict | list):
            raise rejected()
    return container, tokens[-1]


def _member(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        return container.get(token, MISSING)
    return container[_index(container, token, insert=False)]


def _find(root: list[Any], path: str) -> Any:
    return _member(*_place(root, path))


def _take(root: list[Any], path: str) -> Any:
    container, token = _place(root, path)
    value = _member(container, token)
    if value is MISSING or container is root:
        raise rejected()
    if isinstance(container, dict):
        return container.pop(token)
    return container.pop(_index(container, token, insert=False))


def _put(root: list[Any], path: str, value: Any, *, insert: bool) -> None:
    container, token = _place(root, path)
    if isinstance(container, dict):
        container[token] = value
    elif insert and container is not root:
        container.insert(_index(container, token, insert=True), value)
    else:
        container[_index(container, token, insert=False)] = value
