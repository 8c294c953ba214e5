"""The hash that can be put down and picked up, beside the one that cannot."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from typing import Final

from gpustack_delivery.adapters.hashing import Hashing
from tests.performance.bench import Bench
from tests.performance.rows import HASH, Finding

_SEGMENT: Final = 8 << 20
_SEGMENTS: Final = 128


def throughput(bench: Bench) -> list[Finding]:
    """Hash a GiB with each, segment by segment as the engine does."""
    hashing, segment = Hashing(), memoryview(bytearray(_SEGMENT))
    starts: dict[str, Callable[[], Callable[[memoryview], None]]] = {
        "ours": lambda: hashing.start("sha256", 0).update,
        "hashlib": lambda: hashlib.sha256().update,
    }
    speeds: dict[str, list[float]] = {name: [] for name in starts}
    for _ in bench.each("hash"):
        for name in random.sample(list(starts), k=len(starts)):
            update, began = starts[name](), time.monotonic()
            for _ in range(_SEGMENTS):
                update(segment)
            gib = _SEGMENTS * _SEGMENT / (1 << 30)
            speeds[name].append(gib / (time.monotonic() - began))
    return [HASH.beside(speeds["ours"], speeds["hashlib"])]
