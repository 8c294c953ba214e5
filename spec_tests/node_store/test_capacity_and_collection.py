"""node-store: reservations against the high watermark, and what collection removes, and when."""

from __future__ import annotations

import shutil
from typing import Final

import pytest

from emulator.hubs.broken_bodies import Flip, Stall
from spec_tests.oracle import File, Tree, large, pseudo_random
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.targets import Unsupported

MEGABYTE: Final = 1_000_000
DISK: Final = 10 * MEGABYTE


@pytest.fixture
def small(world: World) -> World:
    """Give a world whose cache has ten megabytes, of which the watermarks allow eight."""
    world.node.disk.place(world.node.cache_root, "259:9", DISK)
    world.advance(301)
    return world


def model(world: World, name: str, size_bytes: int) -> Artifact:
    """Make an artifact of one file."""
    content = pseudo_random(size_bytes, seed=sum(name.encode()))
    tree = Tree((File("model.bin", content, lfs=True),))
    return world.artifact(name, repository=world.repository(f"acme/{name}", tree))


def held(world: World, *artifacts: Artifact) -> list[str]:
    """Return the names of those artifacts whose digests the node holds Ready."""
    return [a.name for a in artifacts if world.node.entry(a.digest).get("state") == "Ready"]


def use_once(world: World, artifact: Artifact) -> None:
    """Mount an artifact and unmount it."""
    world.node.unpublish(world.node.mount(artifact))


def failure(world: World, artifact: Artifact) -> str:
    """Ask for an artifact and return the reason that its attempt failed for."""
    world.node.publish(world.node.call(artifact))
    entry = world.until(
        lambda: found if (found := world.node.entry(artifact.digest)).get("reason") else None,
        "the attempt has failed",
        within_seconds=30,
    )
    return str(entry["reason"])


@pytest.mark.rule("NS-DL-06", "NS-FR-05")
def test_what_does_not_fit_is_refused(small: World) -> None:
    """A model larger than the room under the high watermark fails before it downloads a file."""
    artifact = model(small, "huge", 9 * MEGABYTE)
    assert failure(small, artifact) == "InsufficientCapacity"
    assert small.hub_requests("*/resolve/*") == []
    answer = small.node.publish(small.node.call(artifact))
    assert answer.code == "UNAVAILABLE"
    assert "InsufficientCapacity" in answer.message


@pytest.mark.rule("NS-DL-06", "NS-DL-08", "NS-DL-09")
@pytest.mark.parametrize(
    ("path", "offset"),
    [("*.bin", 100), ("*.bin", 1_600_000), ("2.bin", 100)],
    ids=["at their beginning", "near their end", "in the last one"],
)
def test_two_that_fit_singly_are_not_both_admitted(small: World, path: str, offset: int) -> None:
    """However far a download of five megabytes is, one of four is refused; later it is not."""
    tree = Tree(tuple(File(f"{n}.bin", pseudo_random(1_700_000, n), lfs=True) for n in range(3)))
    first = small.artifact("first", repository=small.repository("acme/first", tree))
    second = model(small, "second", 4 * MEGABYTE)
    small.hub.faults.add(Stall(offset=offset), path=path)
    hanging = 3 if path == "*.bin" else 1
    small.node.publish(small.node.call(first))
    small.until(
        lambda: small.hub.faults.gate.waiting == hanging, "the first hangs", within_seconds=5
    )
    small.until(
        lambda: stored(small) >= (3 - hanging) * 1_700_000,
        "the rest of it is there",
        within_seconds=5,
    )
    assert failure(small, second) == "InsufficientCapacity"
    small.hub.faults.clear()
    small.hub.faults.release()
    use_once(small, first)
    small.advance(900)
    small.node.mount(second)
    small.until(lambda: held(small, first, second) == ["second"], "the first one made room")


@pytest.mark.rule("NS-DL-09")
def test_a_reservation_ends_with_its_attempt(small: World) -> None:
    """An attempt that failed gives its reservation back, and another download takes the room."""
    first, second = model(small, "first", 5 * MEGABYTE), model(small, "second", 5 * MEGABYTE)
    small.hub.faults.add(Flip(offset=100), times=1)
    assert failure(small, first) == "IntegrityMismatch"
    small.node.mount(second)


def limit(world: World, *, concurrency: int, bytes_per_second: int) -> None:
    """Set the node's limits, and wait until they must hold."""
    download = {"concurrency": concurrency, "bytesPerSecond": bytes_per_second}
    world.stand_in.reconfigure(world.node.name, lambda spec: spec.update(download=download))
    world.advance(1)


@pytest.mark.rule("NS-DL-06", "NS-DL-09")
def test_a_resume_reserves_the_rest_alone(small: World) -> None:
    """A canceled attempt gives its reservation back; its resume needs what is missing, not all."""
    tree = Tree(
        tuple(File(f"{n}.bin", pseudo_random(3 * MEGABYTE, seed=n), lfs=True) for n in range(2))
    )
    artifact = small.artifact("two", repository=small.repository("acme/two", tree))
    limit(small, concurrency=1, bytes_per_second=15_000)
    small.node.publish(small.node.call(artifact))
    small.advance(400)
    canceled = small.node.metrics().value(
        "gpustack_model_manager_materializations_total", result="Canceled"
    )
    assert canceled == 1
    assert stored(small) >= 3 * MEGABYTE, "one of its two files"
    limit(small, concurrency=8, bytes_per_second=0)
    other = model(small, "other", 4 * MEGABYTE)
    small.node.mount(other)
    assert failure(small, artifact) == "InsufficientCapacity", "two do not fit under eight"
    small.node.unpublish(small.node.call(other))
    small.advance(900)
    small.node.mount(artifact)


@pytest.mark.rule("NS-DL-07", "NS-GC-01", "NS-GC-02")
def test_room_is_made_oldest_first(small: World) -> None:
    """A reservation that does not fit removes the trees used longest ago, and no more."""
    models = [model(small, name, 2 * MEGABYTE) for name in ("a", "b", "c")]
    for artifact in models:
        use_once(small, artifact)
        small.advance(3600)
    use_once(small, models[0])
    small.advance(3600)
    new = model(small, "new", 3 * MEGABYTE)
    small.node.mount(new)
    assert held(small, *models, new) == ["a", "new"], "b and c were used before a was used again"


@pytest.mark.rule("NS-GC-01", "NS-GC-02")
def test_passing_the_high_watermark_collects_to_the_low_one(small: World) -> None:
    """Above eighty percent trees go, oldest first, until seventy percent or less is used."""
    models = [model(small, name, MEGABYTE) for name in ("a", "b", "c", "d")]
    for artifact in models:
        use_once(small, artifact)
        small.advance(3600)
    small.node.disk.fill(75)
    small.advance(301)
    assert held(small, *models) == ["a", "b", "c", "d"], "below the high watermark nothing goes"
    small.node.disk.fill(85)
    small.advance(301)
    assert held(small, *models) == ["c", "d"]


@pytest.mark.rule("NS-GC-03", "NS-GC-06")
def test_what_is_used_or_fresh_is_no_candidate(small: World) -> None:
    """A referenced tree and one unreferenced for less than ten minutes survive a full disk."""
    used, fresh = model(small, "used", MEGABYTE), model(small, "fresh", MEGABYTE)
    small.node.mount(used, pod="holder")
    small.advance(3600)
    use_once(small, fresh)
    small.node.disk.fill(95)
    small.advance(301)
    assert held(small, used, fresh) == ["used", "fresh"]
    small.advance(600)
    assert held(small, used, fresh) == ["used"], "ten minutes later the fresh one goes"


@pytest.mark.rule("NS-GC-07", "MP-PIN-01")
def test_a_pinned_digest_is_no_candidate(small: World) -> None:
    """A pin keeps a tree through a full disk; without it the tree goes."""
    pinned = model(small, "pinned", MEGABYTE)
    use_once(small, pinned)
    small.stand_in.reconfigure(small.node.name, lambda spec: spec.update(pinned=[pinned.digest]))
    small.advance(3600)
    small.node.disk.fill(95)
    small.advance(3600)
    assert held(small, pinned) == ["pinned"]
    assert small.node.condition("CapacityLow")["status"] == "True", "it still counts as usage"
    small.stand_in.reconfigure(small.node.name, lambda spec: spec.pop("pinned"))
    small.advance(3600)
    assert held(small, pinned) == []


@pytest.mark.rule("NS-GC-04", "NS-GC-08", "NS-DL-29", "NS-MET-06")
def test_a_partial_goes_after_a_day_without_a_mount(small: World) -> None:
    """An abandoned download keeps its bytes for a day after the last mount that asked.

    Under a spec that fails its check nothing is collected, a partial of any age included.
    """
    artifact = large_partial(small)
    small.node.publish(small.node.call(artifact))
    small.advance(4 * 3600)
    small.node.publish(small.node.call(artifact))
    small.advance(400)
    small.node.disk.fill(95)
    small.advance(22 * 3600)
    held = stored(small)
    assert held >= MEGABYTE, "26 hours after the first mount, and not a day after the last"
    small.stand_in.reconfigure(
        small.node.name, lambda spec: spec["hub"].update(caBundleConfigMap="no-such-bundle")
    )
    small.advance(3 * 3600)
    assert stored(small) >= MEGABYTE, "not under an invalid spec"
    small.stand_in.reconfigure(small.node.name, lambda spec: spec["hub"].pop("caBundleConfigMap"))
    small.until(lambda: stored(small) < MEGABYTE, "it is collected", within_seconds=10)
    counted = small.node.metrics().value("gpustack_model_manager_gc_removed_bytes_total")
    assert MEGABYTE <= counted <= held


def large_partial(world: World) -> Artifact:
    """Make an artifact large enough to be kept in part, whose download stops near its end."""
    world.node.disk.resize(20 * DISK)
    world.advance(301)
    tree = Tree((File("model.bin", large(60, seed=7), lfs=True),))
    world.hub.faults.add(Stall(offset=58 * 2**20))
    return world.artifact("partial", repository=world.repository("acme/partial", tree))


def stored(world: World) -> int:
    """Return the bytes of all files below the cache root."""
    return sum(path.stat().st_size for path in world.node.cache_root.rglob("*") if path.is_file())


@pytest.mark.rule("NS-GC-05")
def test_a_failure_is_forgotten_after_a_day(small: World) -> None:
    """A failed digest of which nothing is on disk is listed for 24 hours after its last failure."""
    artifact = model(small, "unlucky", MEGABYTE)
    refuse(small, artifact, "no-such-bundle")
    small.advance(2 * 3600)
    refuse(small, artifact, "nor-such-a-bundle")
    small.advance(23 * 3600)
    assert small.node.entry(artifact.digest).get("state") == "Failed", "a day after the first only"
    small.advance(2 * 3600)
    assert small.node.entry(artifact.digest) == {}


def refuse(world: World, artifact: Artifact, bundle: str) -> None:
    """Have a mount fail because the spec names a CA bundle that is not there, and mend the spec."""

    def said(ready: str) -> None:
        world.until(lambda: world.node.condition("Ready").get("status") == ready, f"Ready={ready}")

    node = world.node.name
    world.stand_in.reconfigure(node, lambda spec: spec["hub"].update(caBundleConfigMap=bundle))
    said("False")
    answer = world.node.publish(world.node.call(artifact))
    assert "InvalidRequest" in answer.message, answer
    world.stand_in.reconfigure(node, lambda spec: spec["hub"].pop("caBundleConfigMap"))
    said("True")


@pytest.mark.rule("NS-REF-06")
def test_a_partial_survives_a_restart_for_its_resume(small: World) -> None:
    """A start removes no partial that the next mount can continue."""
    artifact = large_partial(small)
    small.node.publish(small.node.call(artifact))
    small.until(lambda: small.hub.faults.gate.waiting, "the download hangs", within_seconds=5)
    small.advance(1)
    small.node.stop_plugin()
    assert stored(small) >= MEGABYTE
    small.node.start_plugin()
    small.advance(10)
    assert stored(small) >= MEGABYTE


@pytest.mark.rule("NS-REF-06")
def test_a_partial_of_no_attempt_goes_at_the_start(small: World) -> None:
    """What lies beside a partial like another one, and is no digest's, is removed."""
    artifact = model(small, "partial", MEGABYTE)
    small.hub.faults.add(Stall(offset=1000))
    small.node.publish(small.node.call(artifact))
    small.until(lambda: small.hub.faults.gate.waiting, "the download hangs", within_seconds=5)
    small.node.stop_plugin()
    name = artifact.digest.partition(":")[2]
    found = [path for path in small.node.cache_root.rglob(f"*{name}*") if path.is_dir()]
    if not found:
        raise Unsupported("a partial download lies in no directory that bears its digest")
    orphan = found[0].with_name(found[0].name.replace(name, "x" * 64))
    shutil.copytree(found[0], orphan)
    small.node.start_plugin()
    small.until(lambda: not orphan.exists(), "the orphan is gone", within_seconds=30)
