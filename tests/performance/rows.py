"""What the bench shows: every row as data, with the most or the least that it may be.

A row sets our figure beside a peer's, in one unit. What is judged is their ratio, or our figure
itself where nothing stands beside it. Rows without a limit are for the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Finding:
    """A row with its figures.

    Args:
        ours, theirs: medians over the rounds; `theirs` is None where nothing stands beside ours.
        judged: the median of the paired ratios, or our figure alone.
    """

    row: Row
    ours: float
    theirs: float | None
    judged: float
    rounds: int

    @property
    def missed(self) -> bool:
        """Say whether the row's limit does not hold."""
        row = self.row
        over = row.at_most is not None and self.judged > row.at_most
        return over or (row.at_least is not None and self.judged < row.at_least)

    def to_wire(self) -> dict[str, Any]:
        """Return the row and its figures for a program."""
        return {
            "row": self.row.name,
            "peer": self.row.peer,
            "unit": self.row.unit,
            "ours": self.ours,
            "theirs": self.theirs,
            "judged": self.judged,
            "atMost": self.row.at_most,
            "atLeast": self.row.at_least,
            "rounds": self.rounds,
            "ok": not self.missed,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison.

    Args:
        name: what is measured.
        unit: of both figures; a ratio has none.
        peer: whom or what ours is divided by, "" when our figure stands alone.
        at_most, at_least: what the ratio, or the figure that stands alone, may be.
    """

    name: str
    unit: str
    peer: str = ""
    at_most: float | None = None
    at_least: float | None = None

    def beside(self, ours: Sequence[float], theirs: Sequence[float]) -> Finding:
        """Judge paired rounds by the median of their ratios."""
        ratio = median(our / other for our, other in zip(ours, theirs, strict=True))
        return Finding(self, median(ours), median(theirs), ratio, len(ours))

    def alone(self, figures: Sequence[float]) -> Finding:
        """Judge our figures by their median."""
        found = median(figures)
        return Finding(self, found, None, found, len(figures))

    def worst(self, figures: Sequence[float]) -> Finding:
        """Judge our figures by the largest."""
        found = max(figures)
        return Finding(self, found, None, found, len(figures))


SNAPSHOT: Final = "huggingface_hub.snapshot_download"
ARIA2: Final = "aria2c -x8 --checksum=sha-256"
PIPELINE: Final = "curl | tee | openssl dgst -sha256"
CURL: Final = "curl"

PEAK: Final = Row("peak memory of the plugin", "MiB", at_most=220)
PEAK_BY_SIZE: Final = Row(
    "peak memory, a model of 1 GiB", "MiB", "a model of 256 MiB", at_most=1.15
)
CPU: Final = Row(
    "CPU for 2 GiB over http", "CPU s", "the floors: hash, receive and write it", at_most=1.30
)
HASH: Final = Row("resumable SHA-256", "GiB/s", "hashlib", at_least=0.95)
HIT: Final = Row("mount of a hit, p50", "ms", at_most=5)
HIT_SLOWEST: Final = Row("mount of a hit, p99", "ms")
HIT_BUSY: Final = Row("mount of a hit while downloading, p99", "ms", "while idle, p99", at_most=4)
HIT_PACED: Final = Row("mount of a hit beside 150 MiB/s, p99", "ms", "while idle, p99", at_most=4)
HITS: Final = Row("mounts of hits, 8 at a time", "per s")
RESUME: Final = Row(
    "asked again after kill -9, 2 GiB under way", "MiB", "64 MiB for each open file", at_most=1
)
FIRST_READ: Final = Row(
    "delivery and a Pod's first read, 2 GiB", "s", "aria2c -x8, sha256sum, read", at_most=0.8
)
FLEET: Final = Row(
    "sent by the hub to ten nodes, one digest", "MiB", "the model's size", at_most=1.02
)
START: Final = Row("start to ready, 1000 published trees", "s", "10 trees", at_most=2)
