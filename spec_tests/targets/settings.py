"""The Setting that a worker must find when it starts: no test may ask a hub out in the world."""

from __future__ import annotations

import base64
from typing import Any, Final

from spec_tests import oracle

_SECRET: Final = "gpustack-settings"
_ENDPOINT: Final = "model-artifact-huggingface-endpoint"


def point_at_hub(cluster: Any, url: str) -> None:
    """Store the address of the emulated hub before a worker starts."""
    cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SECRET, "namespace": oracle.OPERATOR_NAMESPACE},
            "data": {_ENDPOINT: base64.b64encode(url.encode()).decode()},
        }
    )
