"""Delivery beside named peers: the same bytes, from the same server, in the same run.

    python -m tests.performance [--json] [--rounds N] [--only WORD] [--scale X] [--directory DIR]

Each scenario serves one repository from an emulated hub in a process of its own. In each round
every contender delivers it once, in a new random order, into an empty directory; what counts is the
median over the rounds of our time divided by the peer's in the same round. A scenario that misses a
limit is repeated once, because a busy machine is no regression; then the exit status is 1. Peers
that are not installed are named. The destination lies on tmpfs where there is one, so that no disk
is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gpustack_delivery.terminal import Parser, whole_number
from tests.performance.contenders import OURS, PEERS, THROUGH_CSI, Contender, Offer, Run
from tests.performance.scenarios import PEAK_MIB, SCENARIOS, Scenario

_ROUNDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen scenarios and return the exit status."""
    parser = Parser(prog="python -m tests.performance", description="delivery beside named peers")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    rounds = whole_number(1, 1000)
    parser.add_argument("--rounds", type=rounds, default=_ROUNDS, help="at least 5 for a verdict")
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument(
        "--scale", type=_share, default=1.0, help="shrink large files by this factor"
    )
    parser.add_argument("--directory", type=_folder, help="where files are served from and put")
    parser.add_argument(
        "--through-csi", action="store_true", help="our side is the whole plugin, not its engine"
    )
    options = parser.parse_args(arguments)
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    if not chosen:
        names = "; ".join(scenario.name for scenario in SCENARIOS)
        parser.error(f"--only {options.only!r} is in no scenario's name: {names}")
    shm = Path("/dev/shm")
    place = options.directory or (shm if os.access(shm, os.W_OK) else None)
    console = Console(stderr=options.json)
    results = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place) as directory:
        for scenario in chosen:
            result = _compare(scenario, Path(directory), options, console)
            if _misses(result):
                console.print("a limit is missed; once more, in case the machine was busy")
                result = _compare(scenario, Path(directory), options, console)
            _show(result, console)
            results.append(result)
    misses = [line for result in results for line in _misses(result)]
    for line in misses:
        console.print(f"[red]missed:[/red] {line}")
    if options.json:
        sys.stdout.write(json.dumps({"ok": not misses, "scenarios": results}) + "\n")
    return 1 if misses else 0


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number above 0 and at most 1: {text!r}")


def _folder(text: str) -> Path:
    if not os.path.isdir(text):  # noqa: PTH112 - never raises
        raise argparse.ArgumentTypeError(f"must be a folder that exists: {text!r}")
    return Path(text)


def _compare(
    scenario: Scenario, directory: Path, options: argparse.Namespace, console: Console
) -> dict[str, Any]:
    """Run all rounds of a scenario and return its figures."""
    mine = THROUGH_CSI if options.through_csi else OURS
    peers = [peer for peer in PEERS if not (peer.one_file and scenario.count > 1)]
    present = [peer for peer in peers if not peer.missing]
    runs: dict[str, list[Run]] = {contender.name: [] for contender in [mine, *present]}
    source = directory / "source"
    files = scenario.build(source, options.scale if scenario.size_bytes > 1 << 20 else 1.0)
    try:
        with (
            _serving(source, files, scenario, directory) as offer,
            Progress(console=console, transient=True) as progress,
        ):
            task = progress.add_task(scenario.name, total=options.rounds * len(runs))
            for _ in range(options.rounds):
                order: list[Contender] = [mine, *present]
                random.shuffle(order)
                for contender in order:
                    progress.update(task, description=f"{scenario.name}: {contender.name}")
                    runs[contender.name].append(_deliver(contender, offer, directory))
                    progress.advance(task)
    finally:
        shutil.rmtree(source)
    return _figures(
        scenario, mine, runs, {peer.name: peer.missing for peer in peers if peer.missing}
    )


def _deliver(contender: Contender, offer: Offer, directory: Path) -> Run:
    destination = directory / "destination"
    destination.mkdir()
    try:
        return contender.deliver(offer, destination)
    finally:
        shutil.rmtree(destination)


@contextmanager
def _serving(
    source: Path, files: dict[str, tuple[int, str]], scenario: Scenario, directory: Path
) -> Iterator[Offer]:
    command = [sys.executable, "-m", "tests.performance.serve", str(source)]
    command += ["--tls"] if scenario.tls else []
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        hub = json.loads(server.stdout.readline())
        ca_file = None
        if scenario.tls:
            ca_file = directory / "ca.pem"
            ca_file.write_text(hub["ca_pem"])
        yield Offer(hub["url"], hub["commit"], ca_file, files)
        server.communicate("")


def _figures(
    scenario: Scenario,
    mine: Contender,
    runs: dict[str, list[Run]],
    missing: dict[str, list[str]],
) -> dict[str, Any]:
    ours = runs[mine.name]
    peers = []
    for name, theirs in runs.items():
        if name != mine.name:
            pairs = list(zip(ours, theirs, strict=True))
            wall = statistics.median(our.seconds / other.seconds for our, other in pairs)
            cpu = statistics.median(our.cpu_seconds / other.cpu_seconds for our, other in pairs)
            peers.append(
                {
                    "peer": name,
                    "seconds": statistics.median(run.seconds for run in theirs),
                    "cpuSeconds": statistics.median(run.cpu_seconds for run in theirs),
                    "ratio": wall,
                    "cpuRatio": cpu,
                    "limit": scenario.limits.get(name),
                }
            )
    return {
        "scenario": scenario.name,
        "ours": mine.name,
        "seconds": statistics.median(run.seconds for run in ours),
        "cpuSeconds": statistics.median(run.cpu_seconds for run in ours),
        "peakMiB": max(run.peak_mib for run in ours),
        "peakLimitMiB": PEAK_MIB,
        "rounds": len(ours),
        "peers": peers,
        "notRun": {name: f"not installed: {', '.join(lacks)}" for name, lacks in missing.items()},
    }


def _misses(result: dict[str, Any]) -> list[str]:
    lines = [
        f"{result['scenario']}: {peer['ratio']:.2f} of {peer['peer']}, at most {peer['limit']:.2f}"
        for peer in result["peers"]
        if peer["limit"] is not None and peer["ratio"] > peer["limit"]
    ]
    if result["peakMiB"] > PEAK_MIB:
        lines.append(f"{result['scenario']}: {result['peakMiB']:.0f} MiB, at most {PEAK_MIB:.0f}")
    return lines


def _show(result: dict[str, Any], console: Console) -> None:
    table = Table(title=f"{result['scenario']} ({result['rounds']} rounds)", title_justify="left")
    for column in ("contender", "seconds", "CPU", "ours / theirs", "at most", "CPU ratio"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    table.add_row(
        result["ours"], f"{result['seconds']:.2f}", f"{result['cpuSeconds']:.2f}", "", "", ""
    )
    for peer in result["peers"]:
        limit = "" if peer["limit"] is None else f"{peer['limit']:.2f}"
        figures = [peer[key] for key in ("seconds", "cpuSeconds", "ratio", "cpuRatio")]
        seconds, cpu, ratio, cpu_ratio = (f"{figure:.2f}" for figure in figures)
        table.add_row(peer["peer"], seconds, cpu, ratio, limit, cpu_ratio)
    for name, why in result["notRun"].items():
        table.add_row(name, "not run", "", why, "", "")
    console.print(table)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    console.print(
        f"ours: {result['peakMiB']:.0f} MiB peak memory; load {load:.1f} on {cores} cores"
    )
    if load > 2 * cores:
        console.print("the machine is busy: wall times compare its other work, trust the CPU ratio")


if __name__ == "__main__":
    sys.exit(main())
