"""node-store#the-resource: what a node's object says, to whom, and how often."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import pytest

from emulator.hubs.broken_bodies import Stall
from emulator.hubs.wrong_answers import Status
from spec_tests import oracle
from spec_tests.oracle import File, Tree, large, pseudo_random
from spec_tests.scenario import World
from spec_tests.targets import Unsupported
from spec_tests.worlds import TINY

MODEL: Final = "model.safetensors"
HOUR: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:00:00Z")


def ready(world: World, digest: str) -> dict[str, Any]:
    """Wait until a digest's entry is Ready, and return it."""
    return world.until(
        lambda: entry if (entry := world.node.entry(digest)).get("state") == "Ready" else None,
        "the entry is Ready",
        within_seconds=30,
    )


@pytest.mark.rule("NS-RES-01")
def test_the_resource_is_cluster_scoped_and_named(world: World) -> None:
    """The definition says cluster scope, nms and gpustack; the object bears the Node's name."""
    name = f"nodemodelstores.{oracle.GROUP}"
    spec = world.api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)["spec"]
    assert spec["scope"] == "Cluster"
    assert spec["names"]["shortNames"] == ["nms"]
    assert "gpustack" in spec["names"]["categories"]
    names = [item["metadata"]["name"] for item in world.api.list(oracle.API, "NodeModelStore")]
    assert names == [world.node.name]


@pytest.mark.rule("NS-RES-12")
def test_kubectl_would_print_ready_used_and_age(world: World) -> None:
    """The table has the node's Ready condition, its usedPercent and its age, and no more."""
    world.until(
        lambda: world.node.condition("Ready").get("status") == "True", "Ready", within_seconds=30
    )
    world.node.disk.fill(42)
    world.advance(301)
    table = world.as_user("", {}).table(f"/apis/{oracle.API}/nodemodelstores")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Ready", "Used", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:-1] == [world.node.name, "True", 40]


@pytest.mark.rule("NS-RES-04", "NS-RES-18", "NS-RES-21")
def test_the_status_follows_the_specs_generation(world: World) -> None:
    """A changed spec is applied and observedGeneration says so at once; Ready is Serving."""
    world.until(world.node.observed, "the first spec is applied", within_seconds=30)
    before = world.node.store()["metadata"]["generation"]
    world.stand_in.reconfigure(
        world.node.name, lambda spec: spec["watermarks"].update(highPercent=75)
    )
    assert world.node.store()["metadata"]["generation"] == before + 1
    world.until(world.node.observed, "the changed spec is applied")
    condition = world.node.condition("Ready")
    assert (condition["status"], condition["reason"]) == ("True", "Serving")


@pytest.mark.rule("NS-RES-05")
def test_capacity_tells_size_and_stored_bytes(world: World) -> None:
    """totalBytes is the filesystem's size; storedBytes grows by the tree that was published."""
    artifact = world.artifact()
    world.until(lambda: world.node.store().get("status"), "a first status", within_seconds=30)
    before = world.node.store()["status"]["capacity"]
    world.node.mount(artifact)
    ready(world, artifact.digest)
    after = world.node.store()["status"]["capacity"]
    assert after["totalBytes"] == world.node.disk.usage(world.node.cache_root).total_bytes
    assert after["storedBytes"] - before["storedBytes"] == TINY.size_bytes


@pytest.mark.rule("NS-RES-06", "NS-RES-18")
@pytest.mark.parametrize(("filled", "said"), [(1, 0), (4.9, 0), (42, 40), (59.99, 55), (60, 60)])
def test_used_percent_is_rounded_down_to_five(world: World, filled: float, said: int) -> None:
    """usedPercent is the whole filesystem's usage in steps of five, rounded down."""
    world.until(lambda: world.node.store().get("status"), "a first status", within_seconds=30)
    world.node.disk.fill(filled)
    world.advance(301)
    assert world.node.store()["status"]["capacity"]["usedPercent"] == said


@pytest.mark.rule("NS-RES-08")
def test_last_use_is_told_to_the_hour(world: World) -> None:
    """lastUsedTime is the hour of the last use and no finer."""
    artifact = world.artifact()
    world.advance(2345)
    world.node.unpublish(world.node.mount(artifact))
    entry = ready(world, artifact.digest)
    world.until(lambda: world.node.entry(artifact.digest).get("lastUsedTime"), "a last use")
    used = world.node.entry(artifact.digest)["lastUsedTime"]
    assert HOUR.fullmatch(used), entry
    assert 0 <= world.now() - datetime.fromisoformat(used).timestamp() < 3600


@pytest.mark.rule("NS-RES-09", "NS-RES-11")
def test_a_download_is_listed_with_its_size_and_bytes(world: World) -> None:
    """A Downloading entry has its size once listed, what it holds, and where it comes from."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=200_000), path=MODEL)
    call = world.node.call(artifact)
    world.node.publish(call)
    entry = world.until(
        lambda: (
            world.node.entry(artifact.digest).get("sizeBytes") and world.node.entry(artifact.digest)
        ),
        "the listed download",
        within_seconds=5,
    )
    assert entry["state"] == "Downloading"
    assert entry["sizeBytes"] == TINY.size_bytes
    world.advance(20)
    world.node.publish(call)
    world.advance(20)
    held = world.node.entry(artifact.digest)["downloadedBytes"]
    assert 200_000 <= held < TINY.size_bytes
    world.hub.faults.clear()
    world.node.mount(artifact)
    done = ready(world, artifact.digest)
    assert done["source"] == "Hub"
    assert "downloadedBytes" not in done


@pytest.mark.rule("NS-RES-05", "NS-RES-09")
def test_what_an_earlier_attempt_left_counts(world: World) -> None:
    """A partial download is part of storedBytes, and of downloadedBytes as soon as it goes on."""
    tree = Tree(tuple(File(f"{n}.bin", pseudo_random(300_000, seed=n), lfs=True) for n in range(2)))
    artifact = world.artifact(repository=world.repository("acme/two", tree))
    world.until(lambda: world.node.store().get("status"), "a first status", within_seconds=30)
    before = world.node.store()["status"]["capacity"]["storedBytes"]
    world.hub.faults.add(Stall(offset=1000), path="1.bin")
    call = world.node.call(artifact)
    world.node.publish(call)
    world.until(lambda: world.hub.faults.gate.waiting, "the second file hangs", within_seconds=5)
    world.advance(200)
    world.until(
        lambda: world.node.entry(artifact.digest)["state"] == "Failed",
        "it is given up",
        within_seconds=60,
    )
    world.until(
        lambda: world.node.store()["status"]["capacity"]["storedBytes"] >= before + 300_000,
        "the first file counts",
        within_seconds=30,
    )
    world.advance(61)
    assert world.node.publish(call).code == "ABORTED"
    entry = world.until(
        lambda: found if (found := world.node.entry(artifact.digest)).get("sizeBytes") else None,
        "the listed download",
        within_seconds=5,
    )
    assert entry["state"] == "Downloading"
    assert entry.get("downloadedBytes", 0) >= 300_000


@pytest.mark.rule("NS-RES-11")
def test_a_tree_from_before_the_field_has_no_source(world: World) -> None:
    """What is not known of an old tree is not told, and not guessed either."""
    artifact = world.artifact()
    call = world.node.mount(artifact)
    assert ready(world, artifact.digest)["source"] == "Hub"
    world.node.stop_plugin()
    for path in world.node.markers(call, artifact):
        text = path.read_text("utf-8")
        older = re.sub(r',\s*"source":\s*"Hub"|"source":\s*"Hub"\s*,', "", text)
        if older != text:
            path.chmod(0o644)
            path.write_text(older, "utf-8")
            break
    else:
        raise Unsupported("nothing beside a tree says where it came from in a known form")
    world.node.start_plugin()
    world.until(
        lambda: "source" not in ready(world, artifact.digest),
        "the source is gone",
        within_seconds=9,
    )


@pytest.mark.rule("NS-RES-13", "NS-RES-14", "NS-MET-08")
def test_nothing_names_a_tenant(world: World) -> None:
    """No namespace, artifact, Pod or repository stands in the object, whatever happened."""
    repository = world.repository("secretive-owner/hidden-model")
    good = world.artifact("quiet-artifact", namespace="tenant-x", repository=repository)
    world.node.mount(good, pod="shy-pod")
    other = Tree((File("other-file.bin", b"x" * 999, lfs=True),))
    bad = world.artifact(
        "loud-artifact",
        namespace="tenant-x",
        repository=world.repository("secretive-owner/broken-model", other),
    )
    world.hub.faults.add(Status(503), path="other-file.bin")
    world.node.publish(world.node.call(bad))
    entry = world.until(
        lambda: found if (found := world.node.entry(bad.digest)).get("state") == "Failed" else None,
        "the failure is told",
        within_seconds=120,
    )
    assert "503" in entry["message"], "a detail such as the hub's HTTP status"
    store = world.node.store()
    said = str(store["spec"]) + str(store["status"])
    labels = str(list(world.node.metrics().labels()))
    for name in ("tenant-x", "quiet", "loud", "shy-pod", "secretive", "hidden", "other-file"):
        assert name not in said, name
        assert name not in labels, name
    assert "other-file.bin" in world.log.text, "the log has what the status withholds"


@pytest.mark.rule("NS-RES-19")
def test_a_quiet_node_writes_nothing(world: World) -> None:
    """An hour without events leaves the object's version as it is."""
    world.node.mount(world.artifact())
    world.advance(60)
    before = world.node.store()["metadata"]["resourceVersion"]
    world.advance(3600)
    assert world.node.store()["metadata"]["resourceVersion"] == before


@pytest.mark.rule("NS-RES-16", "NS-RES-17")
@pytest.mark.parametrize("seconds", [600, 120])
def test_progress_is_written_on_thresholds(world: World, seconds: int) -> None:
    """While bytes trickle in, at most two progress writes a minute and twenty a download happen."""
    tree = Tree((File(MODEL, bytes(range(256)) * 40_000, lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/slow", tree))
    world.stand_in.reconfigure(
        world.node.name,
        lambda spec: spec["download"].update(bytesPerSecond=tree.size_bytes // seconds),
    )
    world.advance(1)
    call = world.node.call(artifact)
    writes: list[tuple[float, int]] = []
    for _ in range(seconds // 5 + 60):
        world.node.publish(call)
        world.advance(5)
        held = world.node.entry(artifact.digest).get("downloadedBytes", 0)
        if held and (not writes or writes[-1][1] != held):
            writes.append((world.now(), held))
        if world.node.entry(artifact.digest).get("state") == "Ready":
            break
    assert world.node.entry(artifact.digest)["state"] == "Ready"
    assert 2 <= len(writes) <= 21, writes
    for (earlier, before), (later, after) in pairwise(writes[1:]):
        assert later - earlier >= 30 - 5, "two writes within thirty seconds"
        assert after - before >= tree.size_bytes * 0.05, "a write for less than five percent"


@pytest.mark.rule("NS-RES-18")
@pytest.mark.feature("clock")
def test_news_is_written_at_once_with_the_progress_of_the_moment(world: World) -> None:
    """An unmounted tree is told within the thirty seconds, and with it how far a download is."""
    call = world.node.mount(world.artifact("mounted"))
    tree = Tree((File("slow.bin", large(20, seed=8), lfs=True),))
    slow = world.artifact("slow", repository=world.repository("acme/slow", tree))
    world.stand_in.reconfigure(
        world.node.name, lambda spec: spec["download"].update(bytesPerSecond=100_000)
    )
    world.advance(1)
    world.node.publish(world.node.call(slow))

    def told() -> int:
        return int(world.node.entry(slow.digest).get("downloadedBytes", 0))

    begun = world.until(told, "a first figure", within_seconds=60)
    before = world.until(
        lambda: now if (now := told()) > begun else 0, "progress was written", within_seconds=60
    )
    world.advance(5)
    assert told() == before, "progress alone waits"
    assert world.node.unpublish(call).ok
    world.until(
        lambda: not any(m.get("referenced") for m in world.node.store()["status"]["models"]),
        "nothing is referenced",
    )
    assert told() > before


@pytest.mark.rule("NS-RES-22", "NS-RES-23", "NS-FR-01", "NS-GC-08", "NS-GC-09", "NS-DL-28")
def test_an_invalid_spec_stops_downloads_and_collection(world: World) -> None:
    """Under a spec that fails the plugin's check nothing starts and nothing is collected."""
    held = world.artifact("held")
    world.node.unpublish(world.node.mount(held))
    tree = Tree((File("new.bin", b"new", lfs=True),))
    new = world.artifact("new", repository=world.repository("acme/new", tree))
    world.stand_in.reconfigure(
        world.node.name,
        lambda spec: spec["hub"].update(caBundleConfigMap="no-such-bundle"),
    )
    condition = world.until(
        lambda: (
            found if (found := world.node.condition("Ready")).get("status") == "False" else None
        ),
        "Ready turns False",
    )
    assert condition["reason"] == "InvalidConfiguration"
    asked = len(world.hub_requests())
    answer = world.node.publish(world.node.call(new))
    assert answer.code == "UNAVAILABLE"
    assert "InvalidRequest" in answer.message
    assert len(world.hub_requests()) == asked
    assert world.node.publish(world.node.call(held, pod="again")).ok, "published content mounts"
    world.node.unpublish(world.node.call(held, pod="again"))
    world.node.disk.fill(95)
    world.advance(3600)
    assert world.node.entry(held.digest)["state"] == "Ready", "the old watermarks are not in force"
    assert "collection skipped" in world.node.condition("Ready")["message"]
    world.node.disk.fill(10)
    world.stand_in.reconfigure(world.node.name, lambda spec: spec["hub"].pop("caBundleConfigMap"))
    world.until(
        lambda: world.node.condition("Ready").get("status") == "True", "the mended spec applies"
    )
    world.node.mount(new)


@pytest.mark.rule("NS-RES-24", "NS-RES-25", "NS-GC-06")
def test_saturation_is_reported(world: World) -> None:
    """Above the high watermark with every tree in use CapacityLow says NothingToRemove."""
    artifact = world.artifact()
    world.node.mount(artifact)
    low = world.until(lambda: world.node.condition("CapacityLow"), "a condition")
    assert (low["status"], low["reason"]) == ("False", "WithinWatermarks")
    world.node.disk.fill(75)
    world.advance(301)
    low = world.node.condition("CapacityLow")
    assert (low["status"], low["reason"]) == ("False", "WithinWatermarks"), "between the two"
    world.node.disk.fill(90)
    world.advance(301)
    low = world.node.condition("CapacityLow")
    assert (low["status"], low["reason"]) == ("True", "NothingToRemove")
    assert world.node.entry(artifact.digest)["state"] == "Ready"
    world.node.disk.fill(50)
    world.advance(301)
    assert world.node.condition("CapacityLow")["status"] == "False"
