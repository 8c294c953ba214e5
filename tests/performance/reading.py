"""Until a Pod has read its weights once: delivery and the first full read, verified on both sides.

Beside the plugin stands what a script would do: aria2c with 8 connections, `sha256sum --check`, and
the same reader over the same kind of filesystem.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.performance.bench import Bench
from tests.performance.contenders import Offer, aria2_command, timed
from tests.performance.rows import FIRST_READ, Finding
from tests.performance.scenarios import ONE_FILE, served
from tests.performance.site import Model, Plugin, site


def first_read(bench: Bench) -> list[Finding]:
    """Deliver and read by both ways, in random order."""
    if shutil.which("aria2c") is None:
        bench.say("first read: not run, not installed: aria2c")
        return []
    with bench.scratch() as folder, site() as here:
        model = served(here, ONE_FILE, folder / "source", bench.scale)
        ways: dict[str, Callable[[], float]] = {
            "ours": lambda: _ours(here.plugin, model),
            "theirs": lambda: _theirs(model.offer, folder / "destination"),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in bench.each("first read"):
            for way in random.sample(list(ways), k=len(ways)):
                seconds[way].append(ways[way]())
    return [FIRST_READ.beside(seconds["ours"], seconds["theirs"])]


def _ours(plugin: Plugin, model: Model) -> float:
    seconds = 0.0

    def read(target: Path) -> None:
        nonlocal seconds
        seconds = _read(target, model.offer)

    return plugin.deliver(model, then=read).seconds + seconds


def _theirs(offer: Offer, destination: Path) -> float:
    destination.mkdir()
    seconds = timed(aria2_command(offer, destination, verify=False)).seconds
    sums = destination / "sums"
    sums.write_text("".join(f"{sha}  {destination / n}\n" for n, (_, sha) in offer.files.items()))
    seconds += timed(["sha256sum", "--check", "--quiet", str(sums)]).seconds
    seconds += _read(destination, offer)
    shutil.rmtree(destination)
    return seconds


def _read(folder: Path, offer: Offer) -> float:
    """Return the seconds that a process takes to read every file once."""
    return timed(["cat", *(str(folder / name) for name in offer.files)]).seconds
