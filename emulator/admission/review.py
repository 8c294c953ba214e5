"""AdmissionReview: what a webhook is sent, and what its answer means."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from emulator.access.answers import user_info
from emulator.contracts import Attributes, Json, Resource
from emulator.errors import ApiError

_API_VERSION = "admission.k8s.io/v1"


class ReviewFault(Exception):
    """A webhook could not be asked, or did not answer as it must; the text is the server's."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer that is well formed. `patch` is a JSON patch, or None."""

    allowed: bool
    status: Json | None = None
    warnings: tuple[str, ...] = ()
    patch: Any = None


def request(attributes: Attributes, shown_as: Resource, uid: str) -> Json:
    """Return the review of a write, in the version of the resource that the webhook wants."""
    own = attributes.target.resource
    content = attributes.object if attributes.object is not None else attributes.old_object
    requested = _kind(content, own)
    kind = requested if shown_as == own else {**requested, "version": shown_as.version}
    subresource = attributes.target.subresource
    review: Json = {"uid": uid, "kind": kind, "resource": _resource(shown_as)}
    if subresource:
        review["subResource"] = subresource
    review |= {"requestKind": requested, "requestResource": _resource(own)}
    if subresource:
        review["requestSubResource"] = subresource
    for key, value in (
        ("name", attributes.target.name),
        ("namespace", attributes.target.namespace),
    ):
        if value:
            review[key] = value
    review |= {
        "operation": attributes.operation,
        "userInfo": user_info(attributes.caller),
        "object": _in_version(attributes.object, shown_as, own),
        "oldObject": _in_version(attributes.old_object, shown_as, own),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }
    return {"kind": "AdmissionReview", "apiVersion": _API_VERSION, "request": review}


def verdict(answer: Any, uid: str, *, mutating: bool) -> Verdict:
    """Read a webhook's answer. Raises ReviewFault for one that breaks the protocol."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise _invalid("webhook response was absent")
    if response.get("uid") != uid:
        raise _invalid(
            f"expected response.uid={_quoted(uid)}, got {_quoted(response.get('uid', ''))}"
        )
    if answer.get("apiVersion") != _API_VERSION or answer.get("kind") != "AdmissionReview":
        found = f"{answer.get('apiVersion', '')}, Kind={answer.get('kind', '')}"
        raise _invalid(
            f"expected webhook response of {_API_VERSION}, Kind=AdmissionReview, got {found}"
        )
    return Verdict(
        bool(response.get("allowed")),
        response.get("status"),
        tuple(response.get("warnings") or ()),
        _patch(response, mutating=mutating),
    )


def denial(webhook: str, status: Json | None) -> ApiError:
    """Return the error of a denied write: the webhook's own status, with its name in front."""
    result: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **(status or {})}
    result["code"] = max(int(result.get("code") or 0), 400)
    result["status"] = "Failure"
    why = result.get("message") or result.get("reason")
    denied = f"admission webhook {_quoted(webhook)} denied the request"
    result["message"] = f"{denied}: {why}" if why else f"{denied} without explanation"
    return ApiError(result)


def _patch(response: Json, *, mutating: bool) -> Any:
    encoded, kind = response.get("patch"), response.get("patchType")
    if not mutating:
        for name, value in (("patch", encoded), ("patchType", kind)):
            if value:
                raise _invalid(f"validating webhook may not return response.{name}")
        return None
    if encoded and kind is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if kind is not None and not encoded:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if not encoded:
        return None
    if kind != "JSONPatch":
        raise _invalid(f"webhook returned invalid response.patchType of {_quoted(kind)}")
    try:
        return json.loads(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as fault:
        raise _invalid(f"response.patch is not a base64 encoded JSON patch: {fault}") from None


def _invalid(reason: str) -> ReviewFault:
    return ReviewFault(f"received invalid webhook response: {reason}")


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)


def _kind(content: Json | None, resource: Resource) -> Json:
    """Return the kind of what is written: a subresource may be written as a kind of its own."""
    version, kind = resource.api_version, resource.kind
    if content is not None:
        version, kind = content.get("apiVersion", version), content.get("kind", kind)
    group, _, bare = version.rpartition("/")
    return {"group": group, "version": bare, "kind": kind}


def _resource(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _in_version(content: Json | None, wanted: Resource, own: Resource) -> Json | None:
    # Versions of one resource differ by name alone here: conversion webhooks are not emulated.
    if content is None or wanted == own or content.get("apiVersion") != own.api_version:
        return content
    return {**content, "apiVersion": wanted.api_version}
