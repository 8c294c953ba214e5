"""The soak's attacks in small: a few kills, a few power cuts, a short race, as every build runs
them. `make soak` goes on for as long as it is told."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.soak.lives import live, node
from tests.soak.power import PowerCut
from tests.soak.races import race
from tests.soak.scene import Scene
from tests.soak.steps import Plan, keep
from tests.soak.world import World

FILE = "partial/H/N/tree/*"
PLANS = [
    Plan(f"after pwrite {FILE}", 9),
    Plan("after fsync partial/H/N/state/X.tmp", 2),
    Plan("before rename published/H"),
    Plan("after rename published/H"),
    Plan("before bind target"),
    Plan("after bind target", 2),
    Plan("after unmount target"),
    Plan("before unlink ledger/refs/X.json"),
    Plan("after replace ledger/digests/X.json", 3),
    Plan("after rename trash/H"),
]


@pytest.fixture
def world() -> Iterator[World]:
    """Yield an API, a hub and the models of a life."""
    with node() as world:
        yield world


@pytest.mark.needs("kernel-mounts")
def test_killed_processes_lose_nothing_and_leave_nothing(world: World) -> None:
    """Ten kills, each at a step where something is half done, in two chains."""
    with Scene(world) as scene:
        live(scene, world.models, PLANS[:5])
        live(scene, world.models, PLANS[5:])
        assert scene.deaths == len(PLANS)


@pytest.mark.needs("kernel-mounts")
def test_power_cuts_mount_no_wrong_byte(world: World) -> None:
    """What was mounted once is there after the cut; what was not synced is never taken for it."""
    with Scene(world, PowerCut(random.Random(1))) as scene:  # noqa: S311 - repeatable
        live(scene, world.models, [PLANS[1], PLANS[0], PLANS[2], PLANS[3], PLANS[4]])
        assert scene.deaths == 5


@pytest.mark.needs("kernel-mounts")
def test_a_race_of_pods_and_deaths_breaks_nothing() -> None:
    """For a few turns of each Pod."""
    turns = iter(range(12))
    survived = race(lambda: next(turns, None) is None, random.Random(1))  # noqa: S311 - repeatable
    assert " kills" in survived


def cut(tmp_path: Path, seed: int, change: Callable[[Path], None]) -> dict[str, bytes]:
    """Return what stands after a cut that came when a synced directory had been changed."""
    cache, journal = tmp_path / f"c{seed}", tmp_path / f"j{seed}"
    cache.mkdir()
    journal.mkdir()
    (cache / "old").write_bytes(b"old")
    (cache / "kept").write_bytes(b"kept")
    for path in (cache / "old", cache / "kept"):
        keep(journal, path.stat().st_ino, (0o644, path.read_bytes()), 1)
    names = {path.name: path.stat().st_ino for path in cache.iterdir()}
    keep(journal, cache.stat().st_ino, (0o755, names), 2)
    change(cache)
    PowerCut(random.Random(seed))(cache, journal)  # noqa: S311 - repeatable
    assert json.loads((journal / f"d{cache.stat().st_ino}").read_text())["entries"]
    return {path.name: path.read_bytes() for path in cache.iterdir()}


def test_the_model_of_a_power_cut_drops_and_tears_but_never_what_was_synced(tmp_path: Path) -> None:
    """Every outcome that a filesystem allows comes up, and none that it does not."""
    new = b"n" * 5000

    def replace(cache: Path) -> None:
        (cache / "new").write_bytes(new)
        (cache / "new").replace(cache / "old")
        (cache / "kept").rename(cache / "moved")

    outcomes = [cut(tmp_path, seed, replace) for seed in range(60)]
    assert all(len({"kept", "moved"} & found.keys()) == 1 for found in outcomes)
    assert all(found.get("kept", found.get("moved")) == b"kept" for found in outcomes)
    olds = {found["old"] for found in outcomes}
    assert {b"old", b"", new, new[:4096] + bytes(904), bytes(4096) + new[4096:]} <= olds
    assert {b"n", b"\0", b"o"} >= {bytes([b]) for old in olds for b in old[:1]}
