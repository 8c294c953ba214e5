"""APIServices: which server serves a group's version, and where it stands among the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emulator.contracts import Json
from emulator.errors import Cause, invalid_value, required
from emulator.kinds.builtin import Builtin
from emulator.kinds.columns import AGE, NAME
from emulator.kinds.kind import Column


class ApiServices(Builtin):
    """An APIService is named after its version and group; a local one is available at once."""

    def begin(self, object_: Json) -> None:
        """Reset status; what this server serves itself needs no check."""
        super().begin(object_)
        if object_.get("spec", {}).get("service"):
            return
        condition = {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": object_["metadata"]["creationTimestamp"],
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
        object_["status"] = {"conditions": [condition]}

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield a name, priority or trust that does not fit."""
        spec, name = object_.get("spec", {}), object_["metadata"].get("name", "")
        wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
        if name != wanted:
            text = f'must be `spec.version+"."+spec.group`: "{wanted}"'
            yield invalid_value("metadata.name", name, text)
        for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            if not 0 < spec.get(field, 0) <= most:
                text = f"must be positive and less than {most}"
                yield invalid_value(f"spec.{field}", spec.get(field, 0), text)
        service = spec.get("service")
        if service is None:
            for field in ("caBundle", "insecureSkipTLSVerify"):
                if spec.get(field):
                    text = "local APIServices may not have this set"
                    yield invalid_value(f"spec.{field}", spec[field], text)
            return
        for field in ("namespace", "name"):
            if not service.get(field):
                yield required(f"spec.service.{field}")
        if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
            text = "may not be true if caBundle is present"
            yield invalid_value("spec.insecureSkipTLSVerify", True, text)  # noqa: FBT003 - the value shown


def _service(api_service: Json, _: float) -> str:
    service = api_service["spec"].get("service")
    return f"{service['namespace']}/{service['name']}" if service else "Local"


def _available(api_service: Json, _: float) -> str:
    for condition in (api_service.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Available":
            healthy = condition["status"] == "True"
            return "True" if healthy else f"{condition['status']} ({condition['reason']})"
    return "Unknown"


COLUMNS: Sequence[Column] = (
    NAME,
    Column(
        "Service",
        "string",
        _service,
        description="The reference to the service that hosts this API endpoint.",
    ),
    Column("Available", "string", _available, description="Whether this service is available."),
    AGE,
)
