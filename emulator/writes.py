"""create, update and patch: one way for every write, through the stations that `api` lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from emulator.contracts import (
    Access,
    Caller,
    Json,
    Outcome,
    Patch,
    Target,
    WriteOptions,
    copied,
)
from emulator.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    invalid_value,
    modified,
    not_found,
    required,
)
from emulator.kinds.kind import Kind
from emulator.reads import parsed_version
from emulator.state import State, collection_of
from emulator.stations import APPLY, Stations, Write, carry_metadata

_LARGEST_BYTES = 1_572_864
_NAME_ATTEMPTS = 8


_PLAIN = WriteOptions()


class Writes:
    """The writing verbs but delete."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._stations = Stations(state)

    def create(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Create an object. Raises ApiError."""
        write = Write(caller, target, self._state.kind(target.resource), options, [])
        object_, complaints = write.kind.decode(body)
        self._stations.complain(write, [*options.complaints, *complaints])
        _place(target, object_)
        return self._creation(write, object_)

    def update(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Replace an object or its status. Raises ApiError."""
        kind = self._state.kind(target.resource)
        write = Write(caller, target, kind, options, [], "UPDATE")
        object_, complaints = kind.decode(body)
        _place(target, object_)
        self._stations.complain(write, [*options.complaints, *complaints])

        def attempt() -> Json | None:
            stored = self._state.stored(target)
            return self._updated(write, stored, copied(object_), replaces=True)

        return Outcome(self._state.retrying(attempt), warnings=tuple(write.warnings))

    def patch(self, caller: Caller, target: Target, patch: Patch, options: WriteOptions) -> Outcome:
        """Patch an object or its status; an apply creates what is not there. Raises ApiError."""
        state, kind = self._state, self._state.kind(target.resource)
        applies = patch.type == APPLY
        if applies and not options.field_manager:
            cause = required("fieldManager", "is required for apply patch")
            raise invalid("meta.k8s.io", "PatchOptions", "", [cause])
        write = Write(caller, target, kind, options, [], "UPDATE", applied=applies)
        stored = state.lookup(collection_of(target.resource), target.namespace, target.name)
        if stored is None and applies and not target.subresource:
            state.authorize(Access.to(target, caller, "create"))
            return self._applied_creation(replace(write, operation="CREATE"), patch)

        def attempt() -> Json | None:
            write.warnings.clear()
            stored = state.stored(target)
            # Copied, because a patcher may share with the stored object what it did not touch.
            patched, complaints = kind.decode(
                copied(self._stations.patched(write, patch, kind.convert(stored)))
            )
            _place(target, patched)
            self._stations.complain(write, complaints)
            return self._updated(write, stored, patched)

        return Outcome(state.retrying(attempt), warnings=tuple(write.warnings))

    def modify(
        self,
        caller: Caller,
        target: Target,
        change: Callable[[Json], None],
        options: WriteOptions = _PLAIN,
        *,
        silent: bool = False,
        shown: Callable[[Json], Json] | None = None,
    ) -> Json:
        """Change a stored object by a function, as the server's own parts do. Raises ApiError."""
        kind = self._state.kind(target.resource)
        write = Write(caller, target, kind, options, [], "UPDATE", silent=silent, shown=shown)

        def attempt() -> Json | None:
            stored = self._state.stored(target)
            object_ = copied(write.kind.convert(stored))
            change(object_)
            return self._updated(write, stored, object_)

        return self._state.retrying(attempt)

    # creation

    def _applied_creation(self, write: Write, patch: Patch) -> Outcome:
        target = write.target
        uid = (
            (patch.body.get("metadata") or {}).get("uid") if isinstance(patch.body, dict) else None
        )
        if uid:
            text = (
                f"uid mismatch: the provided object specified uid {uid}, and no existing object "
                f"was found"
            )
            raise conflict(target.resource.group, target.resource.plural, target.name, text)
        object_, complaints = write.kind.decode(self._stations.patched(write, patch, None))
        self._stations.complain(write, complaints)
        _place(target, object_)
        return self._creation(write, object_)

    def _creation(self, write: Write, object_: Json) -> Outcome:
        metadata = object_["metadata"]
        prefix = "" if metadata.get("name") else metadata.get("generateName", "")
        for attempt in range(_NAME_ATTEMPTS):
            draft = copied(object_) if prefix else object_
            if prefix:
                draft["metadata"]["name"] = prefix + self._state.suffix(prefix)
            try:
                return Outcome(self._created(write, draft), 201, tuple(write.warnings))
            except ApiError as error:
                # The server tries again when a name that it made up itself is taken.
                if not prefix or error.reason != "AlreadyExists" or attempt == _NAME_ATTEMPTS - 1:
                    error.warnings = (*write.warnings, *error.warnings)
                    raise
        raise AssertionError  # unreachable: the last attempt returns or raises

    def _created(self, write: Write, object_: Json) -> Json:
        state, kind, metadata = self._state, write.kind, object_["metadata"]
        asked_version = metadata.pop("resourceVersion", "")
        for part in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(part, None)
        place = f"{kind.resource.plural} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        metadata.update(uid=state.uid(place), creationTimestamp=state.now())
        kind.fill(object_)
        self._check_namespace(write, metadata.get("name", ""))
        object_ = self._stations.track_and_mutate(write, None, object_)
        kind.begin(object_)
        self._stations.check(write, None, object_)
        self._stations.validate(write, None, object_)
        if asked_version:
            raise internal("resourceVersion should not be set on objects to be created")
        _check_size(object_)
        key = collection_of(write.target.resource)
        if write.options.dry_run:
            if state.lookup(key, metadata.get("namespace", ""), metadata["name"]) is not None:
                raise already_exists(write.target.resource, metadata["name"])
            return object_
        stored = state.store.put(key, kind.store_form(object_), None)
        if stored is None:
            raise already_exists(write.target.resource, metadata["name"])
        return kind.convert(stored)

    def _check_namespace(self, write: Write, name: str) -> None:
        """Refuse what would be created in a namespace that is not there, or on its way out."""
        target = write.target
        if not target.resource.namespaced:
            return
        namespace = self._state.lookup(("", "namespaces"), "", target.namespace)
        if namespace is None:
            raise not_found(
                self._state.registry.find("", "v1", "namespaces").resource, target.namespace
            )
        if namespace["metadata"].get("deletionTimestamp"):
            text = f"namespace {target.namespace} is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": text,
                "field": "metadata.namespace",
            }
            sentence = (
                f"unable to create new content in namespace {target.namespace} because it is "
                f"being terminated"
            )
            raise forbidden(target.resource, name, sentence, [cause])

    # update

    def _updated(
        self, write: Write, stored: Json, object_: Json, *, replaces: bool = False
    ) -> Json | None:
        """Take a private, decoded object all the way; None when another write came first."""
        kind, target = write.kind, write.target
        old = kind.convert(stored)
        kind.fill(object_)
        if replaces:
            _check_uid(target, object_["metadata"], old["metadata"])
        _check_version(kind, target, object_["metadata"], old["metadata"])
        carry_metadata(object_["metadata"], old["metadata"])
        kind.carry(object_, old, target.subresource)
        if kind.bumps_generation(object_, old):
            object_["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        object_ = self._stations.track_and_mutate(write, old, object_)
        self._stations.check(write, old, object_)
        self._stations.validate(write, old, object_)
        return self._replaced(write, stored, object_)

    def _replaced(self, write: Write, stored: Json, object_: Json) -> Json | None:
        kind, store = write.kind, self._state.store
        old = kind.convert(stored)
        object_["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        key = collection_of(write.target.resource)
        if object_["metadata"].get("deletionTimestamp") and kind.released(object_):
            # The last thing that held a deleted object is gone: the update is its end.
            if not write.options.dry_run and store.remove(key, stored) is None:
                return None
            return object_
        if _same(old, object_):
            return old
        if write.options.dry_run:
            return object_
        _check_size(object_)
        put = store.put(key, kind.store_form(object_), stored)
        return None if put is None else kind.convert(put)


def _place(target: Target, object_: Json) -> None:
    """Bring name and namespace of a body and of its URL together. Raises ApiError 400."""
    metadata = object_["metadata"]
    namespace = metadata.get("namespace", "")
    if namespace and namespace != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if target.resource.namespaced:
        metadata["namespace"] = target.namespace
        if not target.namespace:
            raise bad_request("an empty namespace may not be set during creation")
    if not target.name:
        return
    name = metadata.get("name", "")
    if name and name != target.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    metadata["name"] = target.name


def _check_uid(target: Target, given: Json, old: Json) -> None:
    """Refuse to replace another object of the same name. Raises ApiError 409."""
    resource = target.resource
    if given.get("uid") and given["uid"] != old["uid"]:
        place = "/".join(
            filter(None, (resource.group, resource.plural, target.namespace, target.name))
        )
        text = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: "
            f"{old['uid']}"
        )
        raise conflict(resource.group, resource.plural, target.name, text)


def _check_version(kind: Kind, target: Target, given: Json, old: Json) -> None:
    """Compare the version that a write was made for with the stored one. Raises ApiError."""
    resource = target.resource
    version = parsed_version(given.get("resourceVersion", ""))
    if not version and not kind.unconditional_update:
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(resource.group, resource.plural, target.name, [cause])
    if version and str(version) != old["resourceVersion"]:
        raise modified(resource, target.name)


def _same(old: Json, new: Json) -> bool:
    """Say whether a write changes nothing; times in managedFields alone are no change."""
    if old == new:
        return True
    if not _equal_but_metadata(old, new):
        return False
    return _without_times(old["metadata"]) == _without_times(new["metadata"])


def _equal_but_metadata(old: Json, new: Json) -> bool:
    return {name: part for name, part in old.items() if name != "metadata"} == {
        name: part for name, part in new.items() if name != "metadata"
    }


def _without_times(metadata: Json) -> Json:
    managed = metadata.get("managedFields")
    if not managed:
        return {name: part for name, part in metadata.items() if name != "managedFields"}
    timeless = [{name: part for name, part in entry.items() if name != "time"} for entry in managed]
    return {**metadata, "managedFields": timeless}


def _check_size(object_: Json) -> None:
    if len(msgspec.json.encode(object_)) > _LARGEST_BYTES:
        raise internal("etcdserver: request is too large")
