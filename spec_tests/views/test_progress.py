"""views#the-progress-subresource, views#authorization: how far a delivery is, and who may ask."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from emulator.hubs.broken_bodies import Stall
from spec_tests import oracle
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming

ROOT: Final = f"/apis/{oracle.GROUP}/v1"
NODES: Final = ("node-a", "node-b", "node-c", "node-d")
MODEL: Final = "model.safetensors"
Worlds = Callable[..., World]


def served(world: World) -> World:
    """Wait until a world's public API answers."""
    admin = world.as_user("", {})
    world.until(
        lambda: admin.ask("GET", ROOT)[0] == 200, "the public API answers", within_seconds=60
    )
    return world


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a worker that serves the public API, and nodes whose reports the test writes."""
    return served(worlds(nodes=NODES, worker=True, plugins=False))


def path_of(artifact: Artifact) -> str:
    """Return where an artifact's progress is served."""
    return f"{ROOT}/namespaces/{artifact.namespace}/modelartifacts/{artifact.name}/progress"


def progress(world: World, artifact: Artifact) -> dict[str, Any]:
    """Ask for an artifact's progress."""
    return world.as_user("", {}).read(path_of(artifact))


def counts(answer: dict[str, Any]) -> tuple[Any, ...]:
    """Return the counts of an answer."""
    return tuple(answer[key] for key in ("ready", "downloading", "failed", "live"))


def report(world: World, artifact: Artifact) -> int:
    """Have one node hold the digest, one fail and two download a tenth and a half of it."""
    warming = Warming(world)
    for node in NODES:
        warming.register(node)
    size = sum(len(file.content) for file in artifact.tree.files)
    entry = {"digest": artifact.digest, "sizeBytes": size}
    other = {"digest": "sha256:" + "ab" * 32, "state": "Ready", "sizeBytes": 1}
    failed = {"state": "Failed", "reason": "SourceUnavailable", "message": "HTTP 503"}
    warming.report("node-a", {**entry, "state": "Ready"}, other)
    warming.report("node-b", {**entry, **failed})
    warming.report("node-c", {**entry, "state": "Downloading", "downloadedBytes": size // 10})
    warming.report("node-d", {**entry, "state": "Downloading", "downloadedBytes": size // 2})
    world.until(
        lambda: counts(progress(world, artifact))[:3] == (1, 2, 1),
        "every report is counted",
        within_seconds=10,
    )
    return size


@pytest.mark.rule("VW-PRG-01", "VW-PRG-02", "VW-PRG-03")
def test_it_counts_what_the_nodes_report(world: World) -> None:
    """Every field, from the nodes' own reports; nodes without a plugin to ask are not live."""
    artifact = world.artifact()
    assert counts(progress(world, artifact)) == (0, 0, 0, 0), "nobody has reported yet"
    size = report(world, artifact)
    answer = progress(world, artifact)
    assert answer["kind"] == "ModelArtifactProgress"
    assert answer["metadata"] == {"name": artifact.name, "namespace": artifact.namespace}
    assert answer["manifestDigest"] == artifact.digest
    assert answer["sizeBytes"] == size
    assert counts(answer) == (1, 2, 1, 0)
    assert answer["downloadingBytes"] == size // 10 + size // 2
    assert answer["downloadingPercent"] == int(
        (size // 10 * 100 / size + size // 2 * 100 / size) / 2
    )
    assert answer["failureReasons"] == [{"reason": "SourceUnavailable", "count": 1}]
    assert answer["timestamp"].endswith("Z")
    assert not answer.get("reason")
    assert not [node for node in NODES if node in json.dumps(answer)]


@pytest.mark.rule("VW-PRG-01")
def test_it_stores_nothing(world: World) -> None:
    """Asking changes no object, and no other verb is served."""
    artifact = world.artifact()
    before = world.stored(artifact)
    progress(world, artifact)
    world.advance(1)
    assert world.stored(artifact) == before
    admin = world.as_user("", {})
    for method in ("PUT", "PATCH", "DELETE", "POST"):
        code, _ = admin.ask(method, path_of(artifact), {"ready": 9})
        assert code == 405, method
    assert admin.ask("GET", path_of(artifact).replace(artifact.name, "other"))[0] == 404


@pytest.mark.rule("VW-PRG-03")
def test_nothing_to_count_is_zeros_and_a_reason(world: World) -> None:
    """An artifact that is not resolved, and one of a claim, say why; nothing downloads."""
    repository = world.repository("acme/hidden", private=True)
    hidden = world.unresolved("hidden", repository, spec={})
    world.secret("hidden-token", "hf_nobody", namespace="team-a")
    claim = {"source": {"persistentVolumeClaim": {"claimName": "weights"}}}
    world.api.create(
        {
            "apiVersion": oracle.API,
            "kind": "ModelArtifact",
            "metadata": {"name": "claimed", "namespace": "team-a"},
            "spec": claim,
        }
    )
    for name in (hidden.name, "claimed"):
        path = f"{ROOT}/namespaces/team-a/modelartifacts/{name}/progress"
        answer = world.as_user("", {}).read(path)
        assert counts(answer) == (0, 0, 0, 0), name
        assert (answer["downloadingBytes"], answer["sizeBytes"]) == (0, 0), name
        assert answer.get("reason"), name
        assert "downloadingPercent" not in answer, name


@pytest.mark.rule("VW-AUT-01")
def test_it_needs_a_right_of_its_own(world: World) -> None:
    """Reading artifacts does not grant it; get on modelartifacts/progress does, alone."""
    artifact = world.artifact()
    reader = world.as_user("reader", {})
    world.allow("reader", "modelartifacts", "get")
    own = path_of(artifact).removesuffix("/progress")
    assert reader.ask("GET", own)[0] == 200
    code, refused = reader.ask("GET", path_of(artifact))
    assert (code, refused.get("reason")) == (403, "Forbidden")
    watcher = world.as_user("watcher", {})
    world.allow("watcher", "modelartifacts/progress", "get")
    assert watcher.ask("GET", path_of(artifact))[0] == 200
    assert watcher.ask("GET", own)[0] == 403


@pytest.mark.rule("VW-PRG-02", "NS-MET-09")
def test_live_bytes_come_from_the_plugin_itself(worlds: Worlds) -> None:
    """Between two reports the answer moves on with the node's own port, as long as that answers."""
    world = served(worlds(worker=True))
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=200_000), path=MODEL)
    assert world.node.publish(world.node.call(artifact)).code == "ABORTED"
    world.until(lambda: world.hub.faults.gate.waiting, "the download hangs", within_seconds=5)
    warming_entry = world.until(
        lambda: world.node.entry(artifact.digest) or None, "it is reported", within_seconds=60
    )
    assert warming_entry["state"] == "Downloading"
    world.until(
        lambda: progress(world, artifact)["live"] == 1, "the plugin answers", within_seconds=60
    )
    live = progress(world, artifact)
    assert live["downloadingBytes"] >= max(200_000, warming_entry.get("downloadedBytes", 0))
    port = urlsplit(world.node.url)
    world.node.stop_plugin()
    entry = {"digest": artifact.digest, "sizeBytes": 300_000, "downloadedBytes": 1_000}
    Warming(world).report(world.node.name, {**entry, "state": "Downloading"})
    world.until(
        lambda: progress(world, artifact)["downloadingBytes"] == 1_000,
        "the stored bytes alone count",
        within_seconds=10,
    )
    assert progress(world, artifact)["live"] == 0
    with socket.create_server((port.hostname, port.port)):  # takes connections, and says nothing
        try:
            silent = progress(world, artifact)
        except OSError:
            pytest.fail("a plugin that never answers holds the answer up")
    assert (silent["live"], silent["downloadingBytes"]) == (0, 1_000)
