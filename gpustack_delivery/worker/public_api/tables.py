"""The tables that kubectl prints of artifacts and of nodes' stores.

The other kinds print the columns of their stored version; these two say more than a path into the
object can: a shortened revision, a size to read, counts of a list.

Rule: VW-RES-02.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpustack_delivery.decisions.reporting import amount
from gpustack_delivery.vocabulary.conditions import find, read_conditions
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import optional_time
from gpustack_delivery.worker.public_api.statuses import Refused

_TABLE_VERSION: Final = "meta.k8s.io/v1"
_REVISION_LENGTH: Final = 12
_UNKNOWN: Final = "<unknown>"
_SECOND, _MINUTE, _HOUR, _DAY, _YEAR = 1, 60, 3600, 86400, 365 * 86400
INCLUDED: Final = ("", "Metadata", "Object", "None")
# (below so many seconds, a big unit with its letter, the small unit that is shown beside it)
_STEPS: Final = (
    (2 * _MINUTE, (_SECOND, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (_SECOND, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `wide` ones are shown with `-o wide` alone."""

    name: str
    type: str
    description: str
    wide: bool = False

    def to_wire(self) -> Json:
        """Write the column's definition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.description,
            "priority": 1 if self.wide else 0,
        }


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind's columns, and how an object fills them; both without the Age that every kind has."""

    columns: tuple[Column, ...]
    cells: Callable[[Mapping[str, Any]], list[Any]]

    def table(self, objects: Sequence[Json], metadata: Json, include: str, now: float) -> Json:
        """Return the table of some objects.

        Args:
            objects: as they are published.
            metadata: of the list that they came in, or of the one object.
            include: how much of an object its row brings: Metadata, Object or None.
            now: for ages.
        """
        kept = ("resourceVersion", "continue", "remainingItemCount")
        return {
            "kind": "Table",
            "apiVersion": _TABLE_VERSION,
            "metadata": {key: metadata[key] for key in kept if key in metadata},
            "columnDefinitions": [column.to_wire() for column in (*self.columns, _AGE)],
            "rows": [self._row(body, include or "Metadata", now) for body in objects],
        }

    def _row(self, body: Json, include: str, now: float) -> Json:
        row: Json = {"cells": [*self.cells(body), _age(body, now)]}
        if include == "Metadata":
            named = {"kind": "PartialObjectMetadata", "apiVersion": _TABLE_VERSION}
            row["object"] = named | {"metadata": body.get("metadata") or {}}
        elif include == "Object":
            row["object"] = body
        return row


def bad_include(include: str) -> Refused:
    """Return the refusal of an `includeObject` that is none of INCLUDED."""
    message = (
        f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )
    return Refused(400, "BadRequest", message)


def age(seconds: float) -> str:
    """Return a time span as kubectl prints it: at most two units, the small one while it counts."""
    whole = max(int(seconds), 0)
    for limit, (big, letter), small in _STEPS:
        if whole < limit:
            text = f"{whole // big}{letter}"
            rest = whole % big // small[0] if small else 0
            return f"{text}{rest}{small[1]}" if small and rest else text
    return f"{whole // _YEAR}y"


def _age(body: Mapping[str, Any], now: float) -> str:
    try:
        made = optional_time((body.get("metadata") or {}).get("creationTimestamp"))
    except ValueError:
        made = None
    return _UNKNOWN if made is None else age(now - made)


def _artifact(body: Mapping[str, Any]) -> list[Any]:
    status = body.get("status") or {}
    resolved, nodes = status.get("resolved") or {}, status.get("nodes") or {}
    size = resolved.get("sizeBytes")
    return [
        _object_name(body),
        _source((body.get("spec") or {}).get("source") or {}),
        str(resolved.get("revision", ""))[:_REVISION_LENGTH],
        "" if size is None else amount(size),
        nodes.get("ready", 0),
        nodes.get("downloading", 0),
        _condition(status, "Resolved"),
    ]


def _source(source: Mapping[str, Any]) -> str:
    for member, key in (
        ("huggingFace", "repository"),
        ("modelScope", "repository"),
        ("persistentVolumeClaim", "claimName"),
        ("image", "reference"),
    ):
        if isinstance(held := source.get(member), dict):
            return f"{member}:{held.get(key, '')}"
    return _UNKNOWN


def _node_store(body: Mapping[str, Any]) -> list[Any]:
    status = body.get("status") or {}
    used = (status.get("capacity") or {}).get("usedPercent")
    states = [entry.get("state") for entry in status.get("models") or ()]
    return [
        _object_name(body),
        _condition(status, "Ready"),
        _UNKNOWN if used is None else f"{used}%",
        states.count("Ready"),
        states.count("Downloading"),
    ]


def _setting(body: Mapping[str, Any]) -> list[Any]:
    return [_object_name(body), (body.get("status") or {}).get("value", "")]


def _object_name(body: Mapping[str, Any]) -> str:
    return str((body.get("metadata") or {}).get("name", ""))


def _condition(status: Mapping[str, Any], kind: str) -> str:
    found = find(read_conditions(status), kind)
    return found.status if found else "Unknown"


_AGE: Final = Column("Age", "string", "How long ago the object was created.", wide=True)
_NAME: Final = Column("Name", "string", "The object's name.")
LAYOUTS: Final[Mapping[str, Layout]] = {
    "modelartifacts": Layout(
        (
            _NAME,
            Column("Source", "string", "Where the files come from."),
            Column("Revision", "string", "The first 12 characters of the resolved commit."),
            Column("Size", "string", "The size of all files together."),
            Column("Ready", "integer", "Nodes that hold the files whole."),
            Column("Downloading", "integer", "Nodes that are downloading them."),
            Column("Resolved", "string", "Whether the artifact may be mounted."),
        ),
        _artifact,
    ),
    "nodemodelstores": Layout(
        (
            _NAME,
            Column("Ready", "string", "Whether the node serves under its configuration."),
            Column("Used", "string", "How full the cache's filesystem is."),
            Column("Models", "integer", "Models that the node holds whole."),
            Column("Downloading", "integer", "Models that the node is downloading."),
        ),
        _node_store,
    ),
    "settings": Layout((_NAME, Column("Value", "string", "The value in force.")), _setting),
}
