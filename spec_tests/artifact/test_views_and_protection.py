"""artifact#the-resource: what an artifact shows of the nodes, and who keeps it from going."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming

Worlds = Callable[..., World]
NODES: Final = ("node-a", "node-b", "node-c")
FINALIZER: Final = "worker.gpustack.ai/model-artifact-protection"


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker, and three registered nodes whose reports the test writes."""
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    for node in NODES:
        warming.register(node)
    return warming


def shows(warming: Warming, artifact: Artifact, **counts: int) -> None:
    """Wait until an artifact's status counts so many nodes."""

    def asked() -> bool:
        found: dict[str, Any] = warming.world.stored(artifact)["status"].get("nodes", {})
        return {name: count for name, count in found.items() if count} == counts

    warming.world.until(asked, f"{artifact.name} counts {counts}", within_seconds=60)


def downloading(warming: Warming, artifact: Artifact, percent: int) -> dict[str, Any]:
    """Return the entry of a download that is so far."""
    return warming.held(artifact, "Downloading", sizeBytes=1000, downloadedBytes=percent * 10)


@pytest.mark.rule("AR-RES-07")
def test_nodes_are_counted_by_their_state(warming: Warming) -> None:
    """Ready, Downloading and Failed nodes are counted, and counted out again when they go."""
    artifact = warming.world.artifact()
    other = warming.held(artifact.claiming("sha256:" + "cd" * 32))
    warming.report("node-a", warming.held(artifact), other)
    warming.report("node-b", downloading(warming, artifact, 42))
    failed = {"digest": artifact.digest, "state": "Failed", "reason": "SourceUnavailable"}
    warming.report("node-c", failed)
    shows(warming, artifact, ready=1, downloading=1, failed=1, downloadingPercent=40)
    warming.report("node-a")
    warming.report("node-c", warming.held(artifact))
    shows(warming, artifact, ready=1, downloading=1, downloadingPercent=40)


@pytest.mark.rule("AR-RES-07")
def test_the_percentage_is_the_downloads_mean_in_steps_of_five(warming: Warming) -> None:
    """The mean of 34 and 45 is 39.5 and shows as 35; a node that is ready does not raise it."""
    artifact = warming.world.artifact()
    warming.report("node-a", downloading(warming, artifact, 34))
    warming.report("node-b", downloading(warming, artifact, 45))
    warming.report("node-c", warming.held(artifact))
    shows(warming, artifact, ready=1, downloading=2, downloadingPercent=35)


@pytest.mark.rule("AR-RES-07")
def test_only_numbers_cross_namespaces(warming: Warming) -> None:
    """Everybody's artifact of the digest counts the nodes, and names neither nodes nor tenants."""
    world = warming.world
    mine = world.artifact("mine", namespace="team-a")
    theirs = world.artifact("theirs", namespace="team-b")
    warming.report("node-a", warming.held(mine))
    for artifact in (mine, theirs):
        shows(warming, artifact, ready=1)
        status = world.stored(artifact)["status"]
        assert all(isinstance(value, int) for value in status["nodes"].values())
        assert "node-a" not in str(status)
    assert "team-a" not in str(world.stored(theirs))


def is_there(world: World, artifact: Artifact) -> bool:
    """Say whether an artifact is still there, in Terminating."""
    found = world.api.list("worker.gpustack.ai/v1alpha1", "ModelArtifact", namespace="team-a")
    names = [one["metadata"]["name"] for one in found if one["metadata"].get("deletionTimestamp")]
    return artifact.name in names


@pytest.mark.rule("AR-RES-08")
@pytest.mark.parametrize("kind", ["ModelDeployment", "Instance"])
def test_a_referenced_artifact_is_held(warming: Warming, kind: str) -> None:
    """It stays in Terminating as long as a consumer of its namespace names it."""
    world = warming.world
    artifact = world.artifact()
    assert FINALIZER in world.stored(artifact)["metadata"]["finalizers"]
    if kind == "ModelDeployment":
        warming.deployment("consumer", artifact)
    else:
        warming.instance("consumer", artifact)
    world.delete(artifact)
    world.advance(60)
    assert is_there(world, artifact)
    warming.delete(kind, "consumer", "team-a")
    world.until(lambda: not is_there(world, artifact), "it is gone", within_seconds=60)


@pytest.mark.rule("AR-RES-08")
def test_others_do_not_hold_an_artifact(warming: Warming) -> None:
    """A consumer of another artifact, one elsewhere, and a prefetch are no reason to wait."""
    world = warming.world
    artifact = world.artifact()
    other = world.artifact("other")
    elsewhere = world.artifact(namespace="team-b")
    warming.deployment("of-another", other)
    warming.deployment("elsewhere", elsewhere)
    warming.instance("of-another", other)
    warming.store()
    warming.binding()
    warming.prefetch(artifact)
    world.delete(artifact)
    world.until(lambda: not is_there(world, artifact), "it is gone", within_seconds=30)
