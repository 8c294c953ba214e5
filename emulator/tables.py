"""Other shapes of an answer: Table, PartialObjectMetadata, lists, and which of them a client
accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.contracts import Json, ListResult, Resource
from emulator.decoding import JSON, PROTOBUF, YAML
from emulator.errors import bad_request, failure
from emulator.kinds.kind import Kind

META = "meta.k8s.io/v1"
_SHAPES = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True, slots=True)
class Form:
    """What a client gets: a media type, and a shape ("" for the object itself)."""

    media: str = JSON
    shape: str = ""


def accepted(header: str | None) -> Form:
    """Return the first form of an Accept header that is served. Raises ApiError 406."""
    if not header:
        return Form()
    for clause in header.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        given = dict(part.partition("=")[::2] for part in parameters)
        shape = given.get("as", "")
        if shape and not (
            shape in _SHAPES and given.get("g") == "meta.k8s.io" and given.get("v") == "v1"
        ):
            continue
        if media in (JSON, YAML):
            return Form(media, shape)
        if media in ("*/*", "application/*"):
            return Form(JSON, shape)
    raise not_acceptable()


def not_acceptable() -> Exception:
    """Return the 406 that lists what is served."""
    listed = ", ".join((JSON, YAML, PROTOBUF))
    return failure(406, "NotAcceptable", f"only the following media types are accepted: {listed}")


def listed(resource: Resource, result: ListResult) -> Json:
    """Return a page as a List object."""
    metadata: Json = {"resourceVersion": result.resource_version}
    if result.continue_token or resource.custom:
        metadata["continue"] = result.continue_token
    if result.remaining is not None:
        metadata["remainingItemCount"] = result.remaining
    items: Sequence[Json] = result.items
    if not resource.custom:
        # Items of a built-in kind go without what the list says already.
        items = [{k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in items]
    return {
        "kind": resource.list_kind or f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": items,
    }


def partial(object_: Json) -> Json:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": object_["metadata"]}


def partial_list(result: ListResult) -> Json:
    """Return a page as a PartialObjectMetadataList."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": META,
        "metadata": _page_metadata(result),
        "items": [partial(one) for one in result.items],
    }


def _page_metadata(result: ListResult) -> Json:
    metadata: Json = {"resourceVersion": result.resource_version}
    if result.continue_token:
        metadata["continue"] = result.continue_token
    if result.remaining is not None:
        metadata["remainingItemCount"] = result.remaining
    return metadata


class Tabulator:
    """Makes tables of one kind's objects for one request."""

    def __init__(self, kind: Kind, now: float, include: str) -> None:
        """Take the seconds since the epoch and the includeObject parameter. Raises ApiError 400."""
        if include not in ("", "Metadata", "Object", "None"):
            raise bad_request(
                f"Unable to convert to Table as requested: includeObject: Invalid value: "
                f'"{include}": '
                "must be 'Metadata', 'Object', 'None', or empty"
            )
        self._columns = kind.columns()
        self._now = now
        self._include = include or "Metadata"

    def table(self, metadata: Json, objects: Sequence[Json], *, heading: bool = True) -> Json:
        """Return a Table; watches send the heading once only."""
        definitions = [column.to_wire() for column in self._columns] if heading else None
        return {
            "kind": "Table",
            "apiVersion": META,
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": list(self._rows(objects)),
        }

    def page(self, result: ListResult) -> Json:
        """Return a page as a Table."""
        return self.table(_page_metadata(result), result.items)

    def one(self, object_: Json, *, heading: bool = True) -> Json:
        """Return one object as a Table."""
        version = object_["metadata"].get("resourceVersion")
        return self.table(
            {"resourceVersion": version} if version else {}, [object_], heading=heading
        )

    def _rows(self, objects: Sequence[Json]) -> Iterator[Json]:
        for object_ in objects:
            cells: list[Any] = [column.cell(object_, self._now) for column in self._columns]
            yield {"cells": cells, "object": self._object(object_)}

    def _object(self, object_: Json) -> Json | None:
        match self._include:
            case "Object":
                return object_
            case "None":
                return None
        return partial(object_)
