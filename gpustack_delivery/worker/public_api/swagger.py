"""OpenAPI v2, written from v3: for the API server's merged document and for older clients.

Version 2 has no word for some of what version 3 says. What is lost makes a schema more lenient and
never stricter, as in the document that an API server writes of custom resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpustack_delivery.vocabulary.resources import Json

_BEFORE: Final = "#/components/schemas/"
_AFTER: Final = "#/definitions/"
_LOST: Final = frozenset({"default", "nullable", "oneOf", "anyOf", "not"})
_SHAPE: Final = frozenset(
    {"type", "format", "items", "properties", "additionalProperties", "required"}
)
_JSON: Final = "application/json"


def swagger(documents: Iterable[Mapping[str, Any]]) -> Json:
    """Return one OpenAPI v2 document of several of version 3, which agree on schemas they share."""
    paths: Json = {}
    definitions: Json = {}
    for document in documents:
        paths |= {path: _item(item) for path, item in document["paths"].items()}
        schemas = document["components"]["schemas"]
        definitions |= {name: _schema(schema) for name, schema in schemas.items()}
    return {
        "swagger": "2.0",
        "info": {"title": "gpustack-delivery", "version": "v1"},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
    }


def _schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_schema(held) for held in schema]
    if not isinstance(schema, dict):
        return schema
    # A reference with anything beside it is wrapped in version 3, and stands alone in version 2.
    wrapped = schema.get("allOf")
    if isinstance(wrapped, list) and len(wrapped) == 1 and "$ref" in wrapped[0]:
        return _schema(wrapped[0])
    found = {key: held for key, held in schema.items() if key not in _LOST and key != "allOf"}
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        # Version 2 would refuse the null, or the fields that nobody has declared.
        found = {key: held for key, held in found.items() if key not in _SHAPE}
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    shown: Json = {}
    for key, held in found.items():
        if key == "$ref":
            shown[key] = held.replace(_BEFORE, _AFTER)
        elif key == "properties":
            shown[key] = {name: _schema(below) for name, below in held.items()}
        elif key in {"items", "additionalProperties"}:
            shown[key] = _schema(held)
        else:
            shown[key] = held
    return shown


def _item(item: Mapping[str, Any]) -> Json:
    shown: Json = {}
    for method, operation in item.items():
        if method == "parameters":
            shown[method] = [_parameter(one) for one in operation]
        else:
            shown[method] = _operation(operation)
    return shown


def _operation(operation: Mapping[str, Any]) -> Json:
    shown = {key: held for key, held in operation.items() if key != "requestBody"}
    shown["produces"] = [_JSON]
    parameters = [_parameter(one) for one in operation.get("parameters", [])]
    if body := operation.get("requestBody"):
        content = body["content"]
        shown["consumes"] = sorted(content)
        schemas = [_schema(spoken.get("schema")) for spoken in content.values()]
        parameters.append({"in": "body", "name": "body", "required": True, "schema": schemas[0]})
    if parameters:
        shown["parameters"] = parameters
    shown["responses"] = {
        code: _response(response) for code, response in operation.get("responses", {}).items()
    }
    return shown


def _parameter(parameter: Mapping[str, Any]) -> Json:
    shown = {key: held for key, held in parameter.items() if key != "schema"}
    shown |= _schema(parameter.get("schema") or {})
    return shown


def _response(response: Mapping[str, Any]) -> Json:
    shown = {"description": response.get("description", "")}
    content = response.get("content") or {}
    return shown | ({"schema": _schema(content[_JSON]["schema"])} if _JSON in content else {})
