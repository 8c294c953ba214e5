"""What a broken version is, and the seams that several of them patch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from emulator.chart import render
from gpustack_delivery import embedded

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken version: how it comes about, and the rules whose tests must each notice."""

    apply: Callable[[Patch], None]
    rules: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return self.apply.__name__.replace("_", "-")


def breaks(*rules: str) -> Callable[[Callable[[Patch], None]], Mutant]:
    """Make a mutant of a function that patches the implementation, and name what it breaks."""
    return lambda apply: Mutant(apply, rules)


class Around:
    """A port with some of its calls or facts replaced."""

    def __init__(self, port: Any, **calls: Any) -> None:
        self._port = port
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def change_world(patch: Patch, **changes: Callable[[Any], Any]) -> None:
    """Give plugins a world in which some ports were changed."""
    world = embedded._world

    def changed(*args: Any) -> Any:
        found = world(*args)
        return replace(
            found, **{name: change(getattr(found, name)) for name, change in changes.items()}
        )

    patch.setattr(embedded, "_world", changed)


def change_chart(patch: Patch, change: Callable[[Any], None]) -> None:
    """Install what the chart renders with every object changed in place."""

    def rendered(*args: Any, **named: Any) -> list[Any]:
        found = copy.deepcopy(render(*args, **named))
        for body in found:
            change(body)
        return found

    patch.setattr(embedded, "render", rendered)


def idle(*_: Any) -> None:
    """Do nothing."""


def never(*_: Any) -> bool:
    """Say no."""
    return False
