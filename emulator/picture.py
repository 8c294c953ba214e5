"""What a cluster looks like at one moment, for a person whose test has failed.

    2026-01-01T00:01:00Z, version 214: 1 csidrivers, 2 nodes, 1 pods
    node node-1 Ready 127.20.1.1, drivers model.csi.example.io
      mount /tmp/…/target from /tmp/…/files read-only
    pod team-a/consumer Pending on node-1: ContainersReady=False (ContainersNotReady)
    event team-a Pod/consumer FailedMount x3: MountVolume.SetUp failed …
    fault refuse verb=write, 2 hits
    hub http://127.0.0.1:40001
      GET …

Secrets and tokens are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from emulator.client import Client
from emulator.contracts import Json
from emulator.faults.requests import RequestRule
from emulator.hubs.hub import Hub
from emulator.node import Node
from emulator.timestamps import time

_EVENTS = 40
_HUB_LINES = 60


def lines(
    client: Client, nodes: Iterable[Node], hubs: Iterable[Hub], rules: Iterable[RequestRule]
) -> Iterator[str]:
    """Yield the lines of a cluster's picture; `client` acts as its administrator."""
    store = client.api.store
    counts = {
        resource.plural: len(store.all(resource.collection)) for resource in client.api.resources()
    }
    held = ", ".join(f"{count} {plural}" for plural, count in sorted(counts.items()) if count)
    yield f"{time(client.api.clock.now())}, version {store.version}: {held}"
    registered = {one["metadata"]["name"]: one for one in client.list("v1", "Node")}
    for node in nodes:
        yield from _node(node, registered.get(node.name))
    for pod in client.list("v1", "Pod"):
        yield _pod(pod)
    events = client.list("v1", "Event")
    for event in sorted(events, key=lambda one: int(one["metadata"]["resourceVersion"]))[-_EVENTS:]:
        yield _event(event)
    for rule in rules:
        yield f"fault {_rule(rule)}, {rule.hits} hits"
    for hub in hubs:
        yield f"hub {hub.url}"
        yield from (f"  {line}" for line in hub.requests.dump().splitlines()[-_HUB_LINES:])


def _node(node: Node, registered: Json | None) -> Iterator[str]:
    state = "not registered" if registered is None else _ready(registered)
    drivers = ", ".join(sorted(node.drivers)) or "none"
    yield f"node {node.name} {state} {node.address}, drivers {drivers}"
    for mount in node.mounts.table():
        how = " read-only" if mount.read_only else ""
        yield f"  mount {mount.target} from {mount.root}{how}"


def _ready(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    status = next((one["status"] for one in conditions if one["type"] == "Ready"), "Unknown")
    return "Ready" if status == "True" else f"Ready={status}"


def _pod(pod: Json) -> str:
    metadata, status = pod["metadata"], pod.get("status") or {}
    place = pod["spec"].get("nodeName") or "no node"
    phase = "Terminating" if "deletionTimestamp" in metadata else status.get("phase")
    not_true = [
        f"{one['type']}={one['status']}" + (f" ({one['reason']})" if one.get("reason") else "")
        for one in status.get("conditions") or ()
        if one["status"] != "True"
    ]
    said = f": {', '.join(not_true)}" if not_true else ""
    return f"pod {metadata['namespace']}/{metadata['name']} {phase} on {place}{said}"


def _event(event: Json) -> str:
    about = event.get("involvedObject") or {}
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    times = f" x{count}" if count > 1 else ""
    what = f"{about.get('kind')}/{about.get('name')} {event.get('reason')}{times}"
    return f"event {event['metadata']['namespace']} {what}: {event.get('message', '')}"


def _rule(rule: RequestRule) -> str:
    usual = {one.name: one.default for one in fields(rule)}
    chosen = [
        f"{name}={getattr(rule, name)}"
        for name, default in usual.items()
        if name not in {"effect", "hits"} and getattr(rule, name) != default
    ]
    return " ".join([type(rule.effect).__name__.lower(), *chosen])
