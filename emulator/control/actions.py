"""What the commands do that no single fault stands for."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.hubs import wrong_answers
from emulator.node import Node


def hubs(cluster: Cluster) -> list[Any]:
    """Return the hubs. Raises LookupError when there is none."""
    if not cluster.hubs:
        raise LookupError("the cluster has no hub: start it with --hub DIR=ORG/NAME")
    return list(cluster.hubs)


def at(cluster: Cluster, name: str) -> Node:
    """Return a node. Raises LookupError."""
    found = {node.name: node for node in cluster.nodes}
    if name not in found:
        raise LookupError(f"there is no node {name!r}; there are {', '.join(found) or 'none'}")
    return found[name]


def _number(error: str) -> int:
    number = getattr(errno, error.upper(), None)
    if not isinstance(number, int):
        raise ValueError(f"{error!r} is no error name such as EIO or ENOSPC")
    return number


def expired_url() -> wrong_answers.Status:
    """A signed URL that has run out, as the content host says it."""
    return wrong_answers.EXPIRED_URL


def masked_digests() -> wrong_answers.Rewrite:
    """A listing as a gated repository shows it to strangers: LFS digests starred out."""
    return wrong_answers.Rewrite(wrong_answers.mask_digests)


def show(cluster: Cluster) -> str:
    """Say what the cluster looks like now."""
    return "\n" + cluster.dump().rstrip()


def add_node(cluster: Cluster, name: str) -> None:
    """Add a machine with a running kubelet."""
    cluster.add_node(name)


def route_service(cluster: Cluster, namespace: str, name: str, target: str) -> None:
    """Let a Service's webhooks and APIServices be answered by the program at host:port."""
    cluster.webhooks.routes[namespace, name] = address(target)


def address(text: str) -> tuple[str, int]:
    """Split host:port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if not host or not digits or not 0 < int(port) < 65536:
        raise ValueError(f"{text}: write it as host:port")
    return host.strip("[]"), int(port)


def clear(cluster: Cluster) -> None:
    """Take every fault of requests, watches, Services, hubs and disks away."""
    cluster.faults.clear()
    for hub in cluster.hubs:
        hub.faults.clear()
    for node in cluster.nodes:
        node.disk.heal()


def release(cluster: Cluster) -> None:
    """Let everything that is held up now go on."""
    cluster.faults.release()
    for hub in cluster.hubs:
        hub.faults.release()


def drop_watches(cluster: Cluster, resource: str = "*", reset: bool = False) -> None:  # noqa: FBT001, FBT002 - called by name
    """End the open watches on a resource, with reset by breaking their connections."""
    cluster.faults.drop_watches(resource, reset=reset)


def silence_watches(cluster: Cluster, resource: str = "*") -> None:
    """Let the open watches on a resource stay open and tell nothing more."""
    cluster.faults.silence_watches(resource)


def expire_token(cluster: Cluster, kubeconfig: str) -> None:
    """Let the token in a kubeconfig of this cluster stop working."""
    cluster.faults.expire_token(Path(kubeconfig))


def rotate_token(cluster: Cluster, kubeconfig: str) -> None:
    """Put a new token into a kubeconfig of this cluster."""
    cluster.faults.rotate_token(Path(kubeconfig))


def cut_service(cluster: Cluster, namespace: str, name: str) -> None:
    """Let nothing listen behind a Service: its webhooks and APIServices are down."""
    cluster.faults.cut_service(namespace, name)


def mend_service(cluster: Cluster, namespace: str, name: str) -> None:
    """Let the program behind a Service be reached again."""
    cluster.faults.mend_service(namespace, name)


def shorten_deadline(
    cluster: Cluster, node: str, method: str, seconds: float, times: int = 1
) -> None:
    """Let kubelet give up the next calls of a CSI method early: mounts become uncertain."""
    at(cluster, node).shorten_deadline(method, seconds, times=times)


def fill_disk(cluster: Cluster, node: str, percent: float) -> None:
    """Fill a node's disk with other data."""
    at(cluster, node).disk.fill(percent)


def fail_disk(cluster: Cluster, node: str, operation: str, error: str, times: int = 1) -> None:
    """Let disk operations of a node fail: usage, sync_file, sync_directory; error such as EIO."""
    at(cluster, node).disk.fail(operation, _number(error), times=times)


def fail_mount(cluster: Cluster, node: str, error: str) -> None:
    """Let the next mount or unmount on a node fail with an error such as EIO."""
    mounts: Any = at(cluster, node).mounts
    if not hasattr(mounts, "fail_next"):
        raise ValueError("this cluster mounts with the kernel, which fails when it likes")
    mounts.fail_next(_number(error))


def open_relay(cluster: Cluster, name: str, target: str) -> str:
    """Open a link to host:port that can be cut; the answer names the address to use instead."""
    return ":".join(map(str, cluster.add_relay(name, address(target)).address))


def cut_relay(cluster: Cluster, name: str, after_bytes: int = 0) -> None:
    """Break a link, now or after so many more bytes to its clients."""
    cluster.relay(name).cut(after_bytes)


def hold_relay(cluster: Cluster, name: str) -> None:
    """Let nothing through a link, while connections stay open."""
    cluster.relay(name).hold()


def mend_relay(cluster: Cluster, name: str) -> None:
    """Let everything through a link again."""
    cluster.relay(name).mend()


def advance(cluster: Cluster, seconds: float) -> None:
    """Move the manual clock of the cluster."""
    if not isinstance(cluster.clock, ManualClock):
        raise ValueError("the cluster runs on the machine's clock: start it with --clock SOCKET")
    cluster.clock.advance(seconds)
