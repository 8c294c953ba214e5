"""Kinds that a CustomResourceDefinition declares: one instance for each served version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from emulator.contracts import Json, Resource, copied
from emulator.errors import (
    INCOMPLETE,
    ApiError,
    Cause,
    bad_request,
    forbidden,
    invalid,
    invalid_value,
    shown,
)
from emulator.kinds import metadata, structural, typed, validation
from emulator.kinds.columns import CREATED_TEXT, NAME, age
from emulator.kinds.jsonpath import Path
from emulator.kinds.kind import Admitting, Column, Kind
from emulator.kinds.rules import Rules

_BLOCKING = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueNotSupported",
    }
)


class Custom(Kind):
    """The kind of one version of a CRD."""

    counts_generation = True

    def __init__(self, definition: Json, version: Json, *, terminating: bool = False) -> None:
        spec = definition["spec"]
        names, subresources = spec["names"], version.get("subresources", {})
        super().__init__(
            Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                singular=names["singular"],
                list_kind=names["listKind"],
                short_names=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                subresources=frozenset(subresources),
                custom=True,
            )
        )
        self._terminating = terminating
        self._schema: Json = version["schema"]["openAPIV3Schema"]
        self.storage_api_version = next(
            f"{spec['group']}/{one['name']}" for one in spec["versions"] if one.get("storage")
        )
        self._rules = Rules(self._schema)
        self._fields = {
            one["jsonPath"].removeprefix("."): Path(one["jsonPath"])
            for one in version.get("selectableFields", ())
        }
        self._columns = _columns(version.get("additionalPrinterColumns"))
        scale = subresources.get("scale") or {}
        self.scale_paths: Mapping[str, tuple[str, ...]] = {
            name: tuple(scale[name].strip(".").split("."))
            for name in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
            if name in scale
        }

    @property
    def schema(self) -> Json | None:
        """Return the schema of this version."""
        return self._schema

    def decode(self, body: Json) -> tuple[Json, list[str]]:
        """Return a copy pruned to the schema. Raises ApiError 400, 422."""
        resource = self.resource
        self._check_type(body)
        head: Json = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
        try:
            head["metadata"], complaints = typed.decode("V1ObjectMeta", body.get("metadata") or {})
        except typed.UndecodableError as error:
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                f"{resource.kind}: {error}"
            ) from None
        object_ = {**head, **{name: part for name, part in body.items() if name not in head}}
        dropped = structural.prune(self._schema, object_)
        return object_, [
            *(complaint.replace('field "', 'field "metadata.') for complaint in complaints),
            *(f'unknown field "{path}"' for path in dropped),
        ]

    def _check_type(self, body: Json) -> None:
        resource = self.resource
        if not body.get("kind"):
            text = json.dumps(body)
            raise bad_request(missing_kind(resource, text))
        if body.get("apiVersion") != resource.api_version:
            error = bad_request(
                f"the API version in the data ({body.get('apiVersion', '')}) does not match the "
                f"expected API version "
                f"({resource.api_version})"
            )
            unknown = sorted(body.keys() - {"apiVersion", "kind", "metadata"})
            raise ApiError(error.status, warnings=[f'unknown field "{name}"' for name in unknown])
        if body["kind"] != resource.kind:
            cause = invalid_value("kind", body["kind"], f"must be {resource.kind}")
            name = (body.get("metadata") or {}).get("name", "")
            raise invalid(resource.group, body["kind"], name, [cause])

    def fill(self, object_: Json) -> None:
        """Apply the schema's defaults."""
        structural.default(self._schema, object_)

    def admit(self, object_: Json, given: Admitting) -> None:
        """Refuse new objects of a kind that is being deleted. Raises ApiError 403."""
        if self._terminating:
            text = "create not allowed while custom resource definition is terminating"
            raise forbidden(self.resource, object_["metadata"].get("name", ""), text)

    def carry_to_status(self, object_: Json, old: Json) -> None:
        """Keep all of the stored object but status; metadata only serves the version check."""
        status = object_.get("status")
        given = object_["metadata"]
        kept = {**old["metadata"], "resourceVersion": given.get("resourceVersion", "")}
        if "managedFields" in given:
            kept["managedFields"] = given["managedFields"]
        object_.clear()
        object_.update({**old, "metadata": kept})
        object_.pop("status", None)
        if status is not None:
            object_["status"] = status

    def bumps_generation(self, object_: Json, old: Json) -> bool:
        """Count every change outside metadata, and outside status where that is a subresource."""
        apart = {"metadata", "status"} if self.has_status else {"metadata"}
        return {name: part for name, part in object_.items() if name not in apart} != {
            name: part for name, part in old.items() if name not in apart
        }

    def faults(self, object_: Json, old: Json | None, subresource: str) -> list[Cause]:
        """Return what is wrong, with the server's habit to say faults of metadata twice."""
        found = super().faults(object_, old, subresource)
        if old is not None:
            found += metadata.update(object_["metadata"], old["metadata"])
        if not self._rules:
            return found
        if any(cause.reason in _BLOCKING for cause in found):
            return [
                *found,
                Cause("<nil>", "FieldValueInvalid", f"Invalid value: null: {INCOMPLETE}"),
            ]
        return [*found, *self._rules.broken(object_, old)]

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield what the schema and the scale subresource find."""
        if subresource == "status":
            declared = self._schema.get("properties", {}).get("status")
            if declared is not None and "status" in object_:
                yield from validation.validate(declared, object_["status"], "status")
            return
        yield from validation.validate(self._schema, object_)
        path = self.scale_paths.get("specReplicasPath")
        if path:
            yield from _scale_faults(object_, path)

    def reread(self, object_: Json) -> Json:
        """Return a stored object as this schema shows it: pruned, and with its defaults."""
        shown = copied(object_)
        structural.prune(self._schema, shown)
        structural.default(self._schema, shown)
        return object_ if shown == object_ else shown

    def selectable(self, object_: Json) -> Mapping[str, str]:
        """Return the CRD's selectable fields and their values."""
        return {name: _selected(path.first(object_)) for name, path in self._fields.items()}

    @property
    def selectable_names(self) -> frozenset[str]:
        """Return the names of the CRD's selectable fields."""
        return frozenset(self._fields)

    def columns(self) -> Sequence[Column]:
        """Return the CRD's printer columns after the name."""
        return self._columns

    def convert(self, object_: Json) -> Json:
        """Return a stored object under this apiVersion; strategy None does no more."""
        if object_["apiVersion"] == self.resource.api_version:
            return object_
        return {**object_, "apiVersion": self.resource.api_version}

    def store_form(self, object_: Json) -> Json:
        """Return an object under the storage version's apiVersion."""
        if object_["apiVersion"] != self.storage_api_version:
            object_["apiVersion"] = self.storage_api_version
        return object_


def missing_kind(resource: Resource, text: str) -> str:
    """Return what the server says of a body without a kind, whose raw text is given."""
    short = f"{text[:30]} ..." if len(text) > 30 else text
    return (
        f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' "
        f"is missing in "
        f"'{text}' ({short})"
    )


def _selected(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _scale_faults(object_: Json, path: tuple[str, ...]) -> Iterator[Cause]:
    field = "." + ".".join(path)
    held: Any = object_
    for part in path:
        if not isinstance(held, dict):
            go_type = "string" if isinstance(held, str) else type(held).__name__
            text = (
                f"{field} accessor error: {held} is of the type {go_type}, expected "
                f"map[string]interface{{}}"
            )
            yield Cause(field, "FieldValueInvalid", f"Invalid value: 0: {text}")
            return
        held = held.get(part)
        if held is None:
            return
    if isinstance(held, int) and held < 0:
        yield invalid_value(field, held, "should be a non-negative integer")


def _columns(declared: list[Json] | None) -> tuple[Column, ...]:
    if not declared:
        created = Column(
            "Age",
            "date",
            lambda one, now: age(one["metadata"].get("creationTimestamp"), now),
            "",
            CREATED_TEXT,
        )
        return (NAME, created)
    return (NAME, *map(_column, declared))


def _column(declared: Json) -> Column:
    path = Path(declared["jsonPath"])
    format_ = _CELLS.get(declared["type"], _as_text)
    return Column(
        name=declared["name"],
        type=declared["type"],
        cell=_cell(path, format_),
        format=declared.get("format", ""),
        description=declared.get("description")
        or f"Custom resource definition column (in JSONPath format): {declared['jsonPath']}",
        priority=declared.get("priority", 0),
    )


def _cell(path: Path, format_: Callable[[Any, float], Any]) -> Callable[[Json, float], Any]:
    def cell(object_: Json, now: float) -> Any:
        value = path.first(object_)
        return None if value is None else format_(value, now)

    return cell


def _as_text(value: Any, _: float) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else shown(value)


def _as_number(value: Any, _: float) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_integer(value: Any, _: float) -> Any:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_age(value: Any, now: float) -> Any:
    try:
        return age(value, now)
    except (TypeError, ValueError):
        return "<invalid>"


_CELLS: Mapping[str, Callable[[Any, float], Any]] = {
    "integer": _as_integer,
    "number": _as_number,
    "boolean": lambda value, _: value if isinstance(value, bool) else None,
    "date": _as_age,
}
