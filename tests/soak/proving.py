"""Shows that the attacks can fail: every mutant is caught, by the invariant that it breaks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Final

from tests.soak.lives import live, node
from tests.soak.mutants import MUTANTS, Mutant
from tests.soak.power import PowerCut
from tests.soak.races import race
from tests.soak.scene import Scene

_LIVES: Final = {"crash": 2, "power": 30}
"""How often a mutant is led through its life: what a power cut takes is up to chance."""

_TURNS: Final = 400
"""How often the Pods of a race look whether it is over."""


def prove(_: Callable[[], bool], chance: random.Random) -> str:
    """Lead each mutant into the attack that must notice it.

    Raises:
        AssertionError: one was not noticed, or for another reason than its own.
    """
    for mutant in MUTANTS.values():
        caught = ""
        try:
            (_race if mutant.attack == "race" else _lead)(mutant, chance)
        except AssertionError as error:
            caught = str(error)
        assert mutant.says in caught, f"the mutant {mutant.name} was not caught: {caught}"
    return f"{len(MUTANTS)} of {len(MUTANTS)} mutants caught"


def _lead(mutant: Mutant, chance: random.Random) -> None:
    power = PowerCut(chance) if mutant.attack == "power" else None
    with node() as world, Scene(world, power, mutant.name) as scene:
        for _ in range(_LIVES[mutant.attack]):
            live(scene, world.models, mutant.plans)


def _race(mutant: Mutant, chance: random.Random) -> None:
    turns = itertools.count()
    race(lambda: next(turns) > _TURNS, chance, mutant.name)
