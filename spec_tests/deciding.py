"""What tests of artifacts wait for."""

from __future__ import annotations

from spec_tests.pods import Artifact
from spec_tests.scenario import World


def decided(world: World, artifact: Artifact) -> tuple[str, str]:
    """Wait until a resolution is decided, and return status and reason of Resolved."""
    return world.until(
        lambda: found if (found := world.resolution(artifact))[0] in {"True", "False"} else None,
        "the resolution is decided",
        within_seconds=60,
    )


def healthy(world: World, artifact: Artifact, *, within_seconds: int = 60) -> None:
    """Wait until an artifact is resolved and nothing is wrong with it."""
    world.until(
        lambda: (
            (world.resolution(artifact), world.resolution(artifact, "Degraded"))
            == (("True", "Resolved"), ("False", "Healthy"))
        ),
        f"{artifact.name} is healthy",
        within_seconds=within_seconds,
    )
