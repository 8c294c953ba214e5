"""What every measurement is given: where to put files, how many rounds, whom to tell."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the bench.

    Args:
        folder: on the filesystem that is served from and delivered to.
        rounds: of every comparison.
        scale: shrinks large files, for a look that is no verdict.
        say: tells a person one line.
    """

    folder: Path
    rounds: int
    scale: float
    say: Callable[[str], None]

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give an empty folder, and remove it with everything in it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield Path(folder)

    def each(self, what: str) -> Iterator[int]:
        """Count the rounds, and say so."""
        for number in range(self.rounds):
            self.say(f"{what}: round {number + 1} of {self.rounds}")
            yield number
