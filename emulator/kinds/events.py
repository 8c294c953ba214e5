"""Events, which two API groups serve in two shapes from one store: core/v1 and events.k8s.io/v1.

The store keeps the core shape. The two differ in what they demand: core takes nearly anything,
the newer group wants a controller, an action and a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emulator.contracts import Json
from emulator.errors import Cause, invalid_value, required
from emulator.kinds.builtin import Builtin
from emulator.kinds.metadata import qualified_faults

_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_NAMES = {core: newer for newer, core in _RENAMED.items()}
_ALWAYS: Json = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}


def _complete(event: Json, names: Mapping[str, str]) -> None:
    for part, empty in _ALWAYS.items():
        event.setdefault(names.get(part, part), dict(empty) if isinstance(empty, dict) else empty)
    event.setdefault(names.get("involvedObject", "involvedObject"), {})


class CoreEvents(Builtin):
    """Events as core/v1 serves them."""

    def begin(self, object_: Json) -> None:
        """Write out the fields that the server always writes."""
        super().begin(object_)
        _complete(object_, {})

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Write out the fields that the server always writes."""
        super().carry(object_, old, subresource)
        _complete(object_, {})

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield an event that is not in the namespace of the object it is about."""
        namespace = object_["metadata"].get("namespace", "")
        about = object_["involvedObject"].get("namespace", "")
        if about != namespace and (about or namespace != "default"):
            yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")


class Events(Builtin):
    """Events as events.k8s.io/v1 serves them."""

    def store_form(self, object_: Json) -> Json:
        """Return the core shape of an event."""
        renamed = {_RENAMED.get(name, name): part for name, part in object_.items()}
        return {**_ALWAYS, **renamed, "apiVersion": "v1"}

    def convert(self, object_: Json) -> Json:
        """Return the newer shape of a stored event."""
        renamed = {_CORE_NAMES.get(name, name): part for name, part in object_.items()}
        return {**renamed, "apiVersion": self.resource.api_version}

    def begin(self, object_: Json) -> None:
        """Write out the fields that the server always writes."""
        super().begin(object_)
        _complete(object_, _CORE_NAMES)

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Write out the fields that the server always writes."""
        super().carry(object_, old, subresource)
        _complete(object_, _CORE_NAMES)

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield what the newer group demands and core does not."""
        if old is not None:
            return
        controller = object_.get("reportingController", "")
        if not object_.get("eventTime"):
            yield required("eventTime")
        if not controller:
            yield required("reportingController")
        for fault in qualified_faults(controller):
            yield invalid_value("reportingController", controller, fault)
        for part in ("reportingInstance", "action", "reason"):
            if not object_.get(part):
                yield required(part)
            elif len(object_[part]) > 128:
                yield invalid_value(part, "", "can have at most 128 characters")
        if object_.get("type") not in ("Normal", "Warning"):
            kind = object_.get("type", "")
            yield invalid_value("type", kind, f"has invalid value: {kind}")
        if len(object_.get("note", "")) > 1024:
            yield invalid_value("note", "", "can have at most 1024 characters")
        namespace, about = (
            object_["metadata"].get("namespace", ""),
            object_["regarding"].get("namespace", ""),
        )
        if about != namespace and (about or namespace not in ("default", "kube-system")):
            yield invalid_value("regarding.namespace", about, "does not match event.namespace")
