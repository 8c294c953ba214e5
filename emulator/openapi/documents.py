"""The documents under /openapi/v3 and /openapi/v2.

A group's document is made when it is first asked for and made again when its resources changed; its
hash, which clients put into the address they cache by, comes from what it is made of, so that the
index costs little.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import msgspec

from emulator.contracts import Clock, Json, Resource
from emulator.k8s_wire import openapi_v2_document
from emulator.openapi import operations
from emulator.openapi.schemas import REFERENCE, object_schemas

_SCALE = Resource("autoscaling", "v1", "scales", "Scale")


class Catalogue(Protocol):
    """What is served, and when; `api.Api` has it."""

    @property
    def clock(self) -> Clock:
        """Return the server's clock."""

    def resources(self) -> Sequence[Resource]:
        """Return every served resource in every version."""

    def schema(self, resource: Resource) -> Json | None:
        """Return the structural schema of a custom resource; None for a built-in kind."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document, encoded, and the hash of what it was made of."""

    content: bytes
    hash: str


class Documents:
    """Makes and keeps the documents of one API server. Thread-safe."""

    def __init__(self, catalogue: Catalogue, version: str) -> None:
        """`version` is the server's gitVersion, for the info of the documents."""
        self._catalogue, self._version = catalogue, version
        self._lock = threading.Lock()
        self._made: dict[str, Document] = {}

    def index(self) -> dict[str, Json]:
        """Return the entries of /openapi/v3, by group version."""
        return {
            key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={_hash(parts)}"}
            for key, parts in self._groups().items()
        }

    def group(self, key: str) -> Document | None:
        """Return the document of a group version, named as in the index; None when nothing is
        served there.
        """
        parts = self._groups().get(key)
        if parts is None:
            return None
        wanted = _hash(parts)
        with self._lock:
            document = self._made.get(key)
            if document is None or document.hash != wanted:
                content = msgspec.json.encode(self._document(parts))
                document = self._made[key] = Document(content, wanted)
            return document

    def swagger(self) -> Json:
        """Return the OpenAPI v2 document: the definitions of everything, without paths."""
        definitions: Json = {}
        for parts in self._groups().values():
            for resource, schema in parts:
                definitions |= object_schemas(resource, schema)
        info = {"title": "Kubernetes", "version": self._version}
        document = {"swagger": "2.0", "info": info, "paths": {}, "definitions": definitions}
        found: Json = json.loads(json.dumps(document).replace(REFERENCE, "#/definitions/"))
        return found

    def swagger_protobuf(self) -> bytes:
        """Return the OpenAPI v2 document as protobuf, without definitions.

        Clients ask for it where they look for merge keys of kinds they do not know; custom
        resources have none there on a real server either.
        """
        encoded: bytes = openapi_v2_document("Kubernetes", self._version)
        return encoded

    def _document(self, parts: Sequence[tuple[Resource, Json | None]]) -> Json:
        paths: Json = {}
        schemas: Json = {}
        for resource, schema in parts:
            paths |= operations.paths(resource)
            schemas |= object_schemas(resource, schema)
            if "scale" in resource.subresources:
                schemas |= object_schemas(_SCALE, None)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": self._version},
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": dict(sorted(schemas.items()))},
        }

    def _groups(self) -> dict[str, list[tuple[Resource, Json | None]]]:
        groups: dict[str, list[tuple[Resource, Json | None]]] = {}
        for resource in self._catalogue.resources():
            key = f"{'apis' if resource.group else 'api'}/{resource.api_version}"
            groups.setdefault(key, []).append((resource, self._catalogue.schema(resource)))
        return groups


def _hash(parts: Sequence[tuple[Resource, Json | None]]) -> str:
    content = [(asdict(resource), schema) for resource, schema in parts]
    return (
        hashlib.sha512(msgspec.json.encode(content, order="sorted", enc_hook=_plain))
        .hexdigest()
        .upper()
    )


def _plain(value: Any) -> Any:
    return sorted(value)  # the only such values are frozen sets of subresources
