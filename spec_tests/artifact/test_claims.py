"""artifact#resolution-and-revalidation: sources that no hub is asked about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spec_tests.deciding import healthy
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY, Repository

Worlds = Callable[..., World]


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and a hub."""
    return worlds(nodes=(), worker=True)


def claimed(world: World) -> Artifact:
    """Make an artifact of the claim `weights`, and wait for nothing."""
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "models/tiny"}}
    return world.unresolved("a", Repository("", "", TINY, None), spec={"source": source})


def make_claim(world: World, name: str = "weights", namespace: str = "team-a") -> None:
    """Create a claim."""
    world.namespace(namespace)
    world.api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    world.advance(0)


def missing(world: World, artifact: Artifact) -> None:
    """Wait until the artifact says that its claim is not there."""
    world.until(lambda: world.resolution(artifact) == ("False", "ClaimNotFound"), "ClaimNotFound")
    assert world.resolution(artifact, "Degraded") == ("True", "ClaimNotFound")


@pytest.mark.rule("AR-CLM-01")
def test_a_claim_that_exists_resolves(world: World) -> None:
    """It has a time, and neither revision nor digest; no hub is asked."""
    make_claim(world)
    artifact = claimed(world)
    healthy(world, artifact)
    assert set(world.resolved(artifact)) == {"resolvedTime"}
    assert world.hub_requests() == []


@pytest.mark.rule("AR-CLM-01")
def test_a_claim_that_does_not_exist_is_not_found(world: World) -> None:
    """Another name, or another namespace, does not count; the claim itself resolves at once."""
    make_claim(world, "other")
    make_claim(world, namespace="team-b")
    artifact = claimed(world)
    missing(world, artifact)
    assert world.resolved(artifact) == {}
    make_claim(world)
    healthy(world, artifact, within_seconds=0)


@pytest.mark.rule("AR-CLM-01")
def test_a_claim_that_goes_takes_the_resolution_with_it(world: World) -> None:
    """As soon as it is gone, and until it is back."""
    make_claim(world)
    artifact = claimed(world)
    healthy(world, artifact)
    before = world.resolved(artifact)
    world.api.delete("v1", "PersistentVolumeClaim", "weights", namespace="team-a")
    missing(world, artifact)
    make_claim(world)
    healthy(world, artifact, within_seconds=0)
    assert world.resolved(artifact) == before
