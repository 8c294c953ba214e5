"""What stands on the disk is wrong: nothing crashes, nothing is lost for long, no wrong byte is
mounted."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.cache import CacheRoot
from gpustack_delivery.node.records import read_record, write_record
from gpustack_delivery.node.trees import Trees
from tests.unit.fakes import FakeDisk
from tests.unit.node.stage import Stage

NESTED = pytest.param("[" * 100_000, id="nested")
GARBAGE = [
    "",
    "{",
    "[]",
    "null",
    NESTED,
    '{"a":' * 3 + "1}",
    '{"lastAttempt": 1e300}',
    '{"lastAttempt": -1}',
    '{"lastAttempt": null}',
    '{"lastAttempt": {}}',
    '{"failures": []}',
    '{"retryTime": 5}',
    '{"hex": 3, "targetPath": []}',
]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("where", ["refs", "digests", "marker", "manifest.json"])
def test_garbage_in_a_record_stops_nothing(stage: Stage, where: str, garbage: str) -> None:
    """After a restart the same Pod stays mounted, the next one is, and both read right bytes."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    folder = stage.tree(digest).parent
    places = {
        "refs": next((stage.cache / "ledger" / "refs").iterdir()),
        "digests": next((stage.cache / "ledger" / "digests").iterdir()),
        "marker": folder / "marker",
        "manifest.json": folder / "manifest.json",
    }
    places[where].write_text(garbage)
    stage.start()
    stage.mounted(digest, "u2")
    assert (stage.tree(digest) / "config.json").read_bytes() == b'{"a": 1}\n'
    assert len(stage.mounts.mounts) == 2
    assert len(list((stage.cache / "ledger" / "refs").glob("*.json"))) == 2


@pytest.mark.parametrize("where", ["refs", "digests"])
def test_a_directory_in_a_records_place_is_passed_over(stage: Stage, where: str) -> None:
    """It is nobody's record."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    (stage.cache / "ledger" / where / ("0" * 64 + ".json")).mkdir()
    stage.start()
    stage.mounted(digest, "u2")


@pytest.mark.parametrize("what", ["a link", "a pipe"])
@pytest.mark.parametrize("where", ["refs", "digests", "marker", "manifest.json"])
def test_what_is_no_file_in_a_records_place_is_no_record(
    stage: Stage, tmp_path: Path, where: str, what: str
) -> None:
    """Nobody waits at a pipe, and what a link leads to is not believed."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    folder, ledger = stage.tree(digest).parent, stage.cache / "ledger"
    place = folder / where if folder.joinpath(where).exists() else next((ledger / where).iterdir())
    record = place.rename(tmp_path / "record")
    if what == "a link":
        place.symlink_to(record)
    else:
        os.mkfifo(place)
    stage.start()
    stage.mounted(digest, "u2")
    assert len(stage.mounts.mounts) == 2


def test_records_that_a_kill_left_half_written_are_removed(stage: Stage) -> None:
    """Nobody else ever would: their names come from targets and digests that may not come back."""
    stage.start()
    stage.stop()
    ledger = stage.cache / "ledger"
    scratch = [ledger / "refs" / "a.json.tmp", ledger / "digests" / "b.json.tmp"]
    for path in scratch:
        path.write_text("{")
    stage.start()
    assert not any(path.exists() for path in scratch)


@pytest.mark.parametrize("what", ["a link", "a link to nothing", "a second name", "a pipe"])
def test_what_is_planted_where_a_record_is_written_is_replaced(tmp_path: Path, what: str) -> None:
    """Nothing outside is written or made, and nobody waits at a pipe."""
    outside = tmp_path / "outside"
    outside.write_text("precious")
    scratch = tmp_path / "r.json.tmp"
    plant: dict[str, Callable[[], None]] = {
        "a link": lambda: scratch.symlink_to(outside),
        "a link to nothing": lambda: scratch.symlink_to(tmp_path / "nothing"),
        "a second name": lambda: scratch.hardlink_to(outside),
        "a pipe": lambda: os.mkfifo(scratch),
    }
    plant[what]()
    write_record(tmp_path / "r.json", {"a": 1}, FakeDisk())
    assert read_record(tmp_path / "r.json") == {"a": 1}
    assert outside.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "r.json"]


def test_a_failure_recorded_in_the_far_future_holds_nothing_back(stage: Stage) -> None:
    """A clock that was set back, or a damaged record, blocks no digest."""
    digest = stage.artifact()
    stage.start()
    stage.stop()
    record = {"reason": "SourceUnavailable", "failures": 1, "retryTime": "2190-01-01T00:00:00Z"}
    name = digest.removeprefix("sha256:") + ".json"
    (stage.cache / "ledger" / "digests" / name).write_text(json.dumps(record))
    stage.start()
    stage.mounted(digest)


@pytest.mark.parametrize("content", [b"", b"gpustack-model-store v1", b"\xff" * 100, None])
def test_a_damaged_layout_file_is_refused_untouched(stage: Stage, content: bytes | None) -> None:
    """A root that cannot be recognised is not taken for empty, whatever else it holds."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    layout = stage.cache / "layout"
    layout.unlink()
    if content is not None:
        layout.write_bytes(content)
    before = sorted(stage.cache.rglob("*"))
    with pytest.raises(ConfigurationFault, match="left untouched"):
        stage.start()
    assert sorted(stage.cache.rglob("*")) == before


def test_two_first_starts_cannot_both_take_a_root(tmp_path: Path) -> None:
    """The lock stands before the first byte is written, so no window lets two through."""
    disk = FakeDisk()
    inside, go = threading.Event(), threading.Event()

    def slow(path: Path) -> bool:
        inside.set()
        return not go.wait(20)

    disk.fail_sync = slow
    first, second = CacheRoot(tmp_path / "c", disk), CacheRoot(tmp_path / "c", FakeDisk())
    opening = threading.Thread(target=first.open)
    opening.start()
    assert inside.wait(20)
    try:
        with pytest.raises(ConfigurationFault, match="in use"):
            second.open()
    finally:
        go.set()
        opening.join()
        first.close()
        second.close()


def test_the_cache_is_laid_out_to_last(stage: Stage) -> None:
    """A tree is as durable as the directory that holds `published`."""
    stage.start()
    assert {stage.cache, stage.cache / "ledger"} <= set(stage.disk.synced)


def test_damage_seen_late_does_not_take_out_the_successor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two mounts find the same damage; while one is still looking, the tree is delivered again."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    assert stage.plugin is not None
    trees = stage.plugin._store.trees
    looked, go = threading.Event(), threading.Event()
    damage = Trees._damage

    def slow(self: Trees, digest: str, directory: Path) -> str:
        found = damage(self, digest, directory)
        looked.set()
        go.wait(20)
        return found

    (stage.tree(digest) / "config.json").chmod(0o644)
    monkeypatch.setattr(Trees, "_damage", slow)
    seen: list[Path | None] = []

    def look() -> None:
        with trees.hold(digest) as tree:
            seen.append(tree)

    late = threading.Thread(target=look)
    late.start()
    assert looked.wait(20)
    monkeypatch.setattr(Trees, "_damage", damage)
    stage.clock.advance(1)
    stage.mounted(digest, "u2")
    go.set()
    late.join()
    assert seen == [None]
    assert trees.has(digest)
    assert stage.tree(digest).is_dir()


def test_losses_between_two_mounts_are_found_by_the_second(stage: Stage) -> None:
    """Without a restart, and each time again."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    for number, name in enumerate(("config.json", "weights/model.bin", "empty")):
        (stage.tree(digest) / name).unlink()
        assert stage.publish(digest, f"p{number}")[0] == "ABORTED"
        stage.mounted(digest, f"p{number}")
        assert (stage.tree(digest) / name).is_file()
    stage.in_time(lambda: stage.model(digest).get("referenced"))
