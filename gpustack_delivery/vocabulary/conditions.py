"""Conditions: what a controller says about an object, one entry a type.

A condition's transition time moves when its status does; a new reason or message alone leaves it
where it was.

    >>> first = Condition("Ready", "False", "Starting")
    >>> settled = assign((), first, now=0.0)
    >>> assign(settled, Condition("Ready", "False", "StillStarting"), now=60.0)[0].transition_time
    0.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import optional_time, present, write_optional_time

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: `status` is True, False or Unknown as text; times count from the epoch."""

    type: str
    status: str
    reason: str
    message: str = ""
    transition_time: float | None = None
    observed_generation: int = 0

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a condition."""
        return cls(
            type=wire.get("type", ""),
            status=wire.get("status", UNKNOWN),
            reason=wire.get("reason", ""),
            message=wire.get("message", ""),
            transition_time=optional_time(wire.get("lastTransitionTime")),
            observed_generation=wire.get("observedGeneration", 0),
        )

    def to_wire(self) -> Json:
        """Write a condition."""
        return present(
            {
                "type": self.type,
                "status": self.status,
                "reason": self.reason,
                "observedGeneration": self.observed_generation,
                "lastTransitionTime": write_optional_time(self.transition_time),
            }
        ) | {"message": self.message}


Conditions = tuple[Condition, ...]


def read_conditions(status: Mapping[str, Any]) -> Conditions:
    """Read the conditions of an object's status."""
    return tuple(Condition.from_wire(wire) for wire in status.get("conditions") or ())


def write_conditions(conditions: Iterable[Condition]) -> list[Json]:
    """Write conditions in their order."""
    return [condition.to_wire() for condition in conditions]


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def holds(conditions: Iterable[Condition], kind: str) -> bool:
    """Say whether the condition of a type is True."""
    found = find(conditions, kind)
    return found is not None and found.status == TRUE


def assign(
    conditions: Sequence[Condition], wanted: Condition, *, now: float, restamp: bool = False
) -> Conditions:
    """Return the conditions with `wanted` in the place of its type, or at the end.

    Its transition time is `now`, cut to the second, if the status changed or `restamp` asks for it;
    else the time that was there.
    """
    stored = find(conditions, wanted.type)
    if stored is None or stored.status != wanted.status or restamp:
        stamped = replace(wanted, transition_time=float(int(now)))
    else:
        stamped = replace(wanted, transition_time=stored.transition_time)
    if stored is None:
        return (*conditions, stamped)
    return tuple(stamped if item.type == wanted.type else item for item in conditions)
