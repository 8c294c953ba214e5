"""What a tree has cost the hub."""

from __future__ import annotations

from spec_tests.scenario import World


def sent_by_hub(world: World) -> int:
    """Return the bytes of files that the hub has sent, from either of its hosts."""
    large = [entry for entry in world.hub_requests() if entry.host == "cdn"]
    small = [entry for entry in world.hub_requests("*/resolve/*") if entry.host == "hub"]
    return sum(entry.sent_bytes for entry in [*large, *small] if entry.status in {200, 206})
