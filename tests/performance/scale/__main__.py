"""`make bench-scale`: one worker, thousands of nodes.

    python -m tests.performance.scale [--nodes 5000] [--against 500] [--alone] [--json]

The worker is the command as it is shipped, in a process of its own; the emulated cluster is in this
one. The same story is told on two clusters, which differ in their nodes alone, and what it takes is
measured from outside: requests at the API server, CPU and memory of the process, and the seconds
that its own metrics count for a pass. Each stretch is printed as soon as it was measured. The exit
status is 1 when a limit is missed. With `--alone` the larger cluster's story is told alone, in half
the time or a piece of it that fits elsewhere, and nothing is said about growth.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from gpustack_delivery.terminal import Parser, whole_number
from tests.performance.scale.process import Cost, WorkerProcess
from tests.performance.scale.stage import ARTIFACTS, NAMESPACES, POOLS, PREFETCHES, Stage

CHANGES: Final = 50
SETTING: Final = "a Setting"
HOUR: Final = "a steady hour"
TOUCHED: Final = f"a change of {CHANGES} nodes"
# Counts of nodes are written at most every thirty seconds.
SETTLE_SECONDS: Final = 60.0
LEAPS: Final = 6
LEAP_SECONDS: Final = 600.0
SHARE: Final = 0.99

SETTING_SECONDS: Final = 60.0
PEAK_MIB: Final = 400.0
CPU_GROWTH: Final = 11.0
NODE_GROWTH: Final = 3.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What one cluster's story took."""

    nodes: int
    costs: dict[str, Cost]
    peak_mib: float
    pass_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Limit:
    """One promise: what was measured, and the most it may be."""

    name: str
    measured: float
    at_most: float

    @property
    def held(self) -> bool:
        """Say whether it holds."""
        return self.measured <= self.at_most


def tell(nodes: int, console: Console) -> Figures:
    """Tell the story on a cluster of so many nodes."""
    costs: dict[str, Cost] = {}
    with Stage(nodes) as stage, WorkerProcess(stage.cluster, stage.hub.url) as worker:

        def measure(name: str, act: Any, reached: Any) -> None:
            cost = costs[name] = worker.measure(act, reached, name)
            found = f"{cost.seconds:6.1f} s, {cost.total:6} requests, {cost.cpu_seconds:6.2f} s CPU"
            console.print(f"{nodes:5} nodes: {name:24} {found}")

        measure("everything from nothing", stage.configure, stage.configured)
        measure("a report of every node", stage.report, lambda: True)
        measure("every prefetch", stage.warm, stage.warmed)

        def settle() -> None:
            worker.leap(SETTLE_SECONDS)
            worker.rest()

        # What waits for its half minute would otherwise come due in whatever takes longer.
        measure("what was put off", settle, lambda: True)
        step = nodes // CHANGES

        def touch() -> None:
            for number in range(CHANGES):
                stage.touch(number * step)

        measure(SETTING, *stage.setting(3))
        settings = [costs[SETTING]]
        for value in (4, 5):
            measure(f"{SETTING}, again", *stage.setting(value))
            settings.append(costs.pop(f"{SETTING}, again"))
        # On a small cluster one is over so soon that chance would decide its share of the growth.
        costs[SETTING] = sorted(settings, key=lambda cost: cost.cpu_seconds)[1]
        measure(TOUCHED, touch, lambda: True)
        pass_seconds = worker.pass_seconds(SHARE)

        measure("what the changes put off", settle, lambda: True)

        def hour() -> None:
            stage.cluster.paper_nodes.heartbeat()
            for _ in range(LEAPS):
                worker.leap(LEAP_SECONDS)
                worker.rest()

        measure(HOUR, hour, lambda: True)
        return Figures(nodes, costs, worker.peak_mib(), pass_seconds)


def judge(large: Figures) -> list[Limit]:
    """Return what was promised of a large cluster."""
    costs = large.costs
    return [
        Limit("seconds until a Setting is on every node", costs[SETTING].seconds, SETTING_SECONDS),
        Limit("writes in a steady hour", costs[HOUR].writes, 0),
        Limit("peak memory, MiB", large.peak_mib, PEAK_MIB),
    ]


def judge_growth(large: Figures, small: Figures) -> list[Limit]:
    """Return what was promised of the growth from a small cluster to a large one."""
    scale = large.nodes / small.nodes

    def growth(name: str) -> float:
        return large.costs[name].cpu_seconds / max(small.costs[name].cpu_seconds, 0.01)

    times = f"{scale:.0f} times the nodes"
    return [
        Limit(f"CPU of a Setting, {times}", growth(SETTING), CPU_GROWTH * scale / 10),
        Limit(f"CPU of a change of {CHANGES} nodes, {times}", growth(TOUCHED), NODE_GROWTH),
    ]


def show(large: Figures, small: Figures, console: Console) -> None:
    """Print every figure of both clusters."""
    title = (
        f"{large.nodes} nodes beside {small.nodes}: {ARTIFACTS} artifacts, "
        f"{PREFETCHES} prefetches, {POOLS} pools, {NAMESPACES} namespaces"
    )
    table = Table(title=title, title_justify="left")
    for column in ("what", "seconds", "requests", "writes", "CPU s", f"CPU s / {small.nodes}"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, cost in large.costs.items():
        growth = cost.cpu_seconds / max(small.costs[name].cpu_seconds, 0.01)
        seconds, cpu = f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.2f}"
        requests = f"{cost.total} ({small.costs[name].total})"
        table.add_row(name, seconds, requests, str(cost.writes), cpu, f"{growth:.1f}")
    console.print(table)
    console.print(f"peak memory: {large.peak_mib:.0f} MiB ({small.peak_mib:.0f})")
    for controller, longest in sorted(large.pass_seconds.items()):
        fewer = small.pass_seconds.get(controller, 0.0)
        console.print(f"99 of 100 passes of {controller}: at most {longest} s ({fewer} s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell the story twice, print the figures and return the exit status."""
    parser = Parser(prog="python -m tests.performance.scale", description="many nodes")
    parser.add_argument("--nodes", type=whole_number(1, 100_000), default=5000)
    parser.add_argument(
        "--against", type=whole_number(1, 100_000), default=500, help="the smaller cluster"
    )
    parser.add_argument("--alone", action="store_true", help="leave the smaller cluster out")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args(arguments)
    if options.nodes < POOLS or not (options.alone or POOLS <= options.against < options.nodes):
        parser.error(f"--against must be at least {POOLS}, and less than --nodes")
    console = Console(stderr=options.json)
    small = None if options.alone else tell(options.against, console)
    large = tell(options.nodes, console)
    limits = judge(large)
    if small is not None:
        show(large, small, console)
        limits += judge_growth(large, small)
    for limit in limits:
        word = "held" if limit.held else "[red]missed[/red]"
        console.print(f"{word}: {limit.name}: {limit.measured:.1f}, at most {limit.at_most:.0f}")
    console.print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    held = all(limit.held for limit in limits)
    if options.json:
        said = {"ok": held, "limits": [asdict(limit) for limit in limits]}
        sys.stdout.write(
            json.dumps(said | {"clusters": [asdict(each) for each in (small, large) if each]})
            + "\n"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
