"""What all built-in kinds have in common: a class of the type table, a profile, and little else.

A kind with rules of its own is a subclass in the module of its subject (`pods`, `core`,
`storage`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.contracts import Json, Resource
from emulator.errors import Cause, bad_request, invalid_value, refused_field, required
from emulator.kinds import defaults, metadata, typed
from emulator.kinds.kind import Column, Kind


@dataclass(frozen=True, slots=True)
class Profile:
    """How one built-in kind differs from the plainest."""

    generation: bool = False
    unconditional_update: bool = True
    returns_deleted: bool = False
    namer: Callable[[str], list[str]] = metadata.subdomain_faults
    fields: Mapping[str, str] = field(
        default_factory=dict
    )  # selectable field -> dotted path; "?" ends a boolean
    status: Json | None = None  # status at creation, where the kind has one


class Builtin(Kind):
    """A built-in kind that its profile describes."""

    def __init__(self, resource: Resource, columns: Sequence[Column], profile: Profile) -> None:
        super().__init__(resource)
        class_name = typed.class_of(resource.api_version, resource.kind)
        if class_name is None:
            raise LookupError(f"types.json has no {resource.api_version} {resource.kind}")
        self.class_name = class_name
        self.profile = profile
        self.unconditional_update = profile.unconditional_update
        self.returns_deleted = profile.returns_deleted
        self.counts_generation = profile.generation
        self._columns = columns

    @property
    def namer(self) -> Callable[[str], list[str]]:
        """Return the check of names."""
        return self.profile.namer

    def decode(self, body: Json) -> tuple[Json, list[str]]:
        """Return a cleaned copy of a body. Raises ApiError 400 in the decoder's words."""
        kind, version = self.resource.kind, self.resource.version
        given = (body.get("apiVersion") or self.resource.api_version, body.get("kind") or kind)
        if given != (self.resource.api_version, kind):
            raise bad_request(
                f'{given[1]} in version "{given[0].rpartition("/")[2]}" cannot be handled as a '
                f"{kind}: "
                f"no kind {given[1]} is registered at this path"
            )
        try:
            cleaned, complaints = typed.decode(self.class_name, body)
        except typed.UndecodableError as error:
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
            ) from None
        rest = {
            name: part
            for name, part in cleaned.items()
            if name not in ("kind", "apiVersion", "metadata")
        }
        head = {
            "kind": kind,
            "apiVersion": self.resource.api_version,
            "metadata": cleaned.get("metadata", {}),
        }
        return {**head, **rest}, complaints

    def fill(self, object_: Json) -> None:
        """Apply the defaults of the kind's class and of everything in it."""
        defaults.apply(self.class_name, object_)

    def begin(self, object_: Json) -> None:
        """Reset status to what the profile says, and begin to count generations."""
        super().begin(object_)
        if self.profile.status is not None:
            object_["status"] = dict(self.profile.status)

    def selectable(self, object_: Json) -> Mapping[str, str]:
        """Return the selectable fields and their values."""
        return {name: _text(object_, path) for name, path in self.profile.fields.items()}

    @property
    def selectable_names(self) -> frozenset[str]:
        """Return the names of the selectable fields."""
        return frozenset(self.profile.fields)

    def columns(self) -> Sequence[Column]:
        """Return the printer columns."""
        return self._columns


def _text(object_: Json, path: str) -> str:
    boolean = path.endswith("?")
    value: Any = object_
    for part in path.removesuffix("?").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if boolean:
        return "true" if value else "false"
    return "" if value is None else str(value)


_TEMPLATES = "deprecated.daemonset.template.generation"


class Workload(Builtin):
    """A kind with a Pod template and a selector over it."""

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield a missing or unfitting selector, a changed selector, and an empty template."""
        spec = object_.get("spec", {})
        selector = spec.get("selector")
        labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
        if not selector:
            yield required("spec.selector")
        elif any(
            labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()
        ):
            yield invalid_value(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            )
        if old is not None and old["spec"].get("selector") != selector:
            yield invalid_value("spec.selector", selector, "field is immutable")
        if not spec.get("template", {}).get("spec", {}).get("containers"):
            yield required("spec.template.spec.containers")


class DaemonSets(Workload):
    """DaemonSets carry the counter of an older time in an annotation."""

    def fill(self, object_: Json) -> None:
        """Begin to count templates."""
        super().fill(object_)
        object_["metadata"].setdefault("annotations", {}).setdefault(_TEMPLATES, "1")

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Count a changed template."""
        super().carry(object_, old, subresource)
        count = int(old["metadata"].get("annotations", {}).get(_TEMPLATES, "1"))
        changed = object_["spec"].get("template") != old["spec"].get("template")
        object_["metadata"]["annotations"][_TEMPLATES] = str(count + 1 if changed else count)


class RoleBindings(Builtin):
    """A binding's role is for life."""

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield a missing, or changed, role reference."""
        reference = object_.get("roleRef", {})
        if not reference.get("name"):
            yield required("roleRef.name")
        if old is not None and old.get("roleRef") != reference:
            yield invalid_value("roleRef", reference, "cannot change roleRef")


class WebhookConfigurations(Builtin):
    """The configurations of admission webhooks."""

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield what the server insists on for every webhook."""
        for index, webhook in enumerate(object_.get("webhooks", [])):
            field_ = f"webhooks[{index}]"
            if not webhook.get("admissionReviewVersions"):
                yield required(
                    f"{field_}.admissionReviewVersions", "must specify one of v1, v1beta1"
                )
            if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
                yield required(f"{field_}.sideEffects", "must specify one of None, NoneOnDryRun")
            client = webhook.get("clientConfig", {})
            if ("url" in client) == ("service" in client):
                yield required(
                    f"{field_}.clientConfig", "exactly one of url or service is required"
                )
            if not 1 <= webhook.get("timeoutSeconds", 10) <= 30:
                text = "the timeout value must be between 1 and 30 seconds"
                yield invalid_value(f"{field_}.timeoutSeconds", webhook["timeoutSeconds"], text)


def immutable_data(object_: Json, old: Json | None) -> Iterator[Cause]:
    """Yield bad keys, too much data, and changes after the seal."""
    for part in ("data", "binaryData"):
        for key in object_.get(part, {}):
            if (
                not key
                or len(key) > 253
                or not all(one.isascii() and (one.isalnum() or one in "-._") for one in key)
            ):
                text = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
                    "(e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                yield invalid_value(f"{part}[{key}]", key, text)
    size = sum(
        len(value) for part in ("data", "binaryData") for value in object_.get(part, {}).values()
    )
    if size > 1 << 20:
        yield Cause("", "FieldValueTooLong", "Too long: may not be more than 1048576 bytes")
    if old is not None and old.get("immutable"):
        text = "field is immutable when `immutable` is set"
        if not object_.get("immutable"):
            yield refused_field("immutable", text)
        for part in ("data", "binaryData"):
            if object_.get(part) != old.get(part):
                yield refused_field(part, text)
