"""Deliveries beside named peers: the same bytes, from the same server, in the same round.

In each round every contender delivers once, in a new random order, onto an empty tmpfs. One
scenario also sets the plugin's CPU time beside the floors under it.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.performance.bench import Bench
from tests.performance.contenders import PEERS, Offer, Run
from tests.performance.rows import CPU, PEAK, PEAK_BY_SIZE, Finding, Row
from tests.performance.scenarios import ONE_FILE, Scenario, random_file
from tests.performance.site import MIB, site

_OURS = "ours"
_FLOORS = "floors"
_QUARTER = 256 * MIB


def delivery(scenario: Scenario, bench: Bench) -> list[Finding]:
    """Run all rounds of a scenario."""
    peers = [peer for peer in PEERS if not (peer.one_file and scenario.count > 1)]
    for peer in peers:
        if peer.missing:
            bench.say(f"{peer.name}: not run, not installed: {', '.join(peer.missing)}")
    with bench.scratch() as folder, site() as here:
        files = scenario.build(folder / "source", bench.scale)
        model = here.model("model", folder / "source", files, tls=scenario.tls)
        contenders: dict[str, Callable[[], Run]] = {_OURS: lambda: here.plugin.deliver(model)}
        for peer in peers:
            if not peer.missing:
                contenders[peer.name] = _beside(peer.deliver, model.offer, folder)
        if scenario is ONE_FILE:
            contenders[_FLOORS] = lambda: _floors(model.offer, folder)
        runs = _rounds(contenders, scenario.name, bench)
    size_bytes = sum(size for size, _ in files.values())
    return _findings(scenario, size_bytes, runs)


def memory(bench: Bench) -> list[Finding]:
    """Set the plugin's peak for a model beside its peak for one of a quarter of the size."""
    peaks: dict[int, list[float]] = {4 * _QUARTER: [], _QUARTER: []}
    with bench.scratch() as folder, site() as here:
        models = {}
        for size in peaks:
            name = "0.safetensors"
            source = folder / str(size)
            files = {name: (size, random_file(source / name, size))}
            models[size] = here.model(f"model-{size}", source, files)
        for _ in bench.each("memory"):
            for size, model in random.sample(sorted(models.items()), k=len(models)):
                peaks[size].append(here.plugin.deliver(model).peak_mib)
    return [PEAK_BY_SIZE.beside(peaks[4 * _QUARTER], peaks[_QUARTER])]


def _rounds(
    contenders: dict[str, Callable[[], Run]], name: str, bench: Bench
) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {contender: [] for contender in contenders}
    for _ in bench.each(name):
        for contender in random.sample(list(contenders), k=len(contenders)):
            runs[contender].append(contenders[contender]())
    return runs


def _findings(scenario: Scenario, size_bytes: int, runs: dict[str, list[Run]]) -> list[Finding]:
    ours = runs.pop(_OURS)
    found = []
    if floors := runs.pop(_FLOORS, None):
        floor = [run.cpu_seconds for run in floors]
        found.append(CPU.beside([run.cpu_seconds for run in ours], floor))
    for peer, theirs in runs.items():
        row = Row(scenario.name, "s", peer, at_most=scenario.limits.get(peer))
        found.append(row.beside([run.seconds for run in ours], [run.seconds for run in theirs]))
    if scenario.large:
        row = Row(f"{scenario.name}: CPU", "CPU s per GiB")
        found.append(row.alone([run.cpu_seconds * (1 << 30) / size_bytes for run in ours]))
    peak = Row(f"{scenario.name}: {PEAK.name}", PEAK.unit, at_most=PEAK.at_most)
    found.append(peak.worst([run.peak_mib for run in ours]))
    return found


def _beside(deliver: Callable[[Offer, Path], Run], offer: Offer, folder: Path) -> Callable[[], Run]:
    def run() -> Run:
        with _empty(folder / "destination") as destination:
            return deliver(offer, destination)

    return run


def _floors(offer: Offer, folder: Path) -> Run:
    ((path, (size, _)),) = offer.files.items()
    command = [sys.executable, "-m", "tests.performance.floors", offer.file_url(path), str(size)]
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, str(folder / "floor")], stdout=subprocess.PIPE, text=True, check=True
    )
    return Run(0.0, float(json.loads(done.stdout)))


@contextmanager
def _empty(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
