"""What the API server says no with: Status objects, worded as the real server words them.

One exception carries them all; `api_server` turns it into an HTTP answer, `client` lets it
through. The names in a Status differ by case: NotFound, AlreadyExists and Conflict name the
plural resource, Invalid names the kind.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator.contracts import Access, Json, Resource

INCOMPLETE = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class ApiError(Exception):
    """A Status with status Failure.

    Args:
        status: the Status object. retry_after_seconds: for the Retry-After header, 0 for none.
        warnings: warnings that came up before the failure. plain: the server answers the text
        `404 page not found` instead of the Status: nothing is served there.
    """

    def __init__(
        self,
        status: Json,
        *,
        retry_after_seconds: int = 0,
        warnings: Sequence[str] = (),
        plain: bool = False,
    ) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.warnings = tuple(warnings)
        self.plain = plain

    @property
    def code(self) -> int:
        """Return the HTTP status."""
        return int(self.status.get("code", 500))

    @property
    def reason(self) -> str:
        """Return the Status reason, such as NotFound; empty when the server gave none."""
        return str(self.status.get("reason", ""))

    @property
    def message(self) -> str:
        """Return the sentence."""
        return str(self.status.get("message", ""))


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with an object: the field, the reason, and what is said of it."""

    field: str
    reason: str
    message: str

    def sentence(self) -> str:
        """Return the cause as the Status message lists it."""
        return f"{self.field}: {self.message}"

    def to_wire(self) -> Json:
        """Return the cause as details.causes lists it."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def shown(value: Any) -> str:
    """Return a value as the server prints it inside a message."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def required(field: str, detail: str = "") -> Cause:
    """A field that must be there is not."""
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """A field has a value that it cannot have."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def not_supported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    """A field has a value outside its list."""
    listed = ", ".join(shown(one) for one in allowed)
    return Cause(
        field,
        "FieldValueNotSupported",
        f"Unsupported value: {shown(value)}: supported values: {listed}",
    )


def type_invalid(field: str, kind: str, detail: str) -> Cause:
    """A field has another JSON type than its schema says."""
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {shown(kind)}: {detail}")


def refused_field(field: str, detail: str) -> Cause:
    """A field may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> Cause:
    """A list that is a set or a map repeats a key."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def failure(code: int, reason: str, message: str, details: Json | None = None) -> ApiError:
    """Return an error from its parts; an empty reason and no details are left out."""
    status: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = details
    status["code"] = code
    return ApiError(status)


def details_of(group: str, kind: str, name: str = "") -> Json:
    """Return Status details that name something; empty parts are left out."""
    parts = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in parts.items() if value}


def _named(resource: Resource, name: str) -> str:
    return f"{resource.qualified} {shown(name)}"


def not_found(resource: Resource, name: str) -> ApiError:
    """404: there is no such object."""
    details = details_of(resource.group, resource.plural, name)
    return failure(404, "NotFound", f"{_named(resource, name)} not found", details)


def not_served(*, plain: bool) -> ApiError:
    """404: there is no such resource, group or version."""
    error = failure(404, "NotFound", "the server could not find the requested resource", {})
    error.plain = plain
    return error


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: the name is taken."""
    details = details_of(resource.group, resource.plural, name)
    return failure(409, "AlreadyExists", f"{_named(resource, name)} already exists", details)


def conflict(group: str, kind: str, name: str, text: str) -> ApiError:
    """409: the write does not fit. `kind` is a plural, or a Kind for preconditions."""
    qualified = f"{kind}.{group}" if group else kind
    message = f"Operation cannot be fulfilled on {qualified} {shown(name)}: {text}"
    return failure(409, "Conflict", message, details_of(group, kind, name))


def modified(resource: Resource, name: str) -> ApiError:
    """409: the object moved on since the caller read it."""
    text = (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    return conflict(resource.group, resource.plural, name, text)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object is wrong, and here is everything that is wrong with it."""
    sentences = list(dict.fromkeys(cause.sentence() for cause in causes))
    listed = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    qualified = f"{kind}.{group}" if group else kind
    details = details_of(group, kind, name) | {"causes": [cause.to_wire() for cause in causes]}
    return failure(422, "Invalid", f"{qualified} {shown(name)} is invalid: {listed}", details)


def bad_request(message: str) -> ApiError:
    """400: the request itself is wrong."""
    return failure(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, text: str, causes: Sequence[Json] = ()) -> ApiError:
    """403 by admission: the caller may do such things, but not this one."""
    details = details_of(resource.group, resource.plural, name)
    if causes:
        details["causes"] = list(causes)
    subject = _named(resource, name) if name else resource.qualified
    return failure(403, "Forbidden", f"{subject} is forbidden: {text}", details)


def access_denied(access: Access, reason: str = "") -> ApiError:
    """403 by authorization, in the sentence that names user, verb, resource and scope."""
    user = f"User {shown(access.caller.name)} cannot {access.verb}"
    tail = f": {reason}" if reason else ""
    if access.path:
        return failure(403, "Forbidden", f"forbidden: {user} path {shown(access.path)}{tail}", {})
    named = f"{access.plural}.{access.group}" if access.group else access.plural
    subject = f"{named} {shown(access.name)}" if access.name else named
    resource = f"{access.plural}/{access.subresource}" if access.subresource else access.plural
    scope = (
        f"in the namespace {shown(access.namespace)}"
        if access.namespace
        else "at the cluster scope"
    )
    message = (
        f"{subject} is forbidden: {user} resource {shown(resource)} in API group "
        f"{shown(access.group)} {scope}{tail}"
    )
    return failure(403, "Forbidden", message, details_of(access.group, access.plural, access.name))


def unauthorized() -> ApiError:
    """401: the credential is not accepted."""
    return failure(401, "Unauthorized", "Unauthorized")


def not_allowed(resource: Resource, verb: str) -> ApiError:
    """405: the resource has no such verb."""
    message = f"{verb} is not supported on resources of kind {shown(resource.qualified)}"
    return failure(405, "MethodNotAllowed", message, details_of(resource.group, resource.plural))


def not_emulated(what: str) -> ApiError:
    """501: a real server has this, the emulator has not."""
    return failure(501, "NotImplemented", f"the emulator does not implement {what}", {})


def expired(message: str) -> ApiError:
    """410: the version asked for is no longer kept."""
    return failure(410, "Expired", message)


def version_ahead(asked: int, current: int) -> ApiError:
    """504: the version asked for has not come within the server's patience."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    error = failure(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})
    error.retry_after_seconds = 1
    return error


def internal(message: str) -> ApiError:
    """500 without a reason, as storage answers."""
    return failure(500, "", message)


def unparsable_version(field: str, value: str) -> ApiError:
    """500: a resourceVersion is not a number. `field` is empty for writes."""
    text = f"strconv.ParseUint: parsing {shown(value)}: invalid syntax"
    return internal(f"{field}: Invalid value: {shown(value)}: {text}" if field else text)
