"""create, update and patch: one way for every write, through the stations that `api` lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from emulator.contracts import (
    Attributes,
    Caller,
    FieldWrite,
    Json,
    Outcome,
    Patch,
    Target,
    WriteOptions,
    copied,
)  # fmt: skip
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
)  # fmt: skip
from emulator.kinds.kind import Kind
from emulator.reads import parsed_version
from emulator.state import State, collection_of

APPLY = "application/apply-patch+yaml"
_LARGEST_BYTES = 1_572_864
_NAME_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Write:
    """One write on its way: who, where, with which options, and the warnings it has collected."""

    caller: Caller
    target: Target
    kind: Kind
    options: WriteOptions
    warnings: list[str]
    operation: str = "CREATE"
    applied: bool = False  # managedFields are done already


class Writes:
    """The writing verbs but delete."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Create an object. Raises ApiError."""
        write = Write(caller, target, self._state.kind(target.resource), options, [])
        object_, complaints = write.kind.decode(body)
        self._complain(write, [*options.complaints, *complaints])
        _place(target, object_)
        return self._creation(write, object_)

    def update(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Replace an object or its status. Raises ApiError."""
        kind = self._state.kind(target.resource)
        write = Write(caller, target, kind, options, [], "UPDATE")
        object_, complaints = kind.decode(body)
        _place(target, object_)
        self._complain(write, [*options.complaints, *complaints])

        def attempt() -> Json | None:
            stored = self._state.stored(target)
            return self._updated(write, stored, copied(object_))

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
            return self._applied_creation(replace(write, operation="CREATE"), patch)

        def attempt() -> Json | None:
            write.warnings.clear()
            stored = state.stored(target)
            # Copied, because a patcher may share with the stored object what it did not touch.
            patched, complaints = kind.decode(
                copied(self._patched(write, patch, kind.convert(stored)))
            )
            _place(target, patched)
            self._complain(write, complaints)
            return self._updated(write, stored, patched)

        return Outcome(state.retrying(attempt), warnings=tuple(write.warnings))

    def modify(
        self,
        caller: Caller,
        target: Target,
        change: Callable[[Json], None],
        options: WriteOptions | None = None,
    ) -> Json:
        """Change a stored object by a function, as the server's own controllers do. Raises
        ApiError.
        """
        write = Write(
            caller,
            target,
            self._state.kind(target.resource),
            options or WriteOptions(),
            [],
            "UPDATE",
        )

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
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(target.resource.group, target.resource.plural, target.name, text)
        object_, complaints = write.kind.decode(self._patched(write, patch, None))
        self._complain(write, complaints)
        _place(target, object_)
        return self._creation(write, object_)

    def _creation(self, write: Write, object_: Json) -> Outcome:
        metadata = object_["metadata"]
        prefix = "" if metadata.get("name") else metadata.get("generateName", "")
        for attempt in range(_NAME_ATTEMPTS):
            draft = copied(object_) if prefix else object_
            if prefix:
                draft["metadata"]["name"] = prefix + self._state.suffix()
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
        metadata.update(uid=state.uid(), creationTimestamp=state.now())
        kind.fill(object_)
        self._check_namespace(write, metadata.get("name", ""))
        kind.admit(object_, write.caller, state.lookup)
        kind.begin(object_)
        object_ = self._track_and_mutate(write, None, object_)
        self._check(write, None, object_)
        self._validate(write, None, object_)
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
            sentence = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            raise forbidden(target.resource, name, sentence, [cause])

    # update

    def _updated(self, write: Write, stored: Json, object_: Json) -> Json | None:
        """Take a private, decoded object all the way; None when another write came first."""
        kind, target = write.kind, write.target
        old = kind.convert(stored)
        kind.fill(object_)
        _check_preconditions(kind, target, object_["metadata"], old["metadata"])
        _carry_metadata(object_["metadata"], old["metadata"])
        kind.carry(object_, old, target.subresource)
        if kind.bumps_generation(object_, old):
            object_["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        object_ = self._track_and_mutate(write, old, object_)
        self._check(write, old, object_)
        self._validate(write, old, object_)
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

    # stations

    def _patched(self, write: Write, patch: Patch, current: Json | None) -> Json:
        patcher = self._state.steps.patcher
        if patcher is None:
            raise internal("this server was built without a Patcher, so PATCH is not emulated")
        if write.applied:
            return patcher.apply(write.target, patch, current, self._field_write(write))
        if current is None:
            raise not_found(write.target.resource, write.target.name)
        return patcher.patch(write.target, patch, current, write.kind.schema)

    def _field_write(self, write: Write) -> FieldWrite:
        return FieldWrite(
            manager=write.options.field_manager or write.caller.manager,
            operation="Apply" if write.applied else "Update",
            time=self._state.now(),
            subresource=write.target.subresource,
            force=write.options.force,
            schema=write.kind.schema,
        )

    def _track_and_mutate(self, write: Write, old: Json | None, object_: Json) -> Json:
        patcher, admission = self._state.steps.patcher, self._state.steps.admission
        if patcher is not None and not write.applied:
            patcher.track(write.target, old, object_, self._field_write(write))
        if admission is None:
            return object_
        mutated = admission.mutate(self.attributes(write, old, object_), write.warnings.append)
        if mutated is None:
            return object_
        object_, _ = write.kind.decode(mutated)
        write.kind.fill(object_)
        if old is not None:
            _carry_metadata(object_["metadata"], old["metadata"])
            write.kind.carry(object_, old, write.target.subresource)
        return object_

    def _check(self, write: Write, old: Json | None, object_: Json) -> None:
        faults = write.kind.faults(object_, old, write.target.subresource)
        write.warnings.extend(write.kind.warnings(object_))
        if faults:
            resource, name = write.target.resource, object_["metadata"].get("name", "")
            raise invalid(_group_in_messages(resource.group), resource.kind, name, faults)

    def _validate(self, write: Write, old: Json | None, object_: Json) -> None:
        admission = self._state.steps.admission
        if admission is not None:
            admission.validate(self.attributes(write, old, object_), write.warnings.append)

    def attributes(self, write: Write, old: Json | None, object_: Json | None) -> Attributes:
        """Return what admission judges of a write."""
        name = (object_ or old or {"metadata": {}})["metadata"].get("name", "")
        kind = "CreateOptions" if write.operation == "CREATE" else "UpdateOptions"
        return Attributes(
            caller=write.caller,
            operation=write.operation,
            target=replace(write.target, name=name),
            object=object_,
            old_object=old,
            options=write.options.to_wire(kind),
            dry_run=write.options.dry_run,
        )

    def _complain(self, write: Write, complaints: list[str]) -> None:
        if not complaints or write.options.field_validation == "Ignore":
            return
        if write.options.field_validation == "Strict":
            kind, version = write.target.resource.kind, write.target.resource.version
            text = f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: '
            raise bad_request(text + ", ".join(complaints))
        write.warnings.extend(complaints)


def _group_in_messages(group: str) -> str:
    # Events of the newer group are validated as core objects and called so.
    return "" if group == "events.k8s.io" else group


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
    if not target.name:
        return
    name = metadata.get("name", "")
    if name and name != target.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    metadata["name"] = target.name


def _check_preconditions(kind: Kind, target: Target, given: Json, old: Json) -> None:
    """Compare uid and resourceVersion. Raises ApiError 409, 422, 500."""
    resource = target.resource
    if given.get("uid") and given["uid"] != old["uid"]:
        place = "/".join(
            filter(None, (resource.group, resource.plural, target.namespace, target.name))
        )
        text = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {old['uid']}"
        )
        raise conflict(resource.group, resource.plural, target.name, text)
    version = parsed_version(given.get("resourceVersion", ""))
    if not version and not kind.unconditional_update:
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(resource.group, resource.plural, target.name, [cause])
    if version and str(version) != old["resourceVersion"]:
        raise modified(resource, target.name)


def _carry_metadata(metadata: Json, old: Json) -> None:
    """Keep in an update what only the server writes."""
    for part in ("uid", "creationTimestamp"):
        metadata.setdefault(part, old[part])
    for part in ("generation", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"):
        if part in old:
            metadata[part] = old[part]
        else:
            metadata.pop(part, None)
    metadata.pop("selfLink", None)


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
