"""What the Kubernetes API's answers mean: JSON objects, watch events, and the fault that a Status
stands for.

A Status's own message may name namespaces and objects, so it goes into a fault's `detail`, for the
log; the text of the fault is the status code and reason alone. `kube` is the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpustack_delivery.errors import (
    AlreadyExists,
    ApiFault,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unreachable,
)
from gpustack_delivery.ports import Change
from gpustack_delivery.vocabulary.resources import Json

LONGEST_WISH_SECONDS: Final = 60.0
"""A server may ask for a longer pause; it gets this one and then the next request."""

_BY_CODE: Final[Mapping[int, type[ApiFault]]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    410: Gone,
}


def decode(raw: bytes) -> Json | None:
    """Return a JSON object, or None for bytes that are none."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def read_change(line: bytes) -> Change:
    """Read one line of a watch.

    Raises:
        Gone: the server forgot the version that the watch started from.
        ApiFault: the event is another error.
        Unreachable: the line is no event.
    """
    event = decode(line)
    if event is None or not isinstance(event.get("object"), dict):
        raise Unreachable("the watch sent something that is not an event")
    if event.get("type") == "ERROR":
        raise _from_status(event["object"].get("code", 0), event["object"])
    return Change(str(event.get("type", "")), event["object"])


def fault_of(code: int, body: bytes, *, retry_after: str = "") -> ApiFault:
    """Return the fault that an answer stands for; its body need not be a Status."""
    status = decode(body) or {"message": body[:500].decode("utf-8", "replace")}
    fault = _from_status(code, status)
    if retry_after.isdecimal():
        fault.retry_after_seconds = min(float(retry_after), LONGEST_WISH_SECONDS)
    return fault


def _from_status(code: int, status: Json) -> ApiFault:
    reason = str(status.get("reason") or "")
    return _class_of(code, reason)(
        f"the Kubernetes API answered {code} {reason}".rstrip(),
        code=code,
        reason=reason,
        detail=str(status.get("message") or ""),
    )


def _class_of(code: int, reason: str) -> type[ApiFault]:
    if code == 409:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    if code == 429 or code >= 500:
        return Unreachable
    return _BY_CODE.get(code, Invalid)
