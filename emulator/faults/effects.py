"""What can become of a request to the API server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from emulator.errors import ApiError, conflict, expired, failure
from emulator.hubs.gate import Gate
from emulator.objects import encoded_event
from emulator.routes import Route
from gpustack_delivery.httpd import Response

Answer = Callable[[], Response]
_JSON = ("Content-Type", "application/json")
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Effect(Protocol):
    """A way in which a request goes wrong."""

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Return what the client gets; `answer` does what it asked for."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused and nothing is done.

    Args:
        reason: of the Status; the usual one of the code unless given.
        retry_after: seconds, for the Retry-After header; 0 for none.
    """

    code: int = 500
    reason: str = ""
    message: str = "a fault that was asked for"
    retry_after: int = 0

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Return the Status."""
        reason = self.reason or _REASONS.get(self.code, "")
        response = _refusal(failure(self.code, reason, self.message, {}))
        if self.retry_after:
            response.headers.append(("Retry-After", str(self.retry_after)))
        return response


@dataclass(frozen=True, slots=True)
class Conflict:
    """A write meets another writer: 409, and nothing is done."""

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Return the Status of a write from a version that is not the latest."""
        text = (
            "the object has been modified; please apply your changes to the latest version and "
            "try again"
        )
        return _refusal(conflict(route.group, route.plural, route.name, text))


@dataclass(frozen=True, slots=True)
class Delay:
    """The request is done later; without seconds: until `release`."""

    seconds: float | None = None

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Wait, then do it."""
        gate.wait(self.seconds)
        return answer()


@dataclass(frozen=True, slots=True)
class Hangup:
    """The connection closes without an answer; with `done`, after the request was carried out."""

    done: bool = False

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Return nothing at all."""
        if self.done:
            answer()
        return Response(body=lambda *_: None)


@dataclass(frozen=True, slots=True)
class Gone:
    """The version that a list or watch starts from is no longer kept: 410, as each shows it."""

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Return the Status, or a watch that consists of it."""
        version = route.parameter("resourceVersion") or "0"
        error = expired(f"too old resource version: {version} ({int(version or 0) + 1})")
        if route.verb == "watch":
            return Response(200, [_JSON], encoded_event("ERROR", error.status))
        return _refusal(error)


@dataclass(frozen=True, slots=True)
class Silence:
    """A watch that opens, stays open, and tells nothing."""

    def strike(self, route: Route, answer: Answer, gate: Gate) -> Response:
        """Return a body that only its client, or a release of the faults, ends."""
        return Response(200, [_JSON], _Silent(gate), live=True)


class _Silent:
    """A body without a byte."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._openings = gate.openings
        self._closed = threading.Event()

    def __iter__(self) -> _Silent:
        return self

    def __next__(self) -> bytes:
        self._gate.wait(None, self._over)
        raise StopIteration

    def _over(self) -> bool:
        return self._closed.is_set() or self._gate.openings != self._openings

    def close(self) -> None:
        """End it, from any thread."""
        self._closed.set()
        self._gate.wake()


def _refusal(error: ApiError) -> Response:
    return Response(error.code, [_JSON], msgspec.json.encode(error.status) + b"\n")
