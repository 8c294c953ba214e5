"""`make soak`: kills, power cuts and races for a bounded time, as root.

    python -m tests.soak [--seconds N] [--seed N] [--only prove|crash|power|race]

prove   first of all, each mutant is led into the attack that must notice it
crash   a plugin is killed at every named step of a life and of the lives after a death, and then
        along chains of deaths at random steps and moments
power   the same chains, and each death is a power cut: what was not synced is there, gone or torn
race    many Pods, deaths, collections and cancellations at once

A line is printed for each; the first broken invariant ends it with status 1 and the seed and plans
that led there. So does a mutant that was not caught, or a named step at which no plugin died. The
mutants and the named steps are always gone through; the seconds are shared by what is random.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpustack_delivery.terminal import Parser, whole_number
from spec_tests.needs import missing
from tests.soak.lives import Tour, chains, live, node
from tests.soak.power import PowerCut
from tests.soak.proving import prove
from tests.soak.races import race
from tests.soak.scene import Scene

Over = Callable[[], bool]
Attack = Callable[[Over, random.Random], str]
SHARES: Final = {"prove": 0.0, "crash": 0.5, "power": 0.3, "race": 0.2}


def crash(over: Over, chance: random.Random) -> str:
    """Kill at each named step, then at random."""
    with node() as world, Scene(world) as scene:
        tour = Tour(scene, world.models)
        tour.walk()
        named = scene.deaths
        for plans in chains(tour.steps, chance):
            if over():
                break
            live(scene, world.models, plans)
        kills = scene.deaths - named
        return f"{named} kills at all of {len(tour)} named steps, {kills} at random"


def power(over: Over, chance: random.Random) -> str:
    """Cut the power at random."""
    with node() as world, Scene(world, PowerCut(chance)) as scene:
        live(scene, world.models, [])
        steps = scene.steps()
        arriving = [step for step in steps if "partial/H/N" in step]
        for pair in zip(chains(arriving, chance), chains(steps, chance), strict=False):
            for plans in pair:
                live(scene, world.models, plans)
            if over():
                break
        return f"{scene.deaths} power cuts at {len(scene.died_at)} named steps"


ATTACKS: Final[Mapping[str, Attack]] = {
    "prove": prove,
    "crash": crash,
    "power": power,
    "race": race,
}


def _deadline(seconds: float) -> Over:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def main(argv: Sequence[str] | None = None) -> int:
    """Run them and print what was survived."""
    parser = Parser(prog="python -m tests.soak", description="Attack the plugin.")
    usual = os.environ.get("SOAK_SECONDS", "300")
    parser.add_argument("--seconds", type=whole_number(1, 86400), default=usual, metavar="N")
    parser.add_argument(
        "--seed", type=whole_number(0, 2**32 - 1), default=random.SystemRandom().randrange(1 << 32)
    )
    parser.add_argument("--only", choices=sorted(SHARES))
    args = parser.parse_args(argv)
    if missing(("kernel-mounts",)):
        sys.stderr.write("soak: needs root and the right to unshare the mount namespace\n")
        return 2
    for name in [args.only] if args.only else SHARES:
        seconds = args.seconds * (1.0 if args.only else SHARES[name])
        try:
            survived = ATTACKS[name](_deadline(seconds), random.Random(args.seed))  # noqa: S311 - repeatable
        except AssertionError as error:
            sys.stderr.write(f"soak: {name} broke with --seed {args.seed}: {error}\n")
            return 1
        sys.stdout.write(f"{name:6} {survived} (seed {args.seed})\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
