"""operations#uninstall-and-moving-the-cache: what goes with the driver, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spec_tests import oracle
from spec_tests.nodes import Node
from spec_tests.pods import Artifact
from spec_tests.scenario import World

Worlds = Callable[..., World]


@pytest.mark.rule("OP-UNI-01")
def test_the_objects_go_with_the_driver_and_the_cache_stays(worlds: Worlds) -> None:
    """Every NodeModelStore is deleted; what lies on disk is served again when all returns."""
    world = worlds(nodes=("node-a", "node-b"), worker=True)
    artifact = world.artifact()
    for name in ("node-a", "node-b"):
        node = world.nodes[name]
        node.unpublish(node.mount(artifact))
    driver = world.api.get("storage.k8s.io/v1", "CSIDriver", oracle.DRIVER)
    before = {name: node.cache() for name, node in world.nodes.items()}
    world.api.delete("storage.k8s.io/v1", "CSIDriver", oracle.DRIVER)
    for node in world.nodes.values():
        node.stop_plugin()
    world.until(
        lambda: not any(node.store() for node in world.nodes.values()),
        "every object is gone",
        within_seconds=60,
    )
    world.advance(600)
    assert not any(node.store() for node in world.nodes.values())
    trees = {path for path, kind in before["node-a"].items() if "model.safetensors" in path}
    assert trees
    assert trees <= set(world.node.cache())
    world.hub.requests.clear()
    driver["metadata"] = {"name": oracle.DRIVER}
    world.api.create(driver)
    for node in world.nodes.values():
        node.start_plugin()
        picked_up(world, node, artifact)
    assert world.hub_requests("*", host="cdn") == [], "nothing was downloaded again"


def picked_up(world: World, node: Node, artifact: Artifact) -> None:
    """Wait until a node reports its copy again, and mount it."""
    world.until(
        lambda: node.entry(artifact.digest).get("state") == "Ready",
        "the copy is picked up",
        within_seconds=120,
    )
    assert node.publish(node.call(artifact)).ok
