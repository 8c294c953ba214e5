"""An edit of a Setting, read: a whole object, a JSON merge patch or a server-side apply.

The object is flat and has one field that is anybody's to write, so that the three mean the same,
and a strategic merge patch too. Nobody owns that field: an apply never conflicts with another.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpustack_delivery.httpd import Request
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.worker.public_api import targets
from gpustack_delivery.worker.public_api.rewriting import APPLY_PATCH, decoded
from gpustack_delivery.worker.public_api.settings_store import Edit
from gpustack_delivery.worker.public_api.statuses import Refused
from gpustack_delivery.worker.public_api.targets import Target

_RESOURCE: Final = targets.SETTINGS
_PATCHES: Final = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    APPLY_PATCH,
)
_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


def read_edit(target: Target, request: Request) -> tuple[Edit, list[str]]:
    """Read an update or a patch; return it with what its author should be warned of.

    Raises:
        Refused: it is none, not of this Setting, or has a field that a Setting has not, and its
            author wants to hear so.
    """
    media = (request.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    accepted = _PATCHES if target.verb == "patch" else ("application/json",)
    if media not in accepted and (media or target.verb == "patch"):
        message = f"accepted media types for this edit: {', '.join(accepted)}"
        raise Refused(415, "UnsupportedMediaType", message)
    body = decoded(request.body)
    try:
        wanted = msgspec.convert(body, type=_Wanted)
    except msgspec.ValidationError as error:
        raise Refused(400, "BadRequest", f"the edit is no Setting: {error}") from None
    warnings = _unknown(body, target)
    version, name = wanted.apiVersion, wanted.metadata.name
    if version not in {"", _RESOURCE.api_version} or name not in {"", target.name}:
        message = f"the edit must be of {_RESOURCE.api_version} and of the Setting {target.name}"
        raise Refused(400, "BadRequest", message)
    if target.verb == "patch" and wanted.spec.value is msgspec.UNSET:
        message = "a patch of a Setting must have spec.value: a text, or null for the default"
        raise Refused(400, "BadRequest", message)
    value = None if wanted.spec.value is msgspec.UNSET else wanted.spec.value
    dry = bool(target.parameter("dryRun"))
    return Edit(target.name, value, wanted.metadata.resourceVersion, dry), warnings


def _unknown(body: Json, target: Target) -> list[str]:
    """Return a warning for each field that a Setting has not.

    Raises:
        Refused: the author chose strict validation.
    """
    unknown = [
        *(name for name in body if name not in _FIELDS),
        *(f"spec.{name}" for name in body.get("spec") or () if name != "value"),
    ]
    found = [f'unknown field "{name}"' for name in unknown]
    mode = target.parameter("fieldValidation")
    if found and mode == "Strict":
        raise Refused(400, "BadRequest", f"strict decoding error: {', '.join(found)}")
    return [] if mode == "Ignore" else found


class _Metadata(msgspec.Struct):
    """What an edit may say of the object's identity."""

    name: str = ""
    resourceVersion: str = ""  # noqa: N815 - the wire's name


class _Spec(msgspec.Struct):
    """The only part of a Setting that is anybody's to write."""

    value: str | msgspec.UnsetType | None = msgspec.UNSET


class _Wanted(msgspec.Struct):
    """An edit, in the wire's own words."""

    apiVersion: str = ""  # noqa: N815 - the wire's name
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
