"""What is delivered in each comparison, and the most that our side may take of a peer's time.

The limits are ratios of wall time; absolute figures depend on the machine and are only shown.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SNAPSHOT = "huggingface_hub.snapshot_download"
_ARIA2 = "aria2c -x8 --checksum=sha-256"
_PIPELINE = "curl | tee | openssl dgst -sha256"

PEAK_MIB = 220.0
"""The most memory that our side may hold while it downloads, whatever the size."""


@dataclass(frozen=True)
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

    def build(self, folder: Path, scale: float) -> dict[str, tuple[int, str]]:
        """Write the files and return each one's size and SHA-256."""
        folder.mkdir(parents=True)
        files = {}
        size = max(1, int(self.size_bytes * scale))
        for number in range(self.count):
            large = self.size_bytes > 1 << 20
            name = f"{number:04}.safetensors" if large else f"{number % 50:02}/{number:04}.json"
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            digest = hashlib.sha256()
            with path.open("wb") as file:
                for at in range(0, size, 16 << 20):
                    piece = os.urandom(min(16 << 20, size - at))
                    file.write(piece)
                    digest.update(piece)
            files[name] = (size, digest.hexdigest())
        return files


SCENARIOS = (
    Scenario(
        "one file of 1 GiB, http",
        1,
        1 << 30,
        tls=False,
        limits={_SNAPSHOT: 0.55, _ARIA2: 0.75, _PIPELINE: 0.80, "curl": 1.25},
    ),
    Scenario(
        "one file of 1 GiB, https", 1, 1 << 30, tls=True, limits={_SNAPSHOT: 1.0, _ARIA2: 0.90}
    ),
    Scenario("30 shards of 64 MiB, http", 30, 64 << 20, tls=False, limits={_SNAPSHOT: 0.6}),
    Scenario("5000 files of 4 KiB, http", 5000, 4 << 10, tls=False, limits={_SNAPSHOT: 0.5}),
)
