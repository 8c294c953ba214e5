"""How a spec test changes Settings: in the Secret that holds them, as an administrator may."""

from __future__ import annotations

import base64
from typing import Any, Final

from spec_tests import oracle
from spec_tests.scenario import World

SECRET: Final = "gpustack-settings"


def set_setting(world: World, name: str, value: str | None) -> None:
    """Store a Setting's value; None takes it away, so that its default counts."""
    encoded = None if value is None else base64.b64encode(value.encode()).decode()
    patch: dict[str, Any] = {"data": {name: encoded}}
    world.api.patch("v1", "Secret", SECRET, patch, namespace=oracle.OPERATOR_NAMESPACE)
    world.advance(0)
