"""A Kubernetes and two model hubs, small enough to read, faithful enough for real clients.

`Cluster` is the whole of it in one object; `python -m emulator up` is the same on a terminal.
"""

from emulator.cluster import Cluster

__all__ = ["Cluster"]
