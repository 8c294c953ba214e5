"""Events as Kubernetes' own components record them: counted, aggregated and limited.

The same event again raises the count of the first one. Ten events about one object that differ
only in their message become one that says "combined from similar events" and shows the latest.
And one source may write 25 events about one object, then one every five minutes: what is more is
dropped. All three decide how a long series of changing progress messages looks in a cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator.client import Client
from emulator.contracts import Clock, Json
from emulator.errors import ApiError
from emulator.timestamps import time

_SIMILAR = 10
_SIMILAR_SECONDS = 600.0
_BURST = 25.0
_REFILL_PER_SECOND = 1 / 300
_COMBINED = "(combined from similar events): "

Key = tuple[str, ...]


@dataclass(slots=True)
class _Similar:
    """Messages of events that are alike but for the message, while they keep coming."""

    messages: list[str] = field(default_factory=list)
    latest: float = float("-inf")


@dataclass(slots=True)
class _Allowance:
    """How many more events one source may write about one object."""

    left: float
    since: float


class Recorder:
    """Writes one component's events."""

    def __init__(self, client: Client, clock: Clock, component: str, host: str = "") -> None:
        """Write as a component, on a host if it has one."""
        self._client = client
        self._clock = clock
        self._source = {"component": component, **({"host": host} if host else {})}
        self._host = host
        self._lock = threading.Lock()
        self._similar: dict[Key, _Similar] = {}
        self._written: dict[Key, Json] = {}
        self._allowances: dict[str, _Allowance] = {}

    def normal(self, obj: Json, reason: str, message: str, field_path: str = "") -> None:
        """Record that something went as it should."""
        self._record("Normal", self._reference(obj, field_path), reason, message)

    def warning(self, obj: Json, reason: str, message: str, field_path: str = "") -> None:
        """Record that something went wrong."""
        self._record("Warning", self._reference(obj, field_path), reason, message)

    def _reference(self, obj: Json, field_path: str) -> Json:
        """Return what an event says about its object; one about a Node gives its name as uid."""
        metadata = obj["metadata"]
        parts = {
            "apiVersion": obj.get("apiVersion", "v1"),
            "kind": obj.get("kind", "Pod"),
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
            "fieldPath": field_path,
        }
        return {key: value for key, value in parts.items() if value}

    def _record(self, kind: str, about: Json, reason: str, message: str) -> None:
        now = self._clock.now()
        with self._lock:
            alike = (
                kind,
                reason,
                *(about.get(part, "") for part in ("kind", "namespace", "name", "uid")),
            )
            key, message = self._combined(alike, message, now)
            key = (*key, about.get("fieldPath", ""))
            earlier = self._written.get(key)
            if not self._allowed(f"{about.get('uid')}/{about['name']}", now):
                return
            try:
                if earlier is not None:
                    self._written[key] = self._count(earlier, message, now)
                else:
                    self._written[key] = self._write(kind, about, reason, message)
            except ApiError:
                # The namespace is going, or the server does not answer: an event is not worth more.
                self._written.pop(key, None)

    def _combined(self, alike: Key, message: str, now: float) -> tuple[Key, str]:
        """Return the key that an event counts under, and the message it shows."""
        record = self._similar.get(alike)
        if record is None or now - record.latest > _SIMILAR_SECONDS:
            record = self._similar[alike] = _Similar()
        if message not in record.messages:
            record.messages.append(message)
        record.latest = now
        if len(record.messages) < _SIMILAR:
            return (*alike, message), message
        record.messages.pop(0)
        return alike, _COMBINED + message

    def _allowed(self, subject: str, now: float) -> bool:
        allowance = self._allowances.setdefault(subject, _Allowance(_BURST, now))
        refilled = allowance.left + (now - allowance.since) * _REFILL_PER_SECOND
        allowance.left, allowance.since = min(refilled, _BURST), now
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    def _count(self, earlier: Json, message: str, now: float) -> Json:
        """Raise the count of an event that was written before; write it anew when it is gone."""
        metadata = earlier["metadata"]
        changes: Mapping[str, object] = {
            "count": earlier["count"] + 1,
            "lastTimestamp": time(now),
            "message": message,
        }
        try:
            return self._client.patch(
                "v1", "Event", metadata["name"], changes, namespace=metadata["namespace"]
            )
        except ApiError as error:
            if error.code != 404:
                raise
            about = earlier["involvedObject"]
            return self._write(earlier["type"], about, earlier["reason"], message)

    def _write(self, kind: str, about: Json, reason: str, message: str) -> Json:
        now = self._clock.now()
        event: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "", "namespace": about.get("namespace") or "default"},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "source": self._source,
            "firstTimestamp": time(now),
            "lastTimestamp": time(now),
            "count": 1,
            "type": kind,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._host,
        }
        moment = int(now * 1e9)  # names the event; time may stand still, and others write too
        while True:
            event["metadata"]["name"] = f"{about['name']}.{moment:x}"
            try:
                return self._client.create(event)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            moment += 1
