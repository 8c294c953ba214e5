"""`make walk`: hours of conflicting writers, restarts and leader changes, and no update lost.

    python -m tests.writers [--hours 2] [--seed N] [--mutant NAME]

The hours are the cluster's. The seed is printed; with it the same things happen again. A mutant is
a worker that loses updates, and its walk must end with one.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Sequence

import pytest

from gpustack_delivery.terminal import Parser, number, whole_number
from tests.writers.mutants import MUTANTS
from tests.writers.walk import LostUpdateError, Walk


def main(argv: Sequence[str] | None = None) -> int:
    """Walk; return 0, or 1 with the seed and the last steps when an update was lost."""
    parser = Parser(prog="python -m tests.writers", description=main.__doc__)
    any_seed = random.SystemRandom().randrange(1 << 32)
    parser.add_argument("--hours", type=number(0.01, 1000), default=2.0, metavar="N")
    parser.add_argument("--seed", type=whole_number(0, 2**32 - 1), default=any_seed, metavar="N")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="walk with a broken worker")
    options = parser.parse_args(argv)
    logging.disable()  # the worker has a lot to complain of
    with pytest.MonkeyPatch.context() as patch:
        if options.mutant:
            MUTANTS[options.mutant](patch)
        return _walk(options.seed, options.hours)


def _walk(seed: int, hours: float) -> int:
    with Walk(seed) as walk:
        end = walk.clock.monotonic() + hours * 3600
        try:
            while walk.clock.monotonic() < end:
                walk.step()
        except LostUpdateError as lost:
            last = ", ".join(walk.acts[-12:])
            sys.stderr.write(
                f"walk: lost with --seed {seed} after {len(walk.acts)} steps, {last}: {lost}\n"
            )
            return 1
        steps = len(walk.acts)
    sys.stdout.write(f"{steps} steps in {hours} hours (seed {seed})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
