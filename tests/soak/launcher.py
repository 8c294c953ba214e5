"""Starts plugin processes to be killed, in a mount namespace and over a cache of their own.

    unshare --mount --propagation private python -m tests.soak.launcher KUBELET_DIR CACHE_ROOT

It puts a small tmpfs on the cache root, loads the plugin's modules once, and then does what the
lines of its standard input say, one JSON object each, answering each with one. Every plugin is a
fork of it that runs `gpustack-delivery model-manager`; finer segments, checkpoints and graces than
production's, the steps of `steps`, and a mutant's fault exist in that fork alone. Mounts go with
the namespace when this process ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from gpustack_delivery.__main__ import COMMANDS, main
from gpustack_delivery.adapters import kernel
from gpustack_delivery.adapters.host import KernelMounts
from gpustack_delivery.decisions import collection
from gpustack_delivery.node import attempts
from gpustack_delivery.node.cache import delete_tree
from gpustack_delivery.node.downloading import Downloader, Shape
from tests.soak.mutants import MUTANTS
from tests.soak.steps import Plan, Steps

SEGMENT: Final = 64 << 10
CHECKPOINT: Final = 128 << 10
CACHE_BYTES: Final = 12 << 20
ABANDONED_SECONDS: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1
Answer = dict[str, Any]


class Launcher:
    """At most one plugin at a time."""

    def __init__(self, kubelet: Path, cache: Path) -> None:
        self._kubelet = kubelet
        self._cache = cache
        self._child = 0
        self._status = 0

    def start(self, order: Answer) -> Answer:
        """Fork a plugin."""
        self._child = os.fork()
        if self._child == 0:
            self._become(order)
        return {"pid": self._child}

    def poll(self, _: Answer) -> Answer:
        """Say whether the plugin still runs."""
        if self._child and (ended := os.waitpid(self._child, os.WNOHANG)) != (0, 0):
            self._child, self._status = 0, ended[1]
        return {"running": bool(self._child), "status": self._status}

    def unmount(self, _: Answer) -> Answer:
        """Take every mount off the kubelet directory, as a power cut does."""
        for mount in reversed(KernelMounts().table()):
            if mount.target.is_relative_to(self._kubelet):
                kernel.unmount(mount.target, detach=True)
        return {}

    def clear(self, _: Answer) -> Answer:
        """Empty the cache."""
        for path in self._cache.iterdir():
            if path.is_dir():
                delete_tree(path)
            else:
                path.unlink()
        return {}

    def _become(self, order: Answer) -> None:
        """Be the plugin until it ends."""
        status = 70
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # no plugin outlives us
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            shape = Shape(segment_bytes=SEGMENT, checkpoint_bytes=CHECKPOINT)
            Downloader.__init__.__defaults__ = (shape,)
            collection.GRACE_SECONDS = 0.0  # type: ignore[misc]
            attempts.ABANDONED_SECONDS = ABANDONED_SECONDS  # type: ignore[misc]
            journal = Path(order["journal"]) if order["journal"] else None
            plan = Plan(order["step"], order["occurrence"], order["seconds"])
            watched = (self._cache, self._kubelet)
            if order["mutant"]:
                MUTANTS[order["mutant"]].breaks(pytest.MonkeyPatch())
            Steps(plan, watched, Path(order["trace"]), journal).install()
            status = main(["model-manager", *order["arguments"]])
        finally:
            os._exit(status)


def serve(kubelet: Path, cache: Path) -> None:
    """Do what the lines say until there are no more."""
    size = f"size={CACHE_BYTES},mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "soak", str(cache)], check=True)  # noqa: S603, S607 - our own words
    importlib.import_module(COMMANDS["model-manager"][0])  # once, for all forks
    launcher = Launcher(kubelet, cache)
    orders: dict[str, Callable[[Answer], Answer]] = {
        "start": launcher.start,
        "poll": launcher.poll,
        "unmount": launcher.unmount,
        "clear": launcher.clear,
    }
    # Nothing here has a thread; the modules that warn about forks with threads load none yet.
    warnings.simplefilter("ignore", DeprecationWarning)
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.write(json.dumps(orders[order["do"]](order)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
