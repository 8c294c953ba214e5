"""The node plugin beside what people use today, and its own figures beside their limits.

    python -m tests.performance [--json] [--rounds N] [--only WORD] [--scale X] [--directory DIR]

Each measurement runs both sides of its rows in one run, on the same machine, in random order; what
counts is the median over the rounds of our figure divided by the other one of the same round. A
measurement that misses a limit is repeated once, because a busy machine is no regression; then the
exit status is 1. The plugin is a process with kernel mounts, so this needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from emulator.mounts import enter_private_namespace
from gpustack_delivery.terminal import Parser, whole_number
from tests.performance import downloads, fleet, hashes, hits, reading, resuming, starting
from tests.performance.bench import Bench
from tests.performance.rows import Finding
from tests.performance.scenarios import SCENARIOS

_WIDTH: Final = 160  # a table that wraps cannot be copied into a page
MEASUREMENTS: Mapping[str, Callable[[Bench], list[Finding]]] = {
    **{scenario.name: partial(downloads.delivery, scenario) for scenario in SCENARIOS},
    "memory": downloads.memory,
    "hash": hashes.throughput,
    "hits": hits.latency,
    "resume": resuming.after_kill,
    "first read": reading.first_read,
    "fleet": fleet.one_digest,
    "start": starting.to_ready,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen measurements and return the exit status."""
    options, chosen = _options(arguments)
    shm = Path("/dev/shm")
    place = options.directory or (shm if os.access(shm, os.W_OK) else None)
    console = Console(stderr=options.json)
    console.width = max(console.width, _WIDTH)
    try:
        enter_private_namespace()
    except PermissionError:
        console.print("the bench mounts models as the plugin does: run it as root")
        return 2
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place) as directory:
        tempfile.tempdir = directory  # the cluster's folders lie there, too
        bench = Bench(Path(directory), options.rounds, options.scale, console.print)
        for name in chosen:
            findings = MEASUREMENTS[name](bench)
            if any(finding.missed for finding in findings):
                _show(findings, console)
                console.print(f"{name}: a limit is missed; once more, in case it was the machine")
                findings = MEASUREMENTS[name](bench)
            _show(findings, console)
            found += findings
    ok = not any(finding.missed for finding in found)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    console.print(f"load {load:.1f} on {cores} cores: a machine that does other work gives figures")
    if options.json:
        rows = [finding.to_wire() for finding in found]
        sys.stdout.write(json.dumps({"ok": ok, "rows": rows}) + "\n")
    return 0 if ok else 1


def _options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(prog="python -m tests.performance", description="delivery beside named peers")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    rounds = whole_number(1, 1000)
    parser.add_argument("--rounds", type=rounds, default=5, help="at least 5 for a verdict")
    parser.add_argument("--only", default="", help="the one of this name, or all that hold it")
    parser.add_argument("--scale", type=_share, default=1.0, help="shrink large files by this")
    parser.add_argument("--directory", type=_folder, help="where files are served from and put")
    options = parser.parse_args(arguments)
    exact = [name for name in MEASUREMENTS if options.only == name]
    chosen = exact or [name for name in MEASUREMENTS if options.only in name]
    if not chosen:
        names = "; ".join(MEASUREMENTS)
        parser.error(f"--only {options.only!r} is in no measurement's name: {names}")
    return options, chosen


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number above 0 and at most 1: {text!r}")


def _folder(text: str) -> Path:
    if not os.path.isdir(text):  # noqa: PTH112 - never raises
        raise argparse.ArgumentTypeError(f"must be a folder that exists: {text!r}")
    return Path(text)


def _show(found: Sequence[Finding], console: Console) -> None:
    table = Table(box=box.MARKDOWN)
    for column in ("what", "ours", "theirs", "peer", "ratio", "limit"):
        textual = column in {"what", "peer"}
        table.add_column(column, justify="left" if textual else "right")
    for finding in found:
        row = finding.row
        theirs = "" if finding.theirs is None else f"{finding.theirs:.2f}"
        ratio = "" if finding.theirs is None else f"{finding.judged:.2f}"
        limit = "" if row.at_most is None else f"<= {row.at_most:g}"
        limit = limit if row.at_least is None else f">= {row.at_least:g}"
        ours = f"{finding.ours:.2f} {row.unit}"
        style = "red" if finding.missed else None
        table.add_row(row.name, ours, theirs, row.peer, ratio, limit, style=style)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
