"""The life that a node is put through again and again, and where in it a plugin may die."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tests.soak.scene import Scene
from tests.soak.steps import Plan
from tests.soak.world import Model

CHAIN: Final = 4
_LONGEST_LIFE_SECONDS: Final = 0.6


def live(scene: Scene, models: Sequence[Model], plans: Sequence[Plan]) -> None:
    """Mount, share, unmount, find damage, deliver again; die where the plans say."""
    first, second = models[:2]
    scene.reset(plans)
    scene.mount(first, "p1")
    scene.mount(first, "p2")
    scene.unmount("p1")
    scene.mount(second, "p3")
    scene.unmount("p3")
    scene.damage(second)
    scene.mount(second, "p3")
    scene.unmount("p2")
    scene.finish()


def each_step(steps: Sequence[str]) -> list[Plan]:
    """Return a plan for each named step of a life: the first time it comes."""
    return [Plan(step) for step in dict.fromkeys(steps)]


def chains(steps: Sequence[str], chance: random.Random) -> Iterator[list[Plan]]:
    """Yield chains of deaths without end: at a step by its name and number, or at any moment."""
    counts = Counter(steps)
    names = sorted(counts)
    while True:
        plans = []
        for _ in range(chance.randint(1, CHAIN)):
            if chance.random() < 0.25:
                plans.append(Plan(seconds=chance.uniform(0.01, _LONGEST_LIFE_SECONDS)))
            else:
                # Half of them where most happens, half of them where little does.
                step = chance.choice(chance.choice((names, steps)))
                plans.append(Plan(step, chance.randint(1, counts[step])))
        yield plans
