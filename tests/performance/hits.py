"""Mounts of what is there already: how long one takes, alone and beside downloads, and how many.

Kubelet's part is a process of its own, so that neither the hub nor the bench shares its
interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any, Final

from spec_tests.observe import PublishCall
from tests.performance.bench import Bench
from tests.performance.rows import HIT, HIT_BUSY, HIT_PACED, HIT_SLOWEST, HITS, Finding
from tests.performance.scenarios import ONE_FILE, SMALL, served
from tests.performance.site import Model, Plugin, site

_PODS: Final = 110  # what kubelet runs on a node unless told otherwise
_CYCLES: Final = 300
_AT_A_TIME: Final = 8
_PACE: Final = 150 << 20  # about a gigabit network, and it leaves these cores some time


def latency(bench: Bench) -> list[Finding]:
    """Time mounts of one published model, idle and while a large one is downloaded."""
    full, paced = [], []
    with bench.scratch() as folder, site() as here:
        small = served(here, SMALL, folder / "small")
        large = served(here, ONE_FILE, folder / "large", bench.scale)
        for _ in bench.each("hits"):
            full.append(_round(here.plugin, small, large))
            here.limit(_PACE)
            paced.append(_round(here.plugin, small, large))
            here.limit(0)
    middles, idle, busy, rates = zip(*full, strict=True)
    _, idle_too, beside, _ = zip(*paced, strict=True)
    found = [HIT.alone(middles), HIT_SLOWEST.alone(idle), HIT_BUSY.beside(busy, idle)]
    return [*found, HIT_PACED.beside(beside, idle_too), HITS.alone(rates)]


def _round(plugin: Plugin, small: Model, large: Model) -> tuple[float, float, float, float]:
    """Return p50 and p99 idle, p99 while downloading, all in ms, and mounts a second."""
    plugin.start()
    calls = [plugin.call(small, f"pod-{number}") for number in range(_PODS)]
    plugin.mount(calls[0])
    plugin.unmount(calls[0])
    download = plugin.call(large)
    with _kubelet(plugin) as kubelet:
        idle = kubelet.cycle(calls)
        busy = kubelet.cycle(calls, meanwhile=lambda: plugin.mount(download))
        seconds = kubelet.together("publish", calls)
        kubelet.together("unpublish", calls)
    plugin.unmount(download)
    plugin.stop()
    plugin.clear()
    return median(idle), _p99(idle), _p99(busy), _PODS / seconds


def _p99(milliseconds: Sequence[float]) -> float:
    return quantiles(milliseconds, n=100)[98]


class _Kubelet:
    """The process that calls."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def cycle(
        self, calls: Sequence[PublishCall], meanwhile: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Mount and unmount in turn while something happens; return each mount's milliseconds."""
        self._order(do="cycle", calls=_wire(calls), least=_CYCLES)
        meanwhile()
        self._order(do="stop")
        return [seconds * 1000 for seconds in self._answer()]

    def together(self, do: str, calls: Sequence[PublishCall]) -> float:
        """Make all calls, some at a time, and return the seconds that took."""
        self._order(do=do, calls=_wire(calls), threads=_AT_A_TIME)
        return float(self._answer())

    def _order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def _wire(calls: Sequence[PublishCall]) -> list[dict[str, Any]]:
    return [
        {"volume": call.volume_id, "target": str(call.target), "context": dict(call.context)}
        for call in calls
    ]


@contextmanager
def _kubelet(plugin: Plugin) -> Iterator[_Kubelet]:
    command = [sys.executable, "-m", "tests.performance.kubelet", str(plugin.socket)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:  # noqa: S603 - our own module
        yield _Kubelet(process)
        process.communicate("{}\n")
