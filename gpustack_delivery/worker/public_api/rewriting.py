"""The one difference between the public objects and the stored ones: what they call their version.

It stands in an object's `apiVersion`, in its managedFields, and in patches that speak of either.
Everything else is passed through untouched, so that a newer field needs no newer worker.

Rule: VW-RES-01.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from gpustack_delivery.vocabulary.resources import GROUP, STORED_VERSION, Json
from gpustack_delivery.worker.public_api.statuses import Refused
from gpustack_delivery.worker.public_api.targets import VERSION

PUBLIC: Final = f"{GROUP}/{VERSION}"
STORED: Final = f"{GROUP}/{STORED_VERSION}"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_PATCHES: Final = ("application/merge-patch+json", JSON_PATCH, APPLY_PATCH)


class _PlainLoader(yaml.SafeLoader):
    """Loads YAML without aliases, by which a small text could stand for a huge object."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Read one node."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


def published(body: Json) -> Json:
    """Return an answer with every version in it public: an object, a list or a Table."""
    body = _renamed(body, STORED, PUBLIC)
    if isinstance(body.get("items"), list):
        body["items"] = [_renamed(item, STORED, PUBLIC) for item in body["items"]]
    if isinstance(body.get("rows"), list):
        body["rows"] = [
            row | {"object": _renamed(row["object"], STORED, PUBLIC)} if row.get("object") else row
            for row in body["rows"]
        ]
    return body


def stored_object(raw: bytes, content_type: str) -> Json:
    """Return a request's object as it is stored.

    Raises:
        Refused: the body is no object of the public version.
    """
    if _media(content_type) not in {"application/json", "application/yaml", ""}:
        raise _unsupported("application/json, application/yaml")
    body = decoded(raw)
    if not isinstance(body, dict):
        raise _malformed("the body must be an object")
    found = body.get("apiVersion", "")
    if found != PUBLIC:
        raise _malformed(
            f"the API version in the data ({found}) does not match the expected API version "
            f"({PUBLIC})"
        )
    return _renamed(body, PUBLIC, STORED)


def stored_patch(raw: bytes, content_type: str) -> Any:
    """Return a patch that does to the stored object what it says of the public one.

    Raises:
        Refused: it is no patch, or of a kind that custom resources do not take.
    """
    media = _media(content_type)
    if media not in _PATCHES:
        raise _unsupported(", ".join(_PATCHES))
    body = decoded(raw)
    if media == JSON_PATCH:
        if not isinstance(body, list) or not all(isinstance(step, dict) for step in body):
            raise _malformed("a JSON patch must be a list of operations")
        return [_step(step) for step in body]
    if not isinstance(body, dict):
        raise _malformed("the patch must be an object")
    if media == APPLY_PATCH and body.get("apiVersion") != PUBLIC:
        raise _malformed(f"an applied object must say apiVersion: {PUBLIC}")
    return _renamed(body, PUBLIC, STORED)


def delete_options(raw: bytes) -> bytes:
    """Return DeleteOptions that any group version takes."""
    if not raw:
        return raw
    body = decoded(raw)
    if not isinstance(body, dict):
        raise _malformed("the body of a deletion must be DeleteOptions")
    return msgspec.json.encode(body | {"apiVersion": "v1", "kind": "DeleteOptions"})


def _step(step: Json) -> Json:
    """Rename the versions in one operation of a JSON patch."""
    path, value = step.get("path", ""), step.get("value")
    if path == "" and isinstance(value, dict):
        return step | {"value": _renamed(value, PUBLIC, STORED)}
    if path == "/metadata" and isinstance(value, dict):
        return step | {"value": _renamed({"metadata": value}, PUBLIC, STORED)["metadata"]}
    if path.startswith("/metadata/managedFields"):
        return step | {"value": _everywhere(value)} if "value" in step else step
    if path == "/apiVersion" and value == PUBLIC:
        return step | {"value": STORED}
    return step


def _renamed(body: Mapping[str, Any], before: str, after: str) -> Json:
    """Rename the version of an object and of its managers; other objects stay as they are."""
    found = dict(body)
    if found.get("apiVersion") == before:
        found["apiVersion"] = after
    metadata = found.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("managedFields"), list):
        managers = [
            entry | {"apiVersion": after}
            if isinstance(entry, dict) and entry.get("apiVersion") == before
            else entry
            for entry in metadata["managedFields"]
        ]
        found["metadata"] = metadata | {"managedFields": managers}
    return found


def _everywhere(value: Any) -> Any:
    """Rename the version in a part of managedFields: the list, one entry, or one member."""
    if isinstance(value, list):
        return [_everywhere(entry) for entry in value]
    if isinstance(value, dict):
        return value | {"apiVersion": STORED} if value.get("apiVersion") == PUBLIC else value
    return STORED if value == PUBLIC else value


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def decoded(raw: bytes) -> Any:
    """Return a request's body, JSON or YAML.

    Raises:
        Refused: it is neither.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return yaml.load(raw, _PlainLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise _malformed("the body is neither JSON nor YAML") from None


def _malformed(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def _unsupported(accepted: str) -> Refused:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{accepted}"
    )
    return Refused(415, "UnsupportedMediaType", message)
