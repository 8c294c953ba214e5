"""node-store: how many requests and bytes a node asks for, by which way, and how full is full."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from emulator.hubs.broken_bodies import Stall
from emulator.hubs.hub import NAME
from emulator.hubs.huggingface import HuggingFaceHub
from emulator.hubs.proxy import Proxy
from gpustack_delivery.httpd.certificates import Authority
from spec_tests import oracle
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY, Repository

GIBIBYTE: Final = 1 << 30
RECEIVED: Final = "gpustack_model_manager_download_bytes_total"


def shards(count: int, size_bytes: int) -> Tree:
    """Return a tree of equally large weights."""
    return Tree(
        tuple(
            File(f"{number}.bin", pseudo_random(size_bytes, seed=number), lfs=True)
            for number in range(count)
        )
    )


def ready(world: World, artifact: Artifact) -> bool:
    """Say whether the node holds an artifact's digest Ready."""
    return bool(world.node.entry(artifact.digest).get("state") == "Ready")


# requests and bytes


@pytest.mark.rule("NS-DL-12")
def test_no_more_requests_run_than_the_limit_allows(world: World) -> None:
    """With a concurrency of two, two of six files are asked for at once, over two downloads."""
    world.stand_in.reconfigure(world.node.name, lambda spec: spec["download"].update(concurrency=2))
    world.advance(1)
    world.hub.faults.add(Stall(offset=1000), path="*.bin")
    artifacts = [
        world.artifact(name, repository=world.repository(f"acme/{name}", tree))
        for name, tree in (("one", shards(3, 100_000)), ("two", shards(3, 120_000)))
    ]
    for artifact in artifacts:
        world.node.publish(world.node.call(artifact))
    world.until(lambda: world.hub.faults.gate.waiting == 2, "two are under way", within_seconds=5)
    world.advance(2)
    assert world.hub.faults.gate.waiting == 2, "a third request ran"
    world.hub.faults.clear()
    world.hub.faults.release()
    for artifact in artifacts:
        world.node.mount(artifact)


@pytest.mark.rule("NS-DL-13")
@pytest.mark.feature("clock")
def test_one_byte_limit_holds_over_all_downloads(world: World) -> None:
    """Two downloads together stay under the limit; lifting it lets the rest come at once."""

    def limit(bytes_per_second: int) -> None:
        world.stand_in.reconfigure(
            world.node.name,
            lambda spec: spec["download"].update(bytesPerSecond=bytes_per_second),
        )
        world.advance(0)

    limit(1_000_000)
    artifacts = [
        world.artifact(name, repository=world.repository(f"acme/{name}", tree))
        for name, tree in (("one", shards(1, 20_000_000)), ("two", shards(2, 10_000_000)))
    ]
    for artifact in artifacts:
        world.node.publish(world.node.call(artifact))
    world.advance(6)
    received = world.node.metrics().value(RECEIVED, source="hub")
    assert 4_000_000 <= received <= 7_500_000, "six seconds, and one more as the burst"
    limit(0)
    world.advance(2)
    assert all(ready(world, artifact) for artifact in artifacts)


# the way to the hub


def tiny_on(hub: HuggingFaceHub) -> Repository:
    """Put the usual repository on another hub than the world's."""
    found = hub.add_repository("acme/tiny", TINY.contents())
    commit = found.resolve("main")
    assert commit is not None
    return Repository("acme/tiny", commit.id, TINY, found)


def behind_a_proxy(world: World, hub: HuggingFaceHub, hub_settings: Mapping[str, str]) -> Artifact:
    """Make an artifact on a hub that only its name in a certificate is known of."""
    port = hub.url.rpartition(":")[2]
    repository = tiny_on(hub)
    endpoint = f"https://{NAME}:{port}"
    world.stand_in.reconfigure(
        world.node.name,
        lambda spec: spec.update(hub={"huggingFaceEndpoint": endpoint, **hub_settings}),
    )
    world.advance(1)
    return world.artifact("proxied", repository=repository)


def trust(world: World, authority: Authority) -> None:
    """Put an authority's certificate where a spec may name it."""
    world.api.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "hub-ca", "namespace": oracle.OPERATOR_NAMESPACE},
            "data": {"ca.crt": authority.certificate_pem},
        }
    )


@pytest.mark.rule("NS-DL-11", "NS-REQ-05")
@pytest.mark.parametrize(
    ("no_proxy", "delivered"), [("", True), ("other.test", True), (NAME, False)]
)
def test_requests_take_the_proxy_unless_the_list_says_not(
    world: World, no_proxy: str, *, delivered: bool
) -> None:
    """A name that only the proxy can resolve is reached through it, and not past noProxy."""
    authority = Authority("a private authority")
    trust(world, authority)
    with HuggingFaceHub(clock=world.seat.clock, authority=authority) as hub:
        port = int(hub.url.rpartition(":")[2])
        route = {f"{NAME}:{port}": ("127.0.0.1", port)}
        with Proxy(clock=world.seat.clock, routes=route) as proxy:
            settings = {
                "httpsProxy": proxy.url,
                "noProxy": no_proxy,
                "caBundleConfigMap": "hub-ca",
            }
            artifact = behind_a_proxy(world, hub, settings)
            call = world.node.call(artifact)
            world.node.publish(call)
            entry = world.until(
                lambda: (
                    found
                    if (found := world.node.entry(artifact.digest)).get("state")
                    in {"Ready", "Failed"}
                    else None
                ),
                "the attempt has ended",
                within_seconds=30,
            )
            tunnels = proxy.requests.entries(f"{NAME}:{port}", method="CONNECT")
    if delivered:
        assert entry["state"] == "Ready"
        assert tunnels
        assert world.node.publish(call).ok
    else:
        assert (entry["state"], entry.get("reason")) == ("Failed", "SourceUnavailable")
        assert not tunnels


@pytest.mark.rule("NS-DL-11")
def test_an_authority_that_nobody_named_is_not_trusted(world: World) -> None:
    """The same hub without its CA bundle is unavailable, and nothing is downloaded from it."""
    authority = Authority("a private authority")
    with HuggingFaceHub(clock=world.seat.clock, authority=authority) as hub:
        repository = tiny_on(hub)
        world.stand_in.reconfigure(
            world.node.name, lambda spec: spec.update(hub={"huggingFaceEndpoint": hub.url})
        )
        world.advance(1)
        artifact = world.artifact("untrusted", repository=repository)
        world.node.publish(world.node.call(artifact))
        entry = world.until(
            lambda: found if (found := world.node.entry(artifact.digest)).get("reason") else None,
            "the attempt has failed",
            within_seconds=30,
        )
        assert entry["reason"] == "SourceUnavailable"
        assert hub.requests.entries() == []


# how full is full


def collects_above(world: World, cap: int, artifact: Artifact) -> None:
    """Hold that an unused tree survives just below a cap and goes just above it."""
    world.node.unpublish(world.node.mount(artifact))
    world.advance(3600)
    world.node.disk.fill(cap - 0.5)
    world.advance(301)
    assert ready(world, artifact), f"collected below {cap}%"
    world.node.disk.fill(cap + 0.5)
    world.advance(301)
    assert not ready(world, artifact), f"not collected above {cap}%"


CAPS: Final = (
    ({"nodefsAvailable": "30%", "imagefsAvailable": "8%", "imageGCHighThresholdPercent": 90}, 65),
    ({"nodefsAvailable": "5%", "imagefsAvailable": "25%", "imageGCHighThresholdPercent": 90}, 70),
    ({"nodefsAvailable": "5%", "imagefsAvailable": "8%", "imageGCHighThresholdPercent": 90}, 85),
    ({"imagefsAvailable": "1%", "imageGCHighThresholdPercent": 99}, 85),
    ({"nodefsAvailable": "1%", "imageGCHighThresholdPercent": 99}, 80),
    ({"nodefsAvailable": "1%", "imagefsAvailable": "1%"}, 80),
    ({"nodefsAvailable": "200Gi", "imagefsAvailable": "1%", "imageGCHighThresholdPercent": 99}, 75),
)
"""Kubelet's thresholds on a filesystem of 1000 GiB, and the cap that they make of 95%."""


@pytest.mark.rule("NS-GC-10", "OP-CAP-02", "NS-RES-21")
def test_the_high_watermark_stays_below_kubelets_line(world: World) -> None:
    """On kubelet's own filesystem the watermarks give way to its thresholds, without a restart."""
    world.node.share_with_kubelet()
    world.node.disk.resize(1000 * GIBIBYTE)
    for kubelet, cap in CAPS:

        def change(spec: dict[str, Any], kubelet: dict[str, Any] = kubelet) -> None:
            spec["watermarks"] = {"highPercent": 95, "lowPercent": 90}
            spec["kubelet"] = kubelet

        world.stand_in.reconfigure(world.node.name, change)
        world.until(world.node.observed, "the spec is applied", within_seconds=30)
        said = world.node.condition("Ready")
        assert (said["status"], said["reason"]) == ("True", "Serving")
        assert f"{cap}" in said["message"], (kubelet, said["message"])
    collects_above(world, cap, world.artifact())


@pytest.mark.rule("NS-GC-10")
def test_a_filesystem_of_its_own_keeps_its_watermarks(world: World) -> None:
    """Where kubelet has no say the configured watermark holds, and there is nothing to explain."""
    world.node.disk.place(world.node.cache_root, "259:9", GIBIBYTE // 2)
    world.stand_in.reconfigure(
        world.node.name,
        lambda spec: spec.update(watermarks={"highPercent": 95, "lowPercent": 90}),
    )
    # Which filesystem the cache lies on is looked at when the plugin starts.
    world.node.restart_plugin()
    world.advance(301)
    assert world.node.condition("Ready").get("message", "") == ""
    collects_above(world, 95, world.artifact())


@pytest.mark.rule("NS-REQ-03", "NS-GC-10")
def test_without_a_reading_kubelets_defaults_are_assumed(world: World) -> None:
    """A node whose kubelet was never read is capped at eighty percent, and its message says why."""
    world.node.share_with_kubelet()
    world.stand_in.reconfigure(
        world.node.name,
        lambda spec: spec.update(watermarks={"highPercent": 95, "lowPercent": 90}),
    )
    world.advance(301)
    message = world.node.condition("Ready")["message"]
    assert "80" in message
    assert "default" in message
    collects_above(world, 80, world.artifact())


@pytest.mark.rule("OP-CAP-01")
def test_usage_counts_everything_on_the_filesystem(world: World) -> None:
    """What others wrote fills the disk as the cache does, and is what the watermarks read."""
    artifact = world.artifact()
    world.node.disk.fill(42)
    world.advance(301)
    assert world.node.store()["status"]["capacity"]["usedPercent"] == 40
    collects_above(world, 80, artifact)


# what a collection and a list must not lose


@pytest.mark.rule("NS-REF-02")
def test_a_tree_stays_between_the_check_and_the_bind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that runs while a mount is being made does not take its tree away."""
    artifact = world.artifact()
    world.node.unpublish(world.node.mount(artifact))
    world.advance(3600)
    bind = world.node.mounts.bind_read_only
    collections: list[threading.Thread] = []

    def bind_late(source: Path, target: Path) -> None:
        world.node.disk.fill(95)
        collection = threading.Thread(target=world.advance, args=(301,))
        collection.start()
        collections.append(collection)
        # Long enough for a collection that is free to run; one that must wait is waited for later.
        collection.join(2)
        bind(source, target)

    monkeypatch.setattr(world.node.mounts, "bind_read_only", bind_late)
    call = world.node.call(artifact)
    answer = world.node.publish(call)
    for collection in collections:
        collection.join()
    assert collections, "the tree was to be mounted, not delivered again"
    assert answer.ok, answer
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-RES-20")
def test_the_list_keeps_the_referenced_and_then_the_recent(world: World) -> None:
    """Of 260 digests 256 are listed: the mounted old one stays, three idle old ones do not."""
    tree = Tree(tuple(File(f"{n:03}.json", f"{n}\n".encode(), lfs=False) for n in range(259)))
    repository = world.repository("acme/many", tree)

    def take(number: int) -> Artifact:
        path = f"{number:03}.json"
        return world.artifact(
            f"part-{number:03}",
            repository=repository,
            keep=(path,),
            spec={"allowPatterns": [path]},
        )

    # The mounted one is the last by its digest, so that no other order keeps it by chance.
    old = sorted((take(n) for n in range(4)), key=lambda artifact: artifact.digest, reverse=True)
    world.node.mount(old[0], pod="holder")
    for artifact in old[1:]:
        world.node.unpublish(world.node.mount(artifact, pod=artifact.name))
    world.advance(7200)
    recent = [take(number) for number in range(4, 259)]
    for artifact in recent:
        world.node.publish(world.node.call(artifact, pod=artifact.name))
    kept = {old[0].digest, *(artifact.digest for artifact in recent)}

    def listed() -> set[str]:
        return {model["digest"] for model in world.node.store()["status"]["models"]}

    world.until(lambda: listed() == kept, "the list is full and settled", within_seconds=30)
    assert len(kept) == 256
    assert "3" in world.node.condition("Ready")["message"]
