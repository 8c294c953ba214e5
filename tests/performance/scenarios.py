"""What is delivered beside which peers, and the most that our side may take of each one's time.

Every limit is a ratio of wall time; absolute figures depend on the machine and are only shown.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.performance.rows import ARIA2, CURL, PIPELINE, SNAPSHOT
from tests.performance.site import Model, Site

_PIECE: Final = 16 << 20
_LARGE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """One repository over one kind of connection.

    Args:
        count: how many files.
        size_bytes: each file's size at full scale.
        limits: by peer, the most that our time divided by the peer's may be.
    """

    name: str
    count: int
    size_bytes: int
    tls: bool
    limits: Mapping[str, float]

    @property
    def large(self) -> bool:
        """Say whether its files are weights, rather than the small ones beside them."""
        return self.size_bytes > _LARGE

    def build(self, folder: Path, scale: float) -> dict[str, tuple[int, str]]:
        """Write the files and return each one's size and SHA-256."""
        size = max(1, int(self.size_bytes * (scale if self.large else 1.0)))
        names = [
            f"{n:04}.safetensors" if self.large else f"{n % 50:02}/{n:04}.json"
            for n in range(self.count)
        ]
        return {name: (size, random_file(folder / name, size)) for name in names}


def random_file(path: Path, size_bytes: int) -> str:
    """Write a file that does not compress and return its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for at in range(0, size_bytes, _PIECE):
            piece = os.urandom(min(_PIECE, size_bytes - at))
            file.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def served(here: Site, scenario: Scenario, folder: Path, scale: float = 1.0) -> Model:
    """Build a scenario's files and have a site serve them; the folder's name is the model's."""
    return here.model(folder.name, folder, scenario.build(folder, scale), tls=scenario.tls)


ONE_FILE: Final = Scenario(
    "one file of 2 GiB, http",
    1,
    2 << 30,
    tls=False,
    limits={SNAPSHOT: 0.55, ARIA2: 0.75, PIPELINE: 0.80, CURL: 1.25},
)
SHARDS: Final = Scenario(
    "30 shards of 64 MiB, http", 30, 64 << 20, tls=False, limits={SNAPSHOT: 0.6}
)
SMALL: Final = Scenario("ten files of 4 KiB", 10, 4 << 10, tls=False, limits={})
SCENARIOS: Final = (
    ONE_FILE,
    Scenario("one file of 1 GiB, https", 1, 1 << 30, tls=True, limits={SNAPSHOT: 1.0, ARIA2: 0.90}),
    SHARDS,
    Scenario("5000 files of 4 KiB, http", 5000, 4 << 10, tls=False, limits={SNAPSHOT: 0.5}),
)
