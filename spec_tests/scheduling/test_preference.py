"""scheduling#a-node-delivered-model-prefers-the-nodes-holding-it: which nodes a Pod asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests import oracle
from spec_tests.consumers import TEMPLATE, deploy, hold, instance, preferred, rendered
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming

FOUR: Final = ("node-a", "node-b", "node-c", "node-d")
MANY: Final = tuple(f"node-{number:02d}" for number in range(18))
Worlds = Callable[..., World]


def registered(worlds: Worlds, nodes: tuple[str, ...]) -> World:
    """Give a worker and nodes whose CSINodes list the driver, and whose reports the test writes."""
    world = worlds(nodes=nodes, worker=True, plugins=False)
    warming = Warming(world)
    for node in nodes:
        warming.register(node)
    return world


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of four nodes."""
    return registered(worlds, FOUR)


@pytest.fixture
def artifact(world: World) -> Artifact:
    """Give a resolved artifact."""
    return world.artifact()


@pytest.mark.rule("SC-PRF-01")
def test_those_mounting_it_come_first_then_the_last_to_use_it(
    world: World, artifact: Artifact
) -> None:
    """One term a digest, by host name: in use now, then by the latest use, then by name."""
    hold(world, "node-a", artifact, lastUsedTime="2026-01-01T00:00:00Z")
    hold(world, "node-b", artifact, lastUsedTime="2026-01-03T00:00:00Z")
    hold(world, "node-c", artifact, lastUsedTime="2026-01-03T00:00:00Z")
    hold(world, "node-d", artifact, lastUsedTime="2026-01-01T00:00:00Z", referenced=True)
    terms = preferred(rendered(world, deploy(world, artifact.name)))
    assert terms == [["node-d", "node-b", "node-c", "node-a"]]


@pytest.mark.rule("SC-PRF-01")
def test_no_holder_no_term(world: World, artifact: Artifact) -> None:
    """A Pod of a model that nobody holds prefers nothing."""
    assert preferred(rendered(world, instance(world, artifact.name))) == []


@pytest.mark.rule("SC-PRF-01")
def test_a_term_names_at_most_16_nodes(worlds: Worlds) -> None:
    """Of eighteen holders the last two by rank are left out."""
    world = registered(worlds, MANY)
    artifact = world.artifact()
    for node in MANY:
        hold(world, node, artifact)
    assert preferred(rendered(world, deploy(world, artifact.name))) == [list(MANY[:16])]


def lose_driver(world: World, node: str, _artifact: Artifact) -> None:
    """Take the driver from a node's CSINode."""
    found = world.api.get("storage.k8s.io/v1", "CSINode", node)
    found["spec"] = {"drivers": []}
    world.api.update(found)
    world.advance(0)


def turn_bad(world: World, node: str, artifact: Artifact) -> None:
    """Have a node report that its configuration cannot be executed."""
    hold(world, node, artifact, ready=False)


def still_download(world: World, node: str, artifact: Artifact) -> None:
    """Have a node report that it is not done yet."""
    hold(world, node, artifact, state="Downloading")


@pytest.mark.rule("SC-PRF-02")
@pytest.mark.parametrize("change", [lose_driver, turn_bad, still_download])
def test_a_node_counts_while_it_can_serve(
    world: World, artifact: Artifact, change: Callable[[World, str, Artifact], None]
) -> None:
    """Without the driver, without Ready=True or before it is whole, a node is not preferred."""
    for node in ("node-a", "node-b"):
        hold(world, node, artifact)
    change(world, "node-a", artifact)
    assert preferred(rendered(world, deploy(world, artifact.name))) == [["node-b"]]


@pytest.mark.rule("NS-REQ-04")
def test_it_is_a_preference_beside_the_templates_own(world: World, artifact: Artifact) -> None:
    """What the template prefers stays, and nothing becomes a requirement."""
    own: dict[str, Any] = {
        "weight": 7,
        "preference": {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]}
            ]
        },
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]}}
    template = {"spec": {**TEMPLATE["spec"], "affinity": affinity}}
    hold(world, "node-c", artifact)
    pod = rendered(world, deploy(world, artifact.name, template))
    assert preferred(pod) == [["elsewhere"], ["node-c"]]
    assert oracle.DRIVER in str(pod["spec"]["volumes"])
