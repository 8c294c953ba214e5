"""A Kubernetes and two model hubs, small enough to read, faithful enough for real clients.

`Cluster` is the whole of it in one object; `python -m emulator up` is the same on a terminal. It is
imported when it is asked for: a program that only follows the clock starts without a cluster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("emulator.cluster").Cluster
