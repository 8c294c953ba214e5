"""Whether bytes fit under a watermark, and how high the watermark may be beside kubelet.

Usage is the whole filesystem's, by everything on it. Beside kubelet on one filesystem the high
watermark stays five points below the lowest line at which kubelet would evict Pods or collect
images, so that the cache gives way first. All arithmetic is exact; a boundary that is met exactly
still fits.

Rules: NS-DL-06, NS-DL-08, NS-GC-10, NS-REQ-03, OP-CAP-01.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from gpustack_delivery.vocabulary.node_store import KubeletThresholds, Watermarks
from gpustack_delivery.vocabulary.quantity import parse, parse_bytes

MARGIN_PERCENT: Final = 5
LOWEST_CAP_PERCENT: Final = 2
DEFAULT_NODEFS_PERCENT: Final = 10
DEFAULT_IMAGEFS_PERCENT: Final = 15
DEFAULT_IMAGE_GC_PERCENT: Final = 85


class Usage(Protocol):
    """A filesystem's size and what is taken of it, blocks reserved for root counted as taken."""

    @property
    def total_bytes(self) -> int:
        """Return the filesystem's size."""

    @property
    def used_bytes(self) -> int:
        """Return what is taken of it."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A running download's claim: what it will hold in the end, and what it has written already."""

    size_bytes: int
    written_bytes: int

    @property
    def unwritten_bytes(self) -> int:
        """Return what is still to come; what is written already shows in the usage."""
        return max(self.size_bytes - self.written_bytes, 0)


@dataclass(frozen=True, slots=True)
class Effective:
    """The watermarks in force, and what the Ready condition should say of them; "" if nothing."""

    watermarks: Watermarks
    note: str = ""


def fits(usage: Usage, more_bytes: int, percent: int) -> bool:
    """Say whether `more_bytes` on top of the usage stay within a percentage of the filesystem."""
    wanted = usage.used_bytes + more_bytes
    return usage.total_bytes > 0 and wanted * 100 <= percent * usage.total_bytes


def outstanding_bytes(reservations: Iterable[Reservation]) -> int:
    """Return what all reservations together have yet to write."""
    return sum(reservation.unwritten_bytes for reservation in reservations)


def used_percent(usage: Usage) -> int:
    """Return the usage in percent, rounded down to a multiple of 5."""
    if usage.total_bytes <= 0:
        return 0
    return usage.used_bytes * 20 // usage.total_bytes * 5


def effective(
    configured: Watermarks, thresholds: KubeletThresholds | None, total_bytes: int
) -> Effective:
    """Return the watermarks in force on a filesystem that the cache shares with kubelet.

    Args:
        configured: the watermarks of the spec.
        thresholds: kubelet's own, or None if they were never read; then its defaults hold.
        total_bytes: the filesystem's size, to convert a quantity into a share.
    """
    cap, notes = _cap(thresholds, total_bytes)
    if configured.high_percent <= cap:
        return Effective(configured, "; ".join(notes))
    notes.insert(
        0,
        f"the high watermark is capped at {cap}% instead of {configured.high_percent}%, "
        "below kubelet's own thresholds on the filesystem they share",
    )
    capped = Watermarks(cap, min(configured.low_percent, cap - 1))
    return Effective(capped, "; ".join(notes))


def _cap(thresholds: KubeletThresholds | None, total_bytes: int) -> tuple[int, list[str]]:
    notes = []
    if thresholds is None:
        notes.append("kubelet's thresholds were never read, so its defaults are assumed")
        thresholds = KubeletThresholds()
    nodefs, nodefs_note = _share(
        "nodefs.available", thresholds.nodefs_available, DEFAULT_NODEFS_PERCENT, total_bytes
    )
    imagefs, imagefs_note = _share(
        "imagefs.available", thresholds.imagefs_available, DEFAULT_IMAGEFS_PERCENT, total_bytes
    )
    image_gc = thresholds.image_gc_high_percent
    if image_gc is None:
        image_gc = DEFAULT_IMAGE_GC_PERCENT
    notes += [note for note in (nodefs_note, imagefs_note) if note]
    lowest_line = min(100 - nodefs, 100 - imagefs, image_gc)
    cap = lowest_line - MARGIN_PERCENT
    if cap < LOWEST_CAP_PERCENT:
        cap = LOWEST_CAP_PERCENT
        notes.append(f"kubelet's thresholds leave no room, so the cap is held at {cap}%")
    return cap, notes


def _share(name: str, text: str, default_percent: int, total_bytes: int) -> tuple[int, str]:
    """Return a threshold in whole percent, rounded up, and a note if it was set aside."""
    if not text:
        return default_percent, ""
    try:
        if text.endswith("%"):
            percent = parse(text[:-1])
            if not 0 <= percent <= 100:
                raise ValueError(f"{text!r} is not between 0% and 100%")
            return ceil(percent), ""
        size = parse_bytes(text)
    except ValueError:
        return default_percent, (
            f"kubelet's {name} threshold cannot be read, so {default_percent}% is assumed"
        )
    if total_bytes <= 0:
        return default_percent, ""
    return min(-(-size * 100 // total_bytes), 100), ""
