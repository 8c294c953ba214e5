"""Printer columns of built-in kinds, as `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from emulator.contracts import Json
from emulator.kinds.kind import Column

NAME_TEXT = (
    "Name must be unique within a namespace. Is required when creating resources, although some "
    "resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily "
    "intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
CREATED_TEXT = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. "
    "It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this "
    "value. It is represented "
    "in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More "
    "info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


def age(since: str | None, now: float) -> str:
    """Return how long ago a time was, in the server's short form."""
    if not since:
        return "<unknown>"
    seconds = int(now - datetime.fromisoformat(since).timestamp())
    return _short(max(seconds, 0))


def _short(seconds: int) -> str:
    """Return a duration in one unit, or in two where one alone would say too little."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    steps = (
        (seconds < 120, seconds, "s", 0, ""),
        (minutes < 10, minutes, "m", seconds % 60, "s"),
        (hours < 3, minutes, "m", 0, ""),
        (hours < 8, hours, "h", minutes % 60, "m"),
        (hours < 48, hours, "h", 0, ""),
        (days < 8, days, "d", hours % 24, "h"),
        (days < 730, days, "d", 0, ""),
        (years < 8, years, "y", days % 365, "d"),
        (True, years, "y", 0, ""),
    )
    _, whole, unit, rest, below = next(step for step in steps if step[0])
    return f"{whole}{unit}" + (f"{rest}{below}" if rest else "")


def _created(object_: Json, now: float) -> str:
    return age(object_["metadata"].get("creationTimestamp"), now)


NAME = Column(
    "Name", "string", lambda object_, _: object_["metadata"].get("name", ""), "name", NAME_TEXT
)
AGE = Column("Age", "string", _created, description=CREATED_TEXT)
CREATED_AT = Column(
    "Created At",
    "date",
    lambda object_, _: object_["metadata"].get("creationTimestamp"),
    description=CREATED_TEXT,
)
PLAIN = (NAME, CREATED_AT)


def _text(
    name: str, cell: Callable[[Json], Any], priority: int = 0, description: str = ""
) -> Column:
    return Column(
        name, "string", lambda object_, _: cell(object_), description=description, priority=priority
    )


def _spec(object_: Json) -> Json:
    found: Json = object_.get("spec") or {}
    return found


def _status(object_: Json) -> Json:
    found: Json = object_.get("status") or {}
    return found


def _pod_status(pod: Json) -> str:
    status = _status(pod)
    reason = status.get("reason") or status.get("phase", "")
    for container in status.get("containerStatuses", []):
        state = container.get("state", {})
        for kind in ("waiting", "terminated"):
            if state.get(kind, {}).get("reason"):
                reason = state[kind]["reason"]
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _pod_ready(pod: Json) -> str:
    ready = sum(1 for one in _status(pod).get("containerStatuses", []) if one.get("ready"))
    return f"{ready}/{len(_spec(pod).get('containers', []))}"


def _restarts(pod: Json) -> str:
    return str(sum(one.get("restartCount", 0) for one in _status(pod).get("containerStatuses", [])))


def _node_status(node: Json) -> str:
    conditions = {one["type"]: one["status"] for one in _status(node).get("conditions", [])}
    words = [
        "Ready"
        if conditions.get("Ready") == "True"
        else "NotReady"
        if "Ready" in conditions
        else "Unknown"
    ]
    return ",".join([*words, "SchedulingDisabled"] if _spec(node).get("unschedulable") else words)


def _roles(node: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        key.removeprefix(prefix)
        for key in node["metadata"].get("labels", {})
        if key.startswith(prefix)
    )
    return ",".join(roles) or "<none>"


def _address(node: Json, kind: str) -> str:
    return next(
        (one["address"] for one in _status(node).get("addresses", []) if one["type"] == kind),
        "<none>",
    )


def _info(field: str) -> Callable[[Json], str]:
    return lambda node: _status(node).get("nodeInfo", {}).get(field) or "<unknown>"


def _event_object(event: Json) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _last_seen(event: Json, now: float) -> str:
    names = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp")
    return age(next((event[name] for name in names if event.get(name)), None), now)


def _ports(service: Json) -> str:
    return (
        ",".join(
            f"{one.get('port')}/{one.get('protocol')}" for one in _spec(service).get("ports", [])
        )
        or "<none>"
    )


def _replicas(object_: Json) -> str:
    return f"{_status(object_).get('readyReplicas', 0)}/{_spec(object_).get('replicas', 0)}"


def _count(field: str) -> Callable[[Json], int]:
    return lambda object_: int(_status(object_).get(field, 0))


DATA_TEXT = (
    "Data contains the configuration data. Each key must consist of alphanumeric characters, "
    "'-', '_' or '.'. Values "
    "with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must "
    "not overlap with the "
    "keys in the BinaryData field, this is enforced during validation process."
)
HOLDER_TEXT = (
    "holderIdentity contains the identity of the holder of a current lease. If Coordinated "
    "Leader Election is used, "
    "the holder identity must be equal to the elected LeaseCandidate.metadata.name field."
)

PODS: Sequence[Column] = (
    NAME,
    _text("Ready", _pod_ready),
    _text("Status", _pod_status),
    _text("Restarts", _restarts),
    AGE,
    _text("IP", lambda pod: _status(pod).get("podIP") or "<none>", 1),
    _text("Node", lambda pod: _spec(pod).get("nodeName") or "<none>", 1),
    _text("Nominated Node", lambda pod: _status(pod).get("nominatedNodeName") or "<none>", 1),
    _text("Readiness Gates", lambda _: "<none>", 1),
)
NODES: Sequence[Column] = (
    NAME,
    _text("Status", _node_status),
    _text("Roles", _roles),
    AGE,
    _text("Version", _info("kubeletVersion")),
    _text("Internal-IP", lambda node: _address(node, "InternalIP"), 1),
    _text("External-IP", lambda node: _address(node, "ExternalIP"), 1),
    _text("OS-Image", _info("osImage"), 1),
    _text("Kernel-Version", _info("kernelVersion"), 1),
    _text("Container-Runtime", _info("containerRuntimeVersion"), 1),
)
NAMESPACES: Sequence[Column] = (
    NAME,
    _text("Status", lambda one: _status(one).get("phase", "")),
    AGE,
)
CONFIG_MAPS: Sequence[Column] = (
    NAME,
    _text(
        "Data",
        lambda one: len(one.get("data", {})) + len(one.get("binaryData", {})),
        description=DATA_TEXT,
    ),
    AGE,
)
SECRETS: Sequence[Column] = (
    NAME,
    _text("Type", lambda one: one.get("type", "")),
    _text("Data", lambda one: len(one.get("data", {}))),
    AGE,
)
ACCOUNTS: Sequence[Column] = (NAME, _text("Secrets", lambda one: len(one.get("secrets", []))), AGE)
SERVICES: Sequence[Column] = (
    NAME,
    _text("Type", lambda one: _spec(one).get("type", "")),
    _text("Cluster-IP", lambda one: _spec(one).get("clusterIP") or "<none>"),
    _text("External-IP", lambda _: "<none>"),
    _text("Port(s)", _ports),
    AGE,
)
EVENTS: Sequence[Column] = (
    Column("Last Seen", "string", _last_seen),
    _text("Type", lambda one: one.get("type", "")),
    _text("Reason", lambda one: one.get("reason", "")),
    _text("Object", _event_object),
    _text("Message", lambda one: (one.get("message") or one.get("note") or "").strip()),
    Column("Name", "string", NAME.cell, "name", NAME_TEXT, 1),
)
LEASES: Sequence[Column] = (
    NAME,
    _text("Holder", lambda one: _spec(one).get("holderIdentity") or "", description=HOLDER_TEXT),
    AGE,
)
CSI_DRIVERS: Sequence[Column] = (
    NAME,
    _text("AttachRequired", lambda one: _spec(one).get("attachRequired")),
    _text("PodInfoOnMount", lambda one: _spec(one).get("podInfoOnMount")),
    _text("StorageCapacity", lambda one: _spec(one).get("storageCapacity")),
    _text(
        "TokenRequests",
        lambda one: (
            ",".join(r["audience"] for r in _spec(one).get("tokenRequests", [])) or "<unset>"
        ),
    ),
    _text("RequiresRepublish", lambda one: _spec(one).get("requiresRepublish")),
    _text("Modes", lambda one: ",".join(_spec(one).get("volumeLifecycleModes", []))),
    AGE,
)
CSI_NODES: Sequence[Column] = (
    NAME,
    _text("Drivers", lambda one: len(_spec(one).get("drivers") or ())),
    AGE,
)
DEPLOYMENTS: Sequence[Column] = (
    NAME,
    _text("Ready", _replicas),
    _text("Up-to-date", _count("updatedReplicas")),
    _text("Available", _count("availableReplicas")),
    AGE,
)
DAEMON_SETS: Sequence[Column] = (
    NAME,
    _text("Desired", _count("desiredNumberScheduled")),
    _text("Current", _count("currentNumberScheduled")),
    _text("Ready", _count("numberReady")),
    _text("Up-to-date", _count("updatedNumberScheduled")),
    _text("Available", _count("numberAvailable")),
    AGE,
)
ROLES: Sequence[Column] = (NAME, CREATED_AT)
BINDINGS: Sequence[Column] = (
    NAME,
    _text("Role", lambda one: f"{one['roleRef'].get('kind')}/{one['roleRef'].get('name')}"),
    AGE,
)
WEBHOOKS: Sequence[Column] = (
    NAME,
    _text("Webhooks", lambda one: len(one.get("webhooks", []))),
    AGE,
)
