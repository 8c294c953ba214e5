"""One kind's rules, as the model asks for them; `Builtin` and `custom.Custom` are its families."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.contracts import Caller, Json, Resource
from emulator.errors import Cause, invalid_value
from emulator.kinds import metadata

Lookup = Callable[[tuple[str, str], str, str], Json | None]
"""Reads a stored object: collection (group, plural), namespace, name."""


@dataclass(frozen=True, slots=True)
class Admitting:
    """What a kind's own admission may use: the caller, other objects, and random suffixes."""

    caller: Caller
    lookup: Lookup
    suffix: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column: `cell` takes an object and the time, in seconds."""

    name: str
    type: str
    cell: Callable[[Json, float], Any]
    format: str = ""
    description: str = ""
    priority: int = 0

    def to_wire(self) -> Json:
        """Return the column's definition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


class Kind(abc.ABC):
    """Rules of one resource. Instances hold no state of objects and are shared by all requests."""

    unconditional_update = False  # may a PUT come without resourceVersion?
    returns_deleted = False  # does a delete answer with the object instead of a Status?
    counts_generation = False  # does metadata.generation count changes of the spec?
    marks_grace = True  # does a deletion write its grace period, and count as a generation?

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    @property
    def schema(self) -> Json | None:
        """Return the structural schema of a custom resource; None for a built-in kind."""
        return None

    @property
    def namer(self) -> Callable[[str], list[str]]:
        """Return the check of names."""
        return metadata.subdomain_faults

    @property
    def has_status(self) -> bool:
        """Say whether status is a subresource."""
        return "status" in self.resource.subresources

    @abc.abstractmethod
    def decode(self, body: Json) -> tuple[Json, list[str]]:
        """Return a cleaned private copy, and what strict decoding finds. Raises ApiError."""

    @abc.abstractmethod
    def fill(self, object_: Json) -> None:
        """Apply defaults in place."""

    def admit(self, object_: Json, given: Admitting) -> None:  # noqa: B027 - most kinds have none
        """Do on create what the server's own admission plugins do. Raises ApiError."""

    def begin(self, object_: Json) -> None:
        """Reset on create what the caller may not set: status above all."""
        if self.has_status:
            object_.pop("status", None)
        if self.counts_generation:
            object_["metadata"]["generation"] = 1

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Reset on update what this way of writing may not change, in place."""
        if subresource == "status":
            self.carry_to_status(object_, old)
        elif self.has_status:
            _keep(object_, old, "status")

    def carry_to_status(self, object_: Json, old: Json) -> None:
        """Reset on a status update all but status, labels and annotations."""
        for part in dict.fromkeys((*object_, *old)):
            if part not in ("status", "metadata", "apiVersion", "kind"):
                _keep(object_, old, part)
        _keep(object_["metadata"], old["metadata"], "ownerReferences")

    def bumps_generation(self, object_: Json, old: Json) -> bool:
        """Say whether an update changes what generation counts."""
        return self.counts_generation and object_.get("spec") != old.get("spec")

    def grace_seconds(self, object_: Json, asked: int | None) -> int:
        """Return how long a deleted object has to end itself; only Pods on a node get any time."""
        return 0

    def die(self, object_: Json, now: str) -> bool:
        """Mark an object for deletion as its kind does; True when that keeps it."""
        return False

    def released(self, object_: Json) -> bool:
        """Say whether nothing keeps an object any more whose deletion has begun."""
        metadata_ = object_["metadata"]
        return not metadata_.get("finalizers") and not metadata_.get("deletionGracePeriodSeconds")

    def faults(self, object_: Json, old: Json | None, subresource: str) -> list[Cause]:
        """Return everything that is wrong with an object that is about to be stored."""
        found = [*metadata.named(object_["metadata"])]
        if not found and old is None:
            name = object_["metadata"]["name"]
            found += [invalid_value("metadata.name", name, fault) for fault in self.namer(name)]
        found += metadata.general(object_["metadata"])
        if old is not None:
            found += metadata.update(object_["metadata"], old["metadata"])
        return [*found, *self.own_faults(object_, old, subresource)]

    def own_faults(
        self, object_: Json, old: Json | None, subresource: str
    ) -> Iterator[Cause] | Sequence[Cause]:
        """Yield what is wrong with an object beyond its metadata."""
        return ()

    def warnings(self, object_: Json) -> list[str]:
        """Return the warnings a write of this object gets."""
        return []

    def selectable(self, object_: Json) -> Mapping[str, str]:
        """Return the values of the fields a selector may name, besides metadata."""
        return {}

    @property
    def selectable_names(self) -> frozenset[str]:
        """Return the names of those fields."""
        return frozenset()

    @abc.abstractmethod
    def columns(self) -> Sequence[Column]:
        """Return the printer columns."""

    def convert(self, object_: Json) -> Json:
        """Return a stored object in this resource's version; the object itself when it is in it."""
        return object_

    def store_form(self, object_: Json) -> Json:
        """Return an object of this resource's version as the store keeps it."""
        return object_


def _keep(object_: Json, old: Json, part: str) -> None:
    if part in old:
        object_[part] = old[part]
    else:
        object_.pop(part, None)
