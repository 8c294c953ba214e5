"""Answers in the API's own words: JSON documents, and the Status that a refusal is.

A Refused leaves any part of the public API and becomes a Status at its door, `service`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpustack_delivery.httpd import Response
from gpustack_delivery.vocabulary.resources import Json

JSON: Final = [("Content-Type", "application/json")]


class Refused(Exception):
    """A request that is answered with a Status.

    Args:
        code: the HTTP status.
        reason: the Status reason, such as `Forbidden`.
        message: for whoever asked; says what to change.
        details: the Status details, if any.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.headers = headers


def refusal(refused: Refused) -> Response:
    """Return the Status of a refusal."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(refused),
        "reason": refused.reason,
        "code": refused.code,
    }
    if refused.details:
        body["details"] = refused.details
    return document(body, refused.code, [*JSON, *refused.headers])


def document(body: Json, code: int = 200, headers: list[tuple[str, str]] | None = None) -> Response:
    """Return a JSON document."""
    return Response(code, headers or list(JSON), msgspec.json.encode(body))


def not_found(group: str, plural: str, name: str) -> Refused:
    """Return the refusal for an object that is not there."""
    details = {"name": name, "group": group, "kind": plural}
    return Refused(404, "NotFound", f'{plural}.{group} "{name}" not found', details=details)


def no_such_path() -> Refused:
    """Return the refusal for a path that leads nowhere."""
    return Refused(404, "NotFound", "the server could not find the requested resource")


def wrong_method(allowed: Sequence[str]) -> Refused:
    """Return the refusal for a verb that a resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return Refused(
        405, "MethodNotAllowed", message, headers=[("Allow", ", ".join(sorted(allowed)))]
    )
