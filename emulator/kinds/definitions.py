"""CustomResourceDefinitions as objects: what the server accepts as a CRD, and what its status says.

What this emulator cannot honour in a CRD is refused here, by name: conversion webhooks, formats
without a check, JSONPaths and rules outside the emulated part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from emulator.contracts import Json, copied
from emulator.errors import Cause, invalid_value, required
from emulator.kinds import structural, validation
from emulator.kinds.builtin import Builtin
from emulator.kinds.jsonpath import Path, UnsupportedPathError
from emulator.kinds.rules import compile_faults

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_APPROVAL = "api-approved.kubernetes.io"
_BEGINS = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
_PROTECTED = re.compile(r"(^|\.)(k8s\.io|kubernetes\.io)$")


class Definitions(Builtin):
    """CustomResourceDefinitions."""

    marks_grace = False

    def fill(self, object_: Json) -> None:
        """Derive singular and list kind from the kind."""
        super().fill(object_)
        names = object_.setdefault("spec", {}).setdefault("names", {})
        kind = str(names.get("kind", ""))
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")

    def begin(self, object_: Json) -> None:
        """Start with nothing accepted and the storage version stored."""
        super().begin(object_)
        versions = object_.get("spec", {}).get("versions", [])
        stored = [one["name"] for one in versions if one.get("storage")]
        object_["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }

    def die(self, object_: Json, now: str) -> bool:
        """Keep the definition until every instance is gone, and say so."""
        finalizers = object_["metadata"].setdefault("finalizers", [])
        if CLEANUP not in finalizers:
            finalizers.append(CLEANUP)
            terminate(object_, now, "InstanceDeletionPending", _BEGINS)
        return True

    def own_faults(
        self, object_: Json, old: Json | None, subresource: str
    ) -> Iterator[Cause] | Sequence[Cause]:
        """Yield what is wrong with a definition; a status update is not judged again."""
        return () if subresource == "status" else _faults(object_)


def terminate(object_: Json, now: str, reason: str, message: str) -> None:
    """Set the Terminating condition of a definition, in place; one that says the same stays."""
    status = object_.setdefault("status", {})
    conditions = [one for one in status.get("conditions") or [] if one["type"] != "Terminating"]
    if (
        len(conditions) < len(status.get("conditions") or [])
        and status["conditions"][-1]["reason"] == reason
    ):
        return
    conditions.append(
        {
            "type": "Terminating",
            "status": "True",
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
    )
    status["conditions"] = conditions


def _faults(object_: Json) -> Iterator[Cause]:
    spec, name = object_.get("spec", {}), object_["metadata"].get("name", "")
    names, versions = spec.get("names", {}), spec.get("versions", [])
    if name != f"{names.get('plural')}.{spec.get('group')}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    annotations = object_["metadata"].get("annotations", {})
    if _PROTECTED.search(spec.get("group", "")) and _APPROVAL not in annotations:
        yield required(
            f"metadata.annotations[{_APPROVAL}]",
            f'protected groups must have approval annotation "{_APPROVAL}", '
            "see https://github.com/kubernetes/enhancements/pull/1111",
        )
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield required("spec.scope")
    if spec.get("conversion", {}).get("strategy", "None") != "None":
        yield invalid_value("spec.conversion.strategy", "Webhook", "conversion is not emulated")
    if sum(bool(one.get("storage")) for one in versions) != 1:
        yield invalid_value(
            "spec.versions",
            [_version_in_go(one) for one in versions],
            "must have exactly one version marked as storage version",
        )
        yield invalid_value("status.storedVersions", None, "must have at least one stored version")
    for index, version in enumerate(versions):
        yield from _version_faults(version, f"spec.versions[{index}]", single=len(versions) == 1)


def _version_in_go(version: Json) -> Json:
    """Return a version as the server prints it when the schema is shared by all versions."""
    return {
        "Name": version.get("name", ""),
        "Served": version.get("served", False),
        "Storage": version.get("storage", False),
        "Deprecated": version.get("deprecated", False),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": None,
        "Subresources": None,
        "AdditionalPrinterColumns": None,
        "SelectableFields": None,
    }


def _version_faults(version: Json, field: str, *, single: bool) -> Iterator[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield required(f"{field}.schema.openAPIV3Schema")
        return
    # One version's schema counts as the schema of the whole CRD, and is named so.
    root = f"{'spec.validation' if single else field + '.schema'}.openAPIV3Schema"
    faults = [*_structural_faults(schema, root)]
    yield from faults
    if not faults:
        yield from _default_faults(schema, root)
        yield from compile_faults(schema, root)
    paths = [
        *(("additionalPrinterColumns", one) for one in version.get("additionalPrinterColumns", ())),
        *(("selectableFields", one) for one in version.get("selectableFields", ())),
    ]
    for part, declared in paths:
        try:
            Path(declared.get("jsonPath", ""))
        except UnsupportedPathError as error:
            yield invalid_value(f"{field}.{part}", declared.get("jsonPath", ""), str(error))


def _structural_faults(schema: Json, field: str, *, inside: str = "") -> Iterator[Cause]:
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get(
        "x-kubernetes-int-or-string"
    )
    if not schema.get("type") and not free:
        suffix = {"properties": "object fields", "items": "array items"}.get(
            inside, "object fields"
        )
        where = "at the root" if not inside else f"for specified {suffix}"
        yield required(f"{field}.type", f"must not be empty {where}")
    format_ = schema.get("format", "")
    if format_ not in validation.FORMATS and format_ not in validation.UNCHECKED_FORMATS:
        yield invalid_value(f"{field}.format", format_, "this format is not emulated")
    if pattern := schema.get("pattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            yield invalid_value(
                f"{field}.pattern", pattern, f"must be a valid regular expression: {error}"
            )
    for name, below in schema.get("properties", {}).items():
        # The server itself checks apiVersion, kind and metadata; at the root they may stay untyped.
        if inside or name not in ("apiVersion", "kind", "metadata"):
            yield from _structural_faults(below, f"{field}.properties[{name}]", inside="properties")
    for part in ("items", "additionalProperties"):
        if isinstance(below := schema.get(part), dict):
            yield from _structural_faults(below, f"{field}.{part}", inside=part)
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get(
        "x-kubernetes-list-map-keys"
    ):
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{field}.x-kubernetes-list-map-keys", text)


def _default_faults(schema: Json, field: str) -> Iterator[Cause]:
    if "default" in schema:
        value: Any = copied(schema["default"])
        structural.default(schema, value)
        for cause in validation.validate(schema, value):
            yield Cause(f"{field}.default", cause.reason, cause.message)
    for name, below in schema.get("properties", {}).items():
        yield from _default_faults(below, f"{field}.properties[{name}]")
    for part in ("items", "additionalProperties"):
        if isinstance(below := schema.get(part), dict):
            yield from _default_faults(below, f"{field}.{part}")
