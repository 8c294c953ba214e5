"""From the start of the process to the first answer, over caches of many and of few trees."""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters.host import KernelDisk, SystemClock
from gpustack_delivery.node.cache import CacheRoot
from gpustack_delivery.node.markers import Marker
from gpustack_delivery.node.trees import Trees
from gpustack_delivery.vocabulary.manifest import Entry, Manifest
from tests.performance.bench import Bench
from tests.performance.rows import START, Finding
from tests.performance.site import Plugin, site

_MANY: Final = 1000
_FEW: Final = 10
_FILES: Final = 10


def to_ready(bench: Bench) -> list[Finding]:
    """Start over each cache in turn."""
    seconds: dict[int, list[float]] = {_MANY: [], _FEW: []}
    with site() as here:
        for _ in bench.each("start"):
            for trees in random.sample(list(seconds), k=len(seconds)):
                _publish(here.plugin.node.cache_root, trees)
                seconds[trees].append(_start(here.plugin))
                here.plugin.clear()
    return [START.beside(seconds[_MANY], seconds[_FEW])]


def _start(plugin: Plugin) -> float:
    """Return the seconds from the process's first moment until it is ready."""
    plugin.start()
    ready = time.clock_gettime(time.CLOCK_BOOTTIME)
    seconds = ready - plugin.started()
    plugin.stop()
    return seconds


def _publish(cache: Path, trees: int) -> None:
    """Publish so many trees of small files as a download does."""
    disk = KernelDisk()
    root = CacheRoot(cache, disk)
    root.open()
    shelf = Trees(root, disk, SystemClock())
    for number in range(trees):
        workspace = root.partial / f"{number}"
        entries = []
        for index in range(_FILES):
            path = workspace / "tree" / f"{index}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            content = b"%d" % number
            path.write_bytes(content)
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            entries.append(Entry(path.name, len(content), digest))
        manifest = Manifest.of(entries)
        marker = Marker(manifest.digest, manifest.size_bytes, manifest.file_count, 0.0)
        shelf.publish(workspace, manifest, marker)
    root.close()
