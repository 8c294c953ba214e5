"""Breaking a cluster on purpose: its API server, tokens, Services, nodes, and the network between.

`Cluster.faults` has what concerns the cluster; nodes (`node.mounts`, `node.disk`, `node.fail_call`)
and hubs (`hub.faults`) have their own.
"""

from emulator.faults.cluster_faults import ClusterFaults
from emulator.faults.effects import Conflict, Delay, Gone, Hangup, Refuse, Silence
from emulator.faults.relay import Relay
from emulator.faults.requests import RequestFaults, RequestRule

__all__ = [
    "ClusterFaults",
    "Conflict",
    "Delay",
    "Gone",
    "Hangup",
    "Refuse",
    "Relay",
    "RequestFaults",
    "RequestRule",
    "Silence",
]
