"""node-store#failure-reasons: which reason a failure gets, where no other page tests it."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.hubs.wrong_answers import Status
from spec_tests.pods import Artifact
from spec_tests.scenario import World


def failed(world: World, artifact: Artifact) -> dict[str, Any]:
    """Wait until an artifact's digest has failed, and return its entry."""
    return world.until(
        lambda: found if (found := world.node.entry(artifact.digest)).get("reason") else None,
        "the attempt has failed",
        within_seconds=120,
    )


@pytest.mark.rule("NS-FR-03")
@pytest.mark.parametrize("status", [429, 500, 504])
@pytest.mark.parametrize("where", [{"at": "tree"}, {"path": "config.json"}])
def test_a_hub_that_cannot_now_is_no_refusal(
    world: World, status: int, where: dict[str, str]
) -> None:
    """A throttling or broken hub is SourceUnavailable, for a listing as for a file."""
    world.hub.faults.add(Status(status), **where)
    artifact = world.artifact()
    world.node.publish(world.node.call(artifact))
    assert failed(world, artifact)["reason"] == "SourceUnavailable"


@pytest.mark.rule("NS-FR-02")
def test_a_masked_listing_is_a_refusal(world: World) -> None:
    """A gated repository that lists its files and hides their digests refuses the credential."""
    artifact = world.artifact(repository=world.repository("acme/gated", gated=True))
    world.node.publish(world.node.call(artifact.presenting("")))
    assert failed(world, artifact)["reason"] == "AccessDenied"


@pytest.mark.rule("NS-DL-28", "NS-FR-01")
def test_a_mended_configuration_is_tried_at_once(world: World) -> None:
    """What only the configuration stood in the way of does not back off."""
    artifact = world.artifact()
    call = world.node.call(artifact)
    node = world.node.name
    world.stand_in.reconfigure(node, lambda spec: spec["hub"].update(caBundleConfigMap="none"))
    world.until(lambda: world.node.condition("Ready")["status"] == "False", "it fails its check")
    answer = world.node.publish(call)
    assert answer.code == "UNAVAILABLE"
    assert "InvalidRequest" in answer.message
    world.stand_in.reconfigure(node, lambda spec: spec["hub"].pop("caBundleConfigMap"))
    world.until(lambda: world.node.condition("Ready")["status"] == "True", "it is mended")
    assert world.node.publish(call).code == "ABORTED"
