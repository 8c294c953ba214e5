"""delete and deletecollection: preconditions, finalizers by propagation policy, grace periods, and
the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from emulator.contracts import (
    Attributes,
    Caller,
    DeleteOptions,
    Json,
    ListOptions,
    ListResult,
    Outcome,
    Target,
    copied,
)
from emulator.errors import ApiError, conflict, details_of, invalid, not_supported
from emulator.kinds.kind import Kind
from emulator.reads import Reads
from emulator.state import State, collection_of

Review = Callable[[Json], None]
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Deletion:
    """The verbs that end objects."""

    def __init__(self, state: State, reads: Reads) -> None:
        self._state = state
        self._reads = reads

    def delete(
        self, caller: Caller, target: Target, options: DeleteOptions, *, judged: bool = True
    ) -> Outcome:
        """Delete one object: a Status when it is gone, the object when something still holds it.

        `judged` says whether admission hears of it; an eviction was judged as what it is.
        """
        _check_policy(options)
        review = self._review(caller, target, options) if judged else _unheard
        return Outcome(self._ended(target, options, review))

    def delete_collection(
        self, caller: Caller, target: Target, chosen: ListOptions, options: DeleteOptions
    ) -> ListResult:
        """Delete one by one what a selection matches; return it as it was before."""
        _check_policy(options)
        found = self._reads.list(target, chosen)
        for object_ in found.items:
            metadata = object_["metadata"]
            one = replace(target, name=metadata["name"], namespace=metadata.get("namespace", ""))
            # Admission hears of each object, without its name, as the real server does it.
            review = self._review(caller, replace(one, name=""), options)
            try:
                self._ended(one, options, review)
            except ApiError as error:
                if error.code != 404:  # somebody else was faster, which is as good
                    raise
        return found

    def _ended(self, target: Target, options: DeleteOptions, review: Review) -> Json:
        kind = self._state.kind(target.resource)

        def attempt() -> Json | None:
            stored = self._state.stored(target)
            object_ = kind.convert(stored)
            check_preconditions(kind, options, object_["metadata"])
            review(object_)
            return self._step(kind, options, stored, review)

        return self._state.retrying(attempt)

    def _review(self, caller: Caller, target: Target, options: DeleteOptions) -> Review:
        """Return the question to admission about the deletion of an object."""
        admission = self._state.steps.admission
        if admission is None:
            return _unheard
        wire = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **options.wire}

        def review(old: Json) -> None:
            attributes = Attributes(caller, "DELETE", target, None, old, wire, options.dry_run)
            admission.validate(attributes, lambda _: None)

        return review

    def _step(
        self, kind: Kind, options: DeleteOptions, stored: Json, review: Review
    ) -> Json | None:
        """Mark or remove a stored object; None when another write came first."""
        store, key = self._state.store, collection_of(kind.resource)
        marked = copied(stored)
        self._mark(kind, options, marked)
        held = kind.die(marked, self._state.now())
        if options.dry_run:
            return (
                kind.convert(marked) if held or not kind.released(marked) else _answer(kind, stored)
            )
        if not held and kind.released(marked):
            return self._removed(kind, stored, marked, review)
        if marked == stored:
            return kind.convert(stored)
        put = store.put(key, marked, stored)
        return None if put is None else kind.convert(put)

    def _removed(self, kind: Kind, stored: Json, marked: Json, review: Review) -> Json | None:
        store, key = self._state.store, collection_of(kind.resource)
        if kind.resource.kind == "Pod":
            # A Pod is seen to die before it is gone, and its end is judged once more.
            put = store.put(key, marked, stored)
            if put is None:
                return None
            stored = put
            review(stored)
        gone = store.remove(key, stored)
        if gone is None and kind.resource.kind == "Pod":
            metadata = stored["metadata"]
            if store.get(key, metadata["namespace"], metadata["name"]) is None:
                gone = stored  # its kubelet saw it die and was faster
        return None if gone is None else _answer(kind, gone)

    def _mark(self, kind: Kind, options: DeleteOptions, object_: Json) -> None:
        """Mark a private copy as being deleted; a second delete can only shorten the grace."""
        metadata = object_["metadata"]
        _set_finalizers(metadata, options.propagation_policy)
        grace = kind.grace_seconds(object_, options.grace_period_seconds)
        if metadata.get("deletionTimestamp"):
            left = metadata.get("deletionGracePeriodSeconds")
            if options.grace_period_seconds is None or left is None or grace >= left:
                return
        elif kind.marks_grace and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = self._state.later(grace)
        if kind.marks_grace:
            metadata["deletionGracePeriodSeconds"] = grace


def _unheard(_: Json) -> None:
    """Ask nobody."""


def _set_finalizers(metadata: Json, policy: str) -> None:
    if not policy:
        return
    finalizers = [one for one in metadata.get("finalizers", []) if one not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        finalizers.append(FOREGROUND)
    elif policy == "Orphan":
        finalizers.append(ORPHAN)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _answer(kind: Kind, gone: Json) -> Json:
    if kind.returns_deleted:
        return kind.convert(gone)
    metadata, resource = gone["metadata"], kind.resource
    details = details_of(resource.group, resource.plural, metadata["name"]) | {
        "uid": metadata["uid"]
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def _check_policy(options: DeleteOptions) -> None:
    policies = ("Foreground", "Background", "Orphan", "nil")
    if options.propagation_policy and options.propagation_policy not in policies:
        cause = not_supported("propagationPolicy", options.propagation_policy, policies)
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])


def check_preconditions(kind: Kind, options: DeleteOptions, metadata: Json) -> None:
    group, name = kind.resource.group, metadata["name"]
    if options.uid and options.uid != metadata["uid"]:
        text = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(group, kind.resource.kind, name, text)
    version = metadata["resourceVersion"]
    if options.resource_version and options.resource_version != version:
        text = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not "
            f"match the "
            f"ResourceVersion in record ({version}). The object might have been modified"
        )
        raise conflict(group, kind.resource.kind, name, text)
