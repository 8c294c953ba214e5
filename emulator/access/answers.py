"""What the virtual resources of this room share: cleaning a body, and the metadata of an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from emulator.contracts import (
    Caller,
    Clock,
    FieldWrite,
    Json,
    Patcher,
    Resource,
    Target,
    WriteOptions,
)


def timestamp(seconds: float) -> str:
    """Return a time as objects carry it, RFC 3339 in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cleaned(value: Any) -> Any:
    """Return a copy without what the server's own encoding leaves out: nulls and empty values."""
    if isinstance(value, dict):
        items = {key: cleaned(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in (None, "", {}, [])}
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return value


def user_info(caller: Caller) -> Json:
    """Return a caller as reviews and admission requests show it."""
    info: Json = {"username": caller.name}
    if caller.uid:
        info["uid"] = caller.uid
    if caller.groups:
        info["groups"] = list(caller.groups)
    if caller.extra:
        info["extra"] = {key: list(values) for key, values in sorted(caller.extra.items())}
    return info


class Stamp:
    """Writes managedFields into answers that are never stored; the real server does so too."""

    def __init__(self, patcher: Patcher, clock: Clock) -> None:
        self._patcher, self._clock = patcher, clock

    @property
    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return self._clock.now()

    def track(
        self,
        body: Json,
        resource: Resource,
        caller: Caller,
        options: WriteOptions,
        subresource: str = "",
    ) -> None:
        """Note in `body`, in place, who sent which of its fields."""
        manager = options.field_manager or caller.manager
        write = FieldWrite(manager, "Update", timestamp(self.now), subresource)
        self._patcher.track(Target(resource, subresource=subresource), None, body, write)
