"""metadata.managedFields: reading it, writing it, and moving ownership when a document changes.

An entry belongs to an owner. Two writes belong to the same owner when manager, operation and
subresource agree, and for plain updates the version too. Every kind is stored and owned in one
version here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emulator.contracts import Json
from emulator.errors import ApiError, failure
from emulator.patches import fields
from emulator.patches.fields import FieldSet, Path
from emulator.patches.typed import Comparison

UPDATE, APPLY = "Update", "Apply"
_MOST_UPDATE_OWNERS = 10
_ANCIENT = "ancient-changes"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns fields. `api_version` is empty for appliers, who stay the same in every version."""

    manager: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def shown(self) -> str:
        """Return the owner as a conflict names it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class Entry:
    """What an owner owns, and when it last wrote."""

    owned: FieldSet
    api_version: str
    time: str = ""


Managed = dict[Owner, Entry]


def read(entries: object) -> Managed:
    """Read managedFields. What cannot be read counts as absent, as in the real server."""
    managed: Managed = {}
    for wire in entries if isinstance(entries, list) else ():
        content = wire.get("fieldsV1") if isinstance(wire, dict) else None
        if not isinstance(content, dict) or wire.get("operation") not in {UPDATE, APPLY}:
            return {}
        version = str(wire.get("apiVersion", ""))
        key = owner(
            str(wire.get("manager", "")),
            wire["operation"],
            version,
            str(wire.get("subresource", "")),
        )
        managed[key] = Entry(FieldSet.from_wire(content), version, str(wire.get("time") or ""))
    return managed


def owner(manager: str, operation: str, api_version: str, subresource: str) -> Owner:
    """Return the identity under which a write's fields are owned."""
    return Owner(manager, operation, api_version if operation == UPDATE else "", subresource)


def write(managed: Managed) -> list[Json]:
    """Write managedFields, appliers first, then by time and name."""
    ordered = sorted(
        managed.items(),
        key=lambda held: (
            held[0].operation, held[1].time, held[0].manager, held[1].api_version,
            held[0].subresource,
        ),
    )  # fmt: skip
    return [_entry(who, entry) for who, entry in ordered]


def _entry(who: Owner, entry: Entry) -> Json:
    wire: Json = {
        "manager": who.manager,
        "operation": who.operation,
        "apiVersion": entry.api_version,
    }
    if entry.time:
        wire["time"] = entry.time
    wire |= {"fieldsType": "FieldsV1", "fieldsV1": entry.owned.to_wire()}
    if who.subresource:
        wire["subresource"] = who.subresource
    return wire


def conflicts(managed: Managed, writer: Owner | None, change: Comparison) -> dict[Owner, FieldSet]:
    """Return, by other owner, the fields they own that a change sets."""
    touched = change.modified.union(change.added)
    found = {
        who: entry.owned.intersection(touched) for who, entry in managed.items() if who != writer
    }
    return {who: shared for who, shared in found.items() if shared}


def disown(managed: Managed, writer: Owner | None, change: Comparison) -> Managed:
    """Return ownership after a change: others lose what it set, everyone what it removed; empty
    owners go.
    """
    lost = change.modified.union(change.added).union(change.removed)
    result: Managed = {}
    for who, entry in managed.items():
        left = entry.owned if who == writer else entry.owned.difference(lost)
        if left:
            result[who] = Entry(left, entry.api_version, entry.time)
    return result


def capped(managed: Managed) -> Managed:
    """Return ownership with the oldest plain updates put together once there are more than ten of
    them.
    """
    updates = sorted(
        (who for who in managed if who.operation == UPDATE),
        key=lambda who: (managed[who].time, who.manager),
    )
    surplus = len(updates) - _MOST_UPDATE_OWNERS
    if surplus <= 0:
        return managed
    result = dict(managed)
    for who in updates[: surplus + 1]:
        entry = result.pop(who)
        bucket = Owner(_ANCIENT, UPDATE, entry.api_version)
        held = result.get(bucket, Entry(FieldSet(), entry.api_version))
        result[bucket] = Entry(
            held.owned.union(entry.owned), entry.api_version, max(held.time, entry.time)
        )
    return result


def conflict_error(found: dict[Owner, FieldSet]) -> ApiError:
    """Return the 409 that tells an applier whose fields it would take."""
    listed: list[tuple[Owner, Path]] = [
        (who, path)
        for who in sorted(found, key=lambda who: who.shown())
        for path in found[who].paths()
    ]
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {who.shown()}",
            "field": fields.text(path),
        }
        for who, path in listed
    ]
    if len(listed) == 1:
        who, path = listed[0]
        message = f"Apply failed with 1 conflict: conflict with {who.shown()}: {fields.text(path)}"
    else:
        message = f"Apply failed with {len(listed)} conflicts: " + "\n".join(_conflict_lines(found))
    return failure(409, "Conflict", message, {"causes": causes})


def _conflict_lines(found: dict[Owner, FieldSet]) -> Iterable[str]:
    for who in sorted(found, key=lambda who: who.shown()):
        yield f"conflicts with {who.shown()}:"
        for path in found[who].paths():
            yield f"- {fields.text(path)}"
