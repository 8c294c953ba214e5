"""How records meet JSON: what an optional field looks like when it is empty, and how times are
written.

Kubernetes writers leave empty optional fields out: zero numbers, false, "", empty lists and maps.
`present` does the same for every `to_wire`, and `overlay` does it where a stored object is written
back, so that a field of a newer schema survives a writer that does not know it.

Times are seconds since the epoch, UTC, and travel as RFC 3339.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from gpustack_delivery.vocabulary.resources import Json


def present(fields: Mapping[str, object]) -> Json:
    """Return the fields that hold something: no None, False, 0, "" and no empty list or map."""
    return {key: value for key, value in fields.items() if value}


def overlay(stored: Mapping[str, object], fields: Mapping[str, object]) -> Json:
    """Return `stored` with our `fields` laid over it.

    Args:
        stored: the object's part as the server holds it; members that `fields` does not name
            survive.
        fields: every member we know, empty ones included: an empty one removes the stored one.
    """
    unknown = {key: value for key, value in stored.items() if key not in fields}
    return unknown | present(fields)


def format_time(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC, cut to the second: `2026-09-25T06:00:00Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Return a time as Leases and Events write it: `2026-09-25T06:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Return the seconds of an RFC 3339 time.

    Raises:
        ValueError: the text is not a time with its zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} has no zone")
    return time.timestamp()


def optional_time(text: object) -> float | None:
    """Return the seconds of a time from the wire, or None for one that is absent."""
    return parse_time(str(text)) if text else None


def write_optional_time(seconds: float | None) -> str | None:
    """Return the wire form of a time that may be absent."""
    return None if seconds is None else format_time(seconds)
