"""Several admission steps as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from emulator.contracts import Admission, Attributes, Json


class Chain:
    """Runs steps in order; the first that refuses ends it."""

    def __init__(self, *steps: Admission) -> None:
        """`steps` see what the ones before them made of the object."""
        self._steps = steps

    def mutate(self, attributes: Attributes, warn: Callable[[str], None]) -> Json | None:
        """Return what the steps made of the object, None when none changed it."""
        result: Json | None = None
        for step in self._steps:
            changed = step.mutate(attributes, warn)
            if changed is not None:
                result = changed
                attributes = replace(attributes, object=changed)
        return result

    def validate(self, attributes: Attributes, warn: Callable[[str], None]) -> None:
        """Refuse the write when a step does."""
        for step in self._steps:
            step.validate(attributes, warn)
