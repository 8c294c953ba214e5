"""Collection and reservations on a real cache: what goes, what stays, and who is admitted."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from gpustack_delivery.node.collector import Collection
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage

KIB = 1024
GRACE = 601.0
DAY = 24 * 3600.0


def size_of(root: Path) -> int:
    """Return the bytes of every model file under a cache, whatever moves meanwhile."""
    total = 0
    for part in ("published/*/tree/**/*", "partial/*/*/tree/**/*"):
        with suppress(FileNotFoundError):
            total += sum(p.stat().st_size for p in root.glob(part) if p.is_file())
    return total


def small_disk(stage: Stage, total: int) -> None:
    """Give the cache a small filesystem of its own that fills with what lies in it."""
    stage.disk.total_bytes = total
    stage.disk.devices = {stage.cache: "8:2"}
    stage.mounts.device = "8:2"
    stage.disk.measure = lambda: size_of(stage.cache)


def model(stage: Stage, name: str, size: int = 10 * KIB) -> str:
    """Put an artifact whose files have a size."""
    content = name.encode().ljust(size, b".")
    return stage.artifact(name, repository=f"org/{name}", files={"weights": content})


def use(stage: Stage, digest: str, name: str) -> None:
    """Mount and unmount a model, so that it lies in the cache unreferenced."""
    stage.mounted(digest, name, name=name)
    # An attempt notes the use after it has published: not when time has been moved meanwhile.
    plugin = stage.plugin
    assert plugin is not None
    eventually(lambda: plugin._attempts.running() == (), "the attempt's end")
    assert stage.unpublish(name) == ("OK", "")


def collect(stage: Stage) -> Collection:
    """Run a collection now."""
    assert stage.plugin is not None
    return stage.plugin._collector.collect()


def published(stage: Stage, *digests: str) -> list[bool]:
    """Say which digests are published."""
    return [stage.tree(digest).exists() for digest in digests]


def test_above_the_high_watermark_the_oldest_go_until_the_low_one(stage: Stage) -> None:
    """The next round finds the usage too high; the one used last stays, bytes are counted."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 60, "lowPercent": 25})
    stage.start()
    names = ["a", "b", "c", "d"]
    digests = [model(stage, name) for name in names]
    for name, digest in zip(names, digests, strict=True):
        use(stage, digest, name)
        stage.clock.advance(10)
    stage.clock.advance(GRACE)
    assert collect(stage) == Collection()
    assert published(stage, *digests) == [True] * 4
    use(stage, digests[0], "a")
    stage.disk.used_bytes = 30 * KIB
    stage.in_time(lambda: published(stage, *digests) == [True, False, False, False])
    eventually(lambda: stage.metric("gpustack_model_manager_gc_removed_bytes_total") == 30 * KIB)
    assert not list((stage.cache / "trash").iterdir())


def test_it_stops_at_the_low_watermark(stage: Stage) -> None:
    """By last use and not by publication."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 60, "lowPercent": 45})
    stage.start()
    names = ["a", "b", "c", "d"]
    digests = [model(stage, name) for name in names]
    for name, digest in zip(names, digests, strict=True):
        use(stage, digest, name)
        stage.clock.advance(10)
    use(stage, digests[0], "a")
    stage.clock.advance(GRACE)
    stage.disk.used_bytes = 21 * KIB
    assert collect(stage) == Collection()
    assert published(stage, *digests) == [True, False, False, True]


@pytest.mark.parametrize("how", ["unmounted before it", "mounts that it ended"])
def test_the_grace_outlives_a_restart(stage: Stage, how: str) -> None:
    """Ten minutes without a reference are ten minutes, for whom a reboot unmounted too."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 60, "lowPercent": 1})
    stage.start()
    digest = model(stage, "a")
    use(stage, digest, "a")
    stage.clock.advance(3600 - stage.clock.now() % 60)
    stage.mounted(digest, "a", name="a")
    stage.clock.advance(50)
    if how == "unmounted before it":
        assert stage.unpublish("a") == ("OK", "")
    else:
        stage.clock.advance(GRACE)
    stage.stop()
    stage.mounts.mounts.clear()
    stage.start()
    stage.clock.advance(GRACE - 40)
    stage.disk.used_bytes = 90 * KIB
    eventually(lambda: collect(stage).skipped == "", "a collection")
    assert published(stage, digest) == [True]
    stage.clock.advance(40)
    assert collect(stage).skipped == ""
    assert published(stage, digest) == [False]


def test_referenced_pinned_and_recent_trees_stay_and_saturation_is_said(stage: Stage) -> None:
    """CapacityLow says so while nothing may go."""
    small_disk(stage, 100 * KIB)
    digests = {name: model(stage, name) for name in ("mounted", "pinned", "recent", "free")}
    stage.configure(
        watermarks={"highPercent": 60, "lowPercent": 1}, pinned=[digests["pinned"], "nonsense"]
    )
    stage.start()
    stage.mounted(digests["mounted"], "mounted", name="mounted")
    for name in ("pinned", "free"):
        use(stage, digests[name], name)
    stage.clock.advance(GRACE)
    use(stage, digests["recent"], "recent")
    stage.disk.used_bytes = 61 * KIB
    assert collect(stage) == Collection(nothing_to_remove=True)
    assert published(stage, *digests.values()) == [True, True, True, False]
    stage.in_time(lambda: stage.condition("CapacityLow").get("status") == "True")
    assert stage.condition("CapacityLow")["reason"] == "NothingToRemove"
    stage.disk.used_bytes = 0
    stage.in_time(lambda: stage.condition("CapacityLow").get("status") == "False")


def test_a_held_tree_is_not_removed(stage: Stage) -> None:
    """Between the look and the bind nothing takes it away."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 2, "lowPercent": 1})
    stage.disk.total_bytes = 10_000 * KIB
    digest = model(stage, "a")
    stage.start()
    use(stage, digest, "a")
    stage.clock.advance(GRACE)
    assert stage.plugin is not None
    with stage.plugin._store.trees.hold(digest) as tree:
        assert tree is not None
        stage.disk.used_bytes = 9_000 * KIB  # from here on the plugin's own rounds want it, too
        collect(stage)
        assert tree.is_dir()
    collect(stage)
    assert published(stage, digest) == [False]


def test_a_tree_that_is_mounted_after_it_was_chosen_stays(stage: Stage) -> None:
    """The references are asked again in the moment of removal."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 60, "lowPercent": 1})
    digest = model(stage, "a")
    stage.start()
    use(stage, digest, "a")
    stage.clock.advance(GRACE)
    measured: list[int] = []

    def measure() -> int:
        # The second look at the usage comes between the choice and the removal.
        measured.append(1)
        if len(measured) == 2:
            assert stage.publish(digest, "late", name="a") == ("OK", "")
        return 90 * KIB

    assert stage.plugin is not None
    stage.plugin._reporter.stop()
    stage.disk.measure = measure
    assert collect(stage).nothing_to_remove
    assert published(stage, digest) == [True]


@pytest.mark.parametrize("cause", ["references", "configuration", "none"])
def test_a_collection_that_must_not_run_removes_nothing_and_says_why(
    stage: Stage, cause: str
) -> None:
    """Not even a stale partial; under an earlier spec's watermarks least of all."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 20, "lowPercent": 1})
    stage.hub.gate.clear()
    partial = model(stage, "p")
    digest = model(stage, "a")
    if cause == "none":
        del stage.kube.objects["nodemodelstores", "", "node-a"]
        stage.start()
        assert collect(stage).skipped == "no configuration has been applied yet"
        return
    stage.start()
    eventually(lambda: stage.publish(partial, "p", name="p")[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1)
    stage.clock.advance(400)
    eventually(lambda: stage.hub.fetching == 0)
    stage.hub.gate.set()
    use(stage, digest, "a")
    if cause == "references":
        stage.mounts.fail = "table"
        stage.in_time(lambda: "collection skipped" in stage.condition("Ready")["message"])
    else:
        stage.configure(generation=2, watermarks={"highPercent": 20, "lowPercent": 20})
        eventually(lambda: stage.condition("Ready").get("reason") == "InvalidConfiguration")
    stage.disk.used_bytes = 90 * KIB
    stage.clock.advance(2 * DAY)
    skipped = collect(stage).skipped
    assert skipped
    assert published(stage, digest) == [True]
    assert (stage.cache / "partial" / partial.removeprefix("sha256:")).exists()
    stage.in_time(lambda: f"collection skipped: {skipped}" in stage.condition("Ready")["message"])
    stage.mounts.fail = ""


def test_a_partial_goes_a_day_after_the_last_mount_that_asked(stage: Stage) -> None:
    """Counted from the asking, across a restart; its record goes with it."""
    digest = model(stage, "a")
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest, name="a")[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1)
    stage.clock.advance(301)
    eventually(lambda: stage.hub.fetching == 0)
    partial = stage.cache / "partial" / digest.removeprefix("sha256:")
    record = stage.cache / "ledger" / "digests" / f"{digest.removeprefix('sha256:')}.json"
    stage.stop()
    stage.clock.advance(DAY - 302)
    stage.start()
    eventually(lambda: collect(stage) == Collection())
    assert partial.is_dir()
    stage.clock.advance(2)
    collect(stage)
    assert not partial.exists()
    assert record.exists()
    stage.clock.advance(DAY)
    collect(stage)
    assert not record.exists()


def test_a_failure_record_goes_a_day_after_the_failure(stage: Stage) -> None:
    """And the status stops listing it."""
    digest = model(stage, "a")
    stage.hub.repositories["org/a"] = {"weights": b"other"}
    stage.start()
    eventually(lambda: stage.publish(digest, name="a")[0] == "UNAVAILABLE")
    eventually(lambda: stage.model(digest).get("state") == "Failed")
    stage.clock.advance(DAY - 10)
    # The attempt left an empty partial, which has its own day since the last asking.
    collect(stage)
    assert stage.model(digest)
    stage.clock.advance(20)
    collect(stage)
    stage.clock.advance(DAY)
    stage.in_time(lambda: collect(stage) == Collection() and not stage.model(digest))


def test_two_downloads_that_fit_singly_are_not_both_admitted(stage: Stage) -> None:
    """The second hears InsufficientCapacity; what the first has written counts once."""
    small_disk(stage, 100 * KIB)
    stage.configure(watermarks={"highPercent": 75, "lowPercent": 70})
    first, second = model(stage, "a", 50 * KIB), model(stage, "b", 50 * KIB)
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(first, "a", name="a")[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1, "the first download")
    eventually(lambda: "InsufficientCapacity" in stage.publish(second, "b", name="b")[1])
    assert "fit under 75%" in stage.publish(second, "b", name="b")[1]
    stage.hub.gate.set()
    stage.mounted(first, "a", name="a")


def test_a_reservation_is_given_back_when_its_attempt_ends(stage: Stage) -> None:
    """By a cancellation as by anything else."""
    small_disk(stage, 100 * KIB)
    first, second = model(stage, "a", 50 * KIB), model(stage, "b", 50 * KIB)
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(first, "a", name="a")[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1)
    stage.clock.advance(301)
    eventually(lambda: stage.hub.fetching == 0)
    stage.hub.gate.set()
    stage.mounted(second, "b", name="b")


def test_a_reservation_that_does_not_fit_collects_first(stage: Stage) -> None:
    """The old unreferenced model makes room for the new one."""
    small_disk(stage, 100 * KIB)
    old, new = model(stage, "old", 50 * KIB), model(stage, "new", 60 * KIB)
    stage.start()
    use(stage, old, "old")
    stage.clock.advance(GRACE)
    stage.mounted(new, "new", name="new")
    assert published(stage, old, new) == [False, True]


def test_a_model_larger_than_the_disk_removes_nothing(stage: Stage) -> None:
    """Emptying the cache would not make it fit."""
    small_disk(stage, 100 * KIB)
    old, huge = model(stage, "old", 30 * KIB), model(stage, "huge", 90 * KIB)
    stage.start()
    use(stage, old, "old")
    stage.clock.advance(GRACE)
    eventually(lambda: "InsufficientCapacity" in stage.publish(huge, "h", name="huge")[1])
    assert published(stage, old) == [True]
