"""Label selectors: which labelled objects a selector matches.

Rules: MP-RES-01, MP-PLC-02.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import present

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
_OPERATORS: Final = frozenset({IN, NOT_IN, EXISTS, DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression: a label key, an operator, and its values if the operator takes any."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Say whether the operator exists and has the values it needs."""
        return self.operator in _OPERATORS and bool(self.values) == (self.operator in {IN, NOT_IN})

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels satisfy this expression; one that is not valid, none do."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":  # holds for an absent key too
                return bool(self.values) and labels.get(self.key) not in self.values
            case "Exists":
                return not self.values and self.key in labels
            case "DoesNotExist":
                return not self.values and self.key not in labels
        return False


@dataclass(frozen=True, slots=True)
class Selector:
    """A LabelSelector; an empty one matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read a selector; `matchLabels` become In expressions."""
        labels = wire.get("matchLabels") or {}
        expressions = wire.get("matchExpressions") or ()
        return cls(
            (
                *(Requirement(key, IN, (labels[key],)) for key in sorted(labels)),
                *(
                    Requirement(
                        item.get("key", ""),
                        item.get("operator", ""),
                        tuple(item.get("values") or ()),
                    )
                    for item in expressions
                ),
            )
        )

    def to_wire(self) -> Json:
        """Write the selector, every requirement as an expression."""
        return present(
            {
                "matchExpressions": [
                    {"key": item.key, "operator": item.operator}
                    | present({"values": list(item.values)})
                    for item in self.requirements
                ]
            }
        )

    @property
    def is_valid(self) -> bool:
        """Say whether every expression is well formed; one that is not selects nothing."""
        return all(requirement.is_valid for requirement in self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether an object with these labels is selected."""
        return all(item.matches(labels) for item in self.requirements)
