"""What a worker must find when it starts: a hub that is not out in the world, and what it lacks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from spec_tests import oracle

_SECRET: Final = "gpustack-settings"
_ENDPOINT: Final = "model-artifact-huggingface-endpoint"


def withdraw(cluster: Any, reviews: Sequence[str]) -> None:
    """Let the API server know nothing of some reviews, as one that is too old for them."""
    for plural in reviews:
        cluster.api.withdraw("authentication.k8s.io", plural)


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
