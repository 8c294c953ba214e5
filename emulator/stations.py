"""The stations of a write: patch, managed fields, mutation, validation. `writes` sends objects
through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from emulator.contracts import (
    Attributes,
    Caller,
    FieldWrite,
    Json,
    Patch,
    Target,
    WriteOptions,
)
from emulator.errors import bad_request, internal, invalid, not_found
from emulator.kinds.kind import Admitting, Kind
from emulator.state import State

APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Write:
    """One write on its way: who, where, with which options, and the warnings it has collected."""

    caller: Caller
    target: Target
    kind: Kind
    options: WriteOptions
    warnings: list[str]
    operation: str = "CREATE"
    applied: bool = False  # by server-side apply, which has done the managed fields already
    silent: bool = False  # a binding owns no fields and is judged as what it is, not as a Pod
    shown: Callable[[Json], Json] | None = None  # what admission sees instead of the object


class Stations:
    """What a write passes between decoding and the store."""

    def __init__(self, state: State) -> None:
        self._state = state

    def patched(self, write: Write, patch: Patch, current: Json | None) -> Json:
        """Return what a patch makes of the current object. Raises ApiError."""
        patcher = self._state.steps.patcher
        if patcher is None:
            raise internal("this server was built without a Patcher, so PATCH is not emulated")
        if write.applied:
            return patcher.apply(write.target, patch, current, self.field_write(write))
        if current is None:
            raise not_found(write.target.resource, write.target.name)
        return patcher.patch(write.target, patch, current, write.kind.schema)

    def field_write(self, write: Write) -> FieldWrite:
        """Return who writes, when and how."""
        return FieldWrite(
            manager=write.options.field_manager or write.caller.manager,
            operation="Apply" if write.applied else "Update",
            time="" if write.target.subresource == "scale" else self._state.now(),
            subresource=write.target.subresource,
            force=write.options.force,
            schema=write.kind.schema,
        )

    def track_and_mutate(self, write: Write, old: Json | None, object_: Json) -> Json:
        """Record the fields' owners, then let the server's own plugins and webhooks change it."""
        patcher, admission = self._state.steps.patcher, self._state.steps.admission
        if patcher is not None and not write.silent and not write.applied:
            patcher.track(write.target, old, object_, self.field_write(write))
        if old is None:
            name = object_["metadata"].get("name", "")
            given = Admitting(write.caller, self._state.lookup, lambda: self._state.suffix(name))
            write.kind.admit(object_, given)
        if admission is None or write.silent:
            return object_
        mutated = admission.mutate(self.attributes(write, old, object_), write.warnings.append)
        if mutated is None:
            return object_
        if write.shown is not None:
            text = "a mutating webhook changed a scale, which is not emulated"
            raise internal(text)
        object_, _ = write.kind.decode(mutated)
        write.kind.fill(object_)
        if old is not None:
            carry_metadata(object_["metadata"], old["metadata"])
            write.kind.carry(object_, old, write.target.subresource)
        return object_

    def check(self, write: Write, old: Json | None, object_: Json) -> None:
        """Refuse an object that breaks the rules of its kind. Raises ApiError 422."""
        faults = write.kind.faults(object_, old, write.target.subresource)
        write.warnings.extend(write.kind.warnings(object_))
        if faults:
            resource, name = write.target.resource, object_["metadata"].get("name", "")
            raise invalid(_group_in_messages(resource.group), resource.kind, name, faults)

    def validate(self, write: Write, old: Json | None, object_: Json) -> None:
        """Let validating admission refuse the write. Raises ApiError."""
        admission = self._state.steps.admission
        if admission is not None and not write.silent:
            admission.validate(self.attributes(write, old, object_), write.warnings.append)

    def attributes(self, write: Write, old: Json | None, object_: Json | None) -> Attributes:
        """Return what admission judges of a write."""
        name = (object_ or old or {"metadata": {}})["metadata"].get("name", "")
        kind = "CreateOptions" if write.operation == "CREATE" else "UpdateOptions"
        return Attributes(
            caller=write.caller,
            operation=write.operation,
            target=write.target if write.target.name == name else replace(write.target, name=name),
            object=write.shown(object_) if write.shown and object_ else object_,
            old_object=write.shown(old) if write.shown and old else old,
            options=write.options.to_wire(kind),
            dry_run=write.options.dry_run,
        )

    def complain(self, write: Write, complaints: list[str]) -> None:
        """Warn of what strict decoding found, or refuse it. Raises ApiError 400."""
        if not complaints or write.options.field_validation == "Ignore":
            return
        if write.options.field_validation == "Strict":
            kind, version = write.target.resource.kind, write.target.resource.version
            text = (
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding '
                f"error: "
            )
            raise bad_request(text + ", ".join(complaints))
        write.warnings.extend(complaints)


def carry_metadata(metadata: Json, old: Json) -> None:
    """Keep in an update what only the server writes."""
    for part in ("uid", "creationTimestamp"):
        metadata.setdefault(part, old[part])
    for part in ("generation", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"):
        if part in old:
            metadata[part] = old[part]
        else:
            metadata.pop(part, None)
    metadata.pop("selfLink", None)


def _group_in_messages(group: str) -> str:
    # Events of the newer group are validated as core objects and called so.
    return "" if group == "events.k8s.io" else group
