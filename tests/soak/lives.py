"""The life that a node is put through again and again, and where in it a plugin may die.

`Tour` visits every named step there is: those of an undisturbed life, and those that only a life
after a death has, such as clearing what the dead one left. Chains of deaths go on from there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tests.soak.scene import Scene
from tests.soak.steps import Plan
from tests.soak.world import Model, World

CHAIN: Final = 4
MODELS: Final = 3
HIGH, LOW = 27, 20
"""Watermarks between which two models fit and a third one makes room first."""

MILESTONES: Final = tuple(
    f"{moment} {step}"
    for step in (
        "pwrite partial/H/N/tree/*",
        "fsync partial/H/N/tree/*",
        "replace partial/H/N/state/X.json",
        "chmod partial/H/N/tree/*",
        "fsync partial/H/N/marker.tmp",
        "replace partial/H/N/marker",
        "rename published/H",
        "fsync published",
        "fsync ledger/refs/X.json.tmp",
        "replace ledger/refs/X.json",
        "bind target",
        "unmount target",
        "unlink ledger/refs/X.json",
        "replace ledger/digests/X.json",
        "unlink ledger/digests/X.json",
        "rename trash/H",
        "rename partial/H/N",
    )
    for moment in ("before", "after")
)
"""Steps that a tour must have found, by whatever way: each is one that the contract names."""

_TRIES: Final = 8
_LONGEST_LIFE_SECONDS: Final = 0.6


def node() -> World:
    """Return a world in which a life has every kind of step."""
    return World(models=MODELS, high=HIGH, low=LOW)


def live(scene: Scene, models: Sequence[Model], plans: Sequence[Plan]) -> None:
    """Mount, share, unmount, find damage, deliver again, make room; die where the plans say.

    Raises:
        AssertionError: an invariant broke; the message ends with the plans.
    """
    try:
        _live(scene, models, plans)
    except AssertionError as error:
        raise AssertionError(f"{error}, after deaths at {plans}") from error


def _live(scene: Scene, models: Sequence[Model], plans: Sequence[Plan]) -> None:
    first, second, third = models
    scene.reset(plans)
    scene.mount(first, "p1")
    scene.mount(first, "p2")
    scene.unmount("p1")
    scene.mount(second, "p3")
    scene.unmount("p3")
    scene.damage(second)
    scene.mount(second, "p3")
    scene.unmount("p2")
    scene.give_up(first)
    scene.mount(third, "p4")
    scene.finish()


class Tour:
    """Dies at each named step, at least once.

    Args:
        scene: where.
        models: of its world.
    """

    def __init__(self, scene: Scene, models: Sequence[Model]) -> None:
        self._scene = scene
        self._models = models
        self._ways: dict[str, list[list[Plan]]] = {}  # a way may have led there by chance
        self._tries: Counter[str] = Counter()
        self.steps: list[str] = []

    def __len__(self) -> int:
        """Return how many named steps were found."""
        return len(self._ways)

    def walk(self) -> None:
        """Die at every step that is found, those included that are found on the way.

        Raises:
            AssertionError: an invariant broke, a milestone is unknown, or a step was never reached.
        """
        self._live([])
        self.steps = self._scene.steps()
        died_at = self._scene.died_at
        while left := [s for s in self._ways if s not in died_at and self._tries[s] < _TRIES]:
            for step in left:
                if step not in died_at:  # on the way to another
                    ways = self._ways[step]
                    self._live(ways[self._tries[step] % len(ways)])
                    self._tries[step] += 1
        self._judge()

    def _live(self, plans: list[Plan]) -> None:
        live(self._scene, self._models, plans)
        for deaths, steps in enumerate(self._scene.lives()):
            if deaths <= len(plans):
                for step in set(steps) - self._scene.died_at:
                    way, ways = [*plans[:deaths], Plan(step)], self._ways.setdefault(step, [])
                    if way not in ways and len(ways) < _TRIES:
                        ways.append(way)

    def _judge(self) -> None:
        unknown = [step for step in MILESTONES if step not in self._ways]
        assert not unknown, f"no plugin took these steps: {unknown}"
        never = {step: ways for step, ways in self._ways.items() if step not in self._scene.died_at}
        assert not never, f"no plugin died at these steps: {never}"


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
