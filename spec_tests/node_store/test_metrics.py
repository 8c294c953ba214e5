"""node-store#metrics: what the plugin's HTTPS port answers."""

from __future__ import annotations

from typing import Final

import pytest

from emulator.hubs.broken_bodies import Stall
from emulator.hubs.wrong_answers import Status
from spec_tests.observe import fetch
from spec_tests.scenario import World
from spec_tests.worlds import TINY

PREFIX: Final = "gpustack_model_manager"


@pytest.mark.rule("NS-MET-01")
def test_health_and_metrics_share_the_secure_port(world: World) -> None:
    """readyz, livez and metrics answer over HTTPS on one port, and nothing else does."""
    assert world.node.url.startswith("https://")
    for path in ("/readyz", "/livez", "/metrics"):
        assert fetch(world.node.url + path)[0] == 200, path
    assert fetch(world.node.url + "/")[0] == 404


@pytest.mark.rule("NS-MET-01", "NS-AUT-14")
def test_a_plugin_that_cannot_read_is_not_ready(world: World) -> None:
    """readyz says no until the artifacts have been read; livez says yes all the while."""
    world.node.stop_plugin()
    with world.rights_withdrawn():
        world.node.start_plugin()
        assert fetch(world.node.url + "/readyz")[0] == 503
        assert fetch(world.node.url + "/livez")[0] == 200
    world.until(
        lambda: fetch(world.node.url + "/readyz")[0] == 200, "it is ready", within_seconds=120
    )


@pytest.mark.rule("NS-MET-02", "NS-MET-04", "NS-MET-05")
def test_a_publication_is_counted(world: World) -> None:
    """Bytes by source, one published attempt, and its whole duration in the histogram."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=1000), path="model.safetensors")
    began = world.now()
    world.node.publish(world.node.call(artifact))
    world.until(lambda: world.hub.faults.gate.waiting, "the download hangs", within_seconds=5)
    world.advance(5)
    least = world.now() - began
    world.node.publish(world.node.call(artifact))
    world.hub.faults.clear()
    world.node.mount(artifact)
    metrics = world.until(
        lambda: (
            found
            if (found := world.node.metrics()).value(f"{PREFIX}_publish_duration_seconds_count")
            else None
        ),
        "the publication is counted",
    )
    whole = world.now() - began
    assert least <= metrics.value(f"{PREFIX}_publish_duration_seconds_sum") <= whole
    assert metrics.value(f"{PREFIX}_download_bytes_total", source="hub") == TINY.size_bytes
    assert metrics.value(f"{PREFIX}_materializations_total", result="published") == 1
    assert metrics.value(f"{PREFIX}_publish_duration_seconds_count") == 1
    assert metrics.value(f"{PREFIX}_publish_duration_seconds_bucket", le="+Inf") == 1


@pytest.mark.rule("NS-MET-03")
def test_mount_calls_are_counted_by_their_result(world: World) -> None:
    """A first mount is materialized, a second one a hit, a waiting one pending, or denied."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=1000), path="model.safetensors")
    world.node.publish(world.node.call(artifact))
    world.hub.faults.clear()
    world.node.mount(artifact)
    world.node.mount(artifact, pod="second")
    world.node.publish(world.node.call(artifact, namespace="stranger"))
    metrics = world.node.metrics()
    counted = {
        result: metrics.value(f"{PREFIX}_mounts_total", result=result)
        for result in ("hit", "materialized", "denied", "pending")
    }
    assert (counted["hit"], counted["materialized"], counted["denied"]) == (1, 1, 1)
    assert counted["pending"] >= 1


@pytest.mark.rule("NS-MET-04")
@pytest.mark.parametrize(("status", "reason"), [(503, "SourceUnavailable"), (403, "AccessDenied")])
def test_a_failed_attempt_is_counted_under_its_reason(
    world: World, status: int, reason: str
) -> None:
    """An attempt that failed counts once, under the reason that the status shows."""
    world.hub.faults.add(Status(status), at="tree")
    artifact = world.artifact()
    world.node.publish(world.node.call(artifact))
    entry = world.until(
        lambda: found if (found := world.node.entry(artifact.digest)).get("reason") else None,
        "the failure is told",
        within_seconds=60,
    )
    assert entry["reason"] == reason
    counted = world.node.metrics()
    name = f"{PREFIX}_materializations_total"
    by_result = {
        result: counted.value(name, result=result)
        for result in ("published", "SourceUnavailable", "AccessDenied")
    }
    assert {result for result, count in by_result.items() if count} == {reason}
    assert by_result[reason] == 1


@pytest.mark.rule("NS-MET-07")
def test_the_gauges_agree_with_the_status(world: World) -> None:
    """stored_bytes and capacity_bytes are the figures of status.capacity."""
    artifact = world.artifact()
    world.node.mount(artifact)
    world.until(lambda: world.node.entry(artifact.digest).get("state") == "Ready", "the tree")
    world.advance(301)
    capacity = world.node.store()["status"]["capacity"]
    metrics = world.node.metrics()
    assert metrics.value(f"{PREFIX}_stored_bytes") == capacity["storedBytes"]
    assert metrics.value(f"{PREFIX}_capacity_bytes") == capacity["totalBytes"]


@pytest.mark.rule("NS-MET-06")
def test_collected_bytes_are_counted(world: World) -> None:
    """What a collection removed is added to gc_removed_bytes_total."""
    artifact = world.artifact()
    world.node.unpublish(world.node.mount(artifact))
    world.advance(900)
    world.node.disk.resize(1_000_000)
    world.node.disk.fill(90)
    world.until(
        lambda: not world.node.entry(artifact.digest), "the tree is collected", within_seconds=600
    )
    assert world.node.metrics().value(f"{PREFIX}_gc_removed_bytes_total") == TINY.size_bytes
