"""The words of the emulated API server: records that its rooms exchange, and the steps that are
plugged into it.

`Api` (in `api.py`) is the model: every verb, no HTTP. Access, admission and patches are steps
that it takes in its constructor, so each can be read, tested and replaced alone. Objects are
plain JSON dicts; one that came out of the model is shared with the store and with every other
reader, and must not be changed: copy it first (`copied`), or use `client.Client`, which copies
for you.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import msgspec

Json = dict[str, Any]

Value = TypeVar("Value", bound=Any)


def copied(value: Value) -> Value:
    """Return a deep copy of JSON data, as fast as a codec in C can make it."""
    return cast(Value, msgspec.json.decode(msgspec.json.encode(value)))


class Clock(Protocol):
    """Time, and the only way to wait for it."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a held condition until it is notified or `seconds` passed; may return early."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: what authentication found out, and what admission and access reviews show of it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    user_agent: str = ""

    @property
    def manager(self) -> str:
        """Return the field manager that this caller has when its request names none."""
        return self.user_agent.split("/", 1)[0] or "unknown"


ADMIN = Caller("kubernetes-admin", ("system:masters", "system:authenticated"))
"""The cluster's first user, whom no rule binds."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource in one version, as discovery shows it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = (
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    )
    subresources: frozenset[str] = frozenset()
    custom: bool = False

    @property
    def api_version(self) -> str:
        """Return what objects of this resource carry as apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> tuple[str, str]:
        """Return the store's key of the collection, the same for every version."""
        return (self.group, self.plural)

    @property
    def qualified(self) -> str:
        """Return `plural.group` as messages name it; the bare plural in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about: a collection (no name), an object, or a subresource of it."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """One question to the authorizer: may `caller` do `verb`?

    Either a resource (group, version, plural, subresource, namespace, name) or, when `path` is
    set, a path outside the resources, with the HTTP method in lower case as its verb.
    """

    caller: Caller
    verb: str
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: str = ""  # of list and watch, as sent

    @classmethod
    def to(cls, target: Target, caller: Caller, verb: str, field_selector: str = "") -> Access:
        """Ask for a verb on a target."""
        resource = target.resource
        return cls(
            caller=caller,
            verb=verb,
            group=resource.group,
            version=resource.version,
            plural=resource.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
            field_selector=field_selector,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """An authorizer's answer; `reason` goes into the forbidden message or the review's status."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides who may do what."""

    def decide(self, access: Access) -> Decision:
        """Answer one question; never raises."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Query parameters of create, update and patch."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"  # Ignore, Warn or Strict
    force: bool = False  # server-side apply only
    complaints: tuple[str, ...] = ()  # what strict decoding of the body found: duplicate fields

    def to_wire(self, kind: str) -> Json:
        """Return the CreateOptions or UpdateOptions object that an admission request carries."""
        wire: Json = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            wire["dryRun"] = ["All"]
        if self.field_manager:
            wire["fieldManager"] = self.field_manager
        if self.field_validation != "Warn":
            wire["fieldValidation"] = self.field_validation
        return wire


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a delete asks for; `grace_period_seconds` matters to Pods alone."""

    dry_run: bool = False
    uid: str = ""
    resource_version: str = ""
    propagation_policy: str = ""  # "", Foreground, Background or Orphan
    grace_period_seconds: int | None = None
    wire: Json = field(default_factory=dict)  # the options as sent, for admission


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Query parameters of list, watch and deletecollection, as sent."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_seconds: float | None = None
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None


@dataclass(frozen=True, slots=True)
class ListResult:
    """One page of a collection. `items` are shared objects."""

    items: Sequence[Json]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a write answered: the object (or Status), the HTTP code, and warnings in order."""

    object: Json
    code: int = 200
    warnings: tuple[str, ...] = ()


class WatchEvent(Protocol):
    """One event of a watch; in an ERROR event `object` is a Status."""

    @property
    def type(self) -> str:
        """Return what happened."""

    @property
    def object(self) -> Json:
        """Return the shared object in the version that the watch asked for."""

    def line(self) -> bytes:
        """Return the event as one JSON line; encoded once for all watchers."""


class WatchStream(Protocol):
    """An open watch; iterate it on one thread, close it from any."""

    def __iter__(self) -> Iterator[WatchEvent]:
        """Yield events until the watch times out, is closed, or its resource goes."""

    def close(self) -> None:
        """End the watch; safe from any thread, and twice."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What admission judges: one write, as far as it has come.

    `object` is the object after defaulting, reset and pruning (None for DELETE); `old_object` is
    what is stored (None for CREATE). `options` is the wire form of CreateOptions, UpdateOptions,
    PatchOptions or DeleteOptions.
    """

    caller: Caller
    operation: str  # CREATE, UPDATE, DELETE or CONNECT
    target: Target  # name is resolved, except for deletecollection, where it is empty
    object: Json | None
    old_object: Json | None
    options: Json
    dry_run: bool = False


class Admission(Protocol):
    """Mutating and validating admission; both may raise `errors.ApiError` to refuse."""

    def mutate(self, attributes: Attributes, warn: Callable[[str], None]) -> Json | None:
        """Return the changed object, or None to leave it.

        `attributes.object` is private to this write and may be changed in place. Runs before
        validation, and not for DELETE.
        """

    def validate(self, attributes: Attributes, warn: Callable[[str], None]) -> None:
        """Refuse by raising; runs after validation and the version check."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch: its media type without parameters, and its decoded document."""

    type: str
    body: Any


class Patcher(Protocol):
    """Patches, and who owns which field. Raises `errors.ApiError`."""

    def patch(self, target: Target, patch: Patch, current: Json, schema: Json | None) -> Json:
        """Return a new object: `current` with a JSON, merge or strategic merge patch applied.

        `schema` is the CRD schema, None for built-in kinds; `current` is shared and stays as it is.
        """

    def apply(self, target: Target, patch: Patch, current: Json | None, write: FieldWrite) -> Json:
        """Return the result of a server-side apply; `current` None means create."""

    def track(self, target: Target, current: Json | None, updated: Json, write: FieldWrite) -> None:
        """Bring `updated["metadata"]["managedFields"]` up to date after a create, update or
        non-apply patch.

        Called before mutating admission, which sees its result; `updated` is private and changed
        in place.
        """


@dataclass(frozen=True, slots=True)
class FieldWrite:
    """Who writes fields, when and how; `schema` as in `Patcher.patch`."""

    manager: str
    operation: str  # Update or Apply
    time: str  # RFC 3339, seconds
    subresource: str = ""
    force: bool = False
    schema: Json | None = None


class Virtual(Protocol):
    """A create that stores nothing: reviews, or subresources such as token."""

    def __call__(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions
    ) -> Outcome:
        """Answer the request; called after authorization."""


class Elsewhere(Protocol):
    """What servers behind this one keep, as far as the end of a namespace has to do with it."""

    def stale(self) -> Sequence[str]:
        """Return the group versions whose server cannot be asked what it serves."""

    def empty(self, namespace: str) -> Mapping[str, int]:
        """Delete what other servers keep in a namespace; return what is left, by resource."""
