"""The garbage collector: dependents follow their owners, in the background, in the foreground, or
not at all.

It keeps a graph of who names whom as owner, by uid, and looks again at every object that a
change could concern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.contracts import Caller, DeleteOptions, Json, Target, WriteOptions
from emulator.controllers.worklist import Worklist
from emulator.deletion import FOREGROUND, ORPHAN, Deletion
from emulator.kinds.kind import Kind
from emulator.objects import Change
from emulator.state import State, collection_of
from emulator.writes import Writes

COLLECTOR = Caller(
    "system:serviceaccount:kube-system:generic-garbage-collector",
    ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
    user_agent="kube-controller-manager/emulator",
)

Place = tuple[tuple[str, str], str, str]  # collection, namespace, name


@dataclass(frozen=True, slots=True)
class _Owners:
    """An object's owners, sorted: there and staying, gone, or waiting for this object to go."""

    solid: int
    dangling: tuple[str, ...]
    waiting: int
    elsewhere: tuple[Json, ...] = ()  # owners that exist in another namespace, which cannot be


class GarbageCollector:
    """Controller of owner references."""

    def __init__(self, state: State, writes: Writes, deletion: Deletion) -> None:
        self._state, self._writes, self._deletion = state, writes, deletion
        self._places: dict[str, Place] = {}  # uid -> where it is
        self._dependents: dict[str, set[str]] = {}  # owner's uid -> uids
        self.work = Worklist("garbage")  # uids

    def hear(self, change: Change) -> None:
        """Keep the graph, and note whom the change concerns."""
        metadata = change.object["metadata"]
        uid: str = metadata["uid"]
        before = change.previous["metadata"].get("ownerReferences", ()) if change.previous else ()
        for reference in before:
            self._dependents.get(reference["uid"], set()).discard(uid)
        if change.type == "DELETED":
            self._places.pop(uid, None)
            self.work.extend(sorted(self._dependents.get(uid, ())))
            # An owner that waits for its dependents has one less.
            self.work.extend(reference["uid"] for reference in before)
            return
        self._places[uid] = (change.collection, metadata.get("namespace", ""), metadata["name"])
        owners = metadata.get("ownerReferences", ())
        for reference in owners:
            self._dependents.setdefault(reference["uid"], set()).add(uid)
        if owners or metadata.get("deletionTimestamp"):
            self.work.add(uid)
        if metadata.get("deletionTimestamp") and FOREGROUND in metadata.get("finalizers", ()):
            self.work.extend(sorted(self._dependents.get(uid, ())))

    def look(self, uid: str) -> None:
        """Judge one object by its owners, or by its dependents when it is being deleted."""
        found = self._object(uid)
        if found is not None:
            self._judge(*found)

    def _object(self, uid: str) -> tuple[Target, Json] | None:
        place = self._places.get(uid)
        if place is None:
            return None
        (group, plural), namespace, name = place
        object_ = self._state.store.get((group, plural), namespace, name)
        kind = self._kind_of(object_["apiVersion"], object_["kind"]) if object_ else None
        if object_ is None or kind is None or object_["metadata"]["uid"] != uid:
            return None
        return Target(kind.resource, namespace, name), object_

    def _kind_of(self, api_version: str, kind: str) -> Kind | None:
        return self._state.registry.find_kind(api_version, kind)

    def _judge(self, target: Target, object_: Json) -> None:
        metadata = object_["metadata"]
        if metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers", ())
            if ORPHAN in finalizers:
                self._orphan(target, metadata)
            elif FOREGROUND in finalizers and not self._blocked(metadata["uid"]):
                self._drop_finalizer(target, FOREGROUND)
            return
        references = metadata.get("ownerReferences", [])
        if references:
            self._follow(target, object_, self._sort(metadata.get("namespace", ""), references))

    def _sort(self, namespace: str, references: list[Json]) -> _Owners:
        solid = waiting = 0
        dangling: list[str] = []
        elsewhere: list[Json] = []
        for reference in references:
            kind = self._kind_of(reference["apiVersion"], reference["kind"])
            if kind is None:
                solid += 1  # of an unknown kind nobody can say that it is gone
                continue
            place = namespace if kind.resource.namespaced else ""
            owner = self._state.store.get(collection_of(kind.resource), place, reference["name"])
            if owner is None or owner["metadata"]["uid"] != reference["uid"]:
                dangling.append(reference["uid"])
                if reference["uid"] in self._places:
                    elsewhere.append(reference)
                continue
            owner_metadata = owner["metadata"]
            dying = owner_metadata.get("deletionTimestamp")
            if dying and FOREGROUND in owner_metadata.get("finalizers", ()):
                waiting += 1
            else:
                solid += 1
        return _Owners(solid, tuple(dangling), waiting, tuple(elsewhere))

    def _follow(self, target: Target, object_: Json, owners: _Owners) -> None:
        if not owners.dangling and not owners.waiting:
            return
        if owners.solid:
            gone = set(owners.dangling)

            def drop(held: Json) -> None:
                _keep_owners(held, lambda reference: reference["uid"] not in gone)

            if gone:
                self._writes.modify(COLLECTOR, target, drop)
            return
        for reference in owners.elsewhere:
            self._report(target, object_, reference)
        has_dependents = bool(self._dependents.get(object_["metadata"]["uid"]))
        finalizers = object_["metadata"].get("finalizers", ())
        policy = "Foreground" if owners.waiting and has_dependents else "Background"
        if not owners.waiting and (ORPHAN in finalizers or FOREGROUND in finalizers):
            policy = "Orphan" if ORPHAN in finalizers else "Foreground"
        self._delete(target, object_["metadata"]["uid"], policy)

    def _delete(self, target: Target, uid: str, policy: str) -> None:
        wire: Json = {"preconditions": {"uid": uid}, "propagationPolicy": policy}
        options = DeleteOptions(uid=uid, propagation_policy=policy, wire=wire)
        self._deletion.delete(COLLECTOR, target, options)

    def _blocked(self, uid: str) -> bool:
        """Say whether a dependent that blocks its owner's deletion is still there."""
        for dependent in self._dependents.get(uid, ()):
            found = self._object(dependent)
            references = found[1]["metadata"].get("ownerReferences", ()) if found else ()
            if any(one["uid"] == uid and one.get("blockOwnerDeletion") for one in references):
                return True
        return False

    def _orphan(self, target: Target, metadata: Json) -> None:
        uid = metadata["uid"]
        for dependent in sorted(self._dependents.get(uid, ())):
            found = self._object(dependent)
            if found is not None:

                def release(held: Json) -> None:
                    _keep_owners(held, lambda reference: reference["uid"] != uid)

                self._writes.modify(COLLECTOR, found[0], release)
        self._drop_finalizer(target, ORPHAN)

    def _drop_finalizer(self, target: Target, finalizer: str) -> None:
        def drop(held: Json) -> None:
            left = [one for one in held["metadata"].get("finalizers", ()) if one != finalizer]
            if left:
                held["metadata"]["finalizers"] = left
            else:
                held["metadata"].pop("finalizers", None)

        self._writes.modify(COLLECTOR, target, drop)

    def _report(self, target: Target, object_: Json, reference: Json) -> None:
        """Write the event that tells why an object goes whose owner can be seen, elsewhere."""
        metadata, now = object_["metadata"], self._state.now()
        events = self._state.registry.find("", "v1", "events").resource
        owner = (
            f"[{reference['apiVersion']}/{reference['kind']}, namespace: {target.namespace}, "
            f"name: {reference['name']}, uid: {reference['uid']}]"
        )
        body: Json = {
            "metadata": {
                "name": f"{metadata['name']}.{self._state.suffix(metadata['name'])}",
                "namespace": target.namespace,
            },
            "involvedObject": {
                "kind": object_["kind"],
                "namespace": target.namespace,
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": object_["apiVersion"],
            },
            "reason": "OwnerRefInvalidNamespace",
            "message": f'ownerRef {owner} does not exist in namespace "{target.namespace}"',
            "source": {"component": "garbage-collector-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "reportingComponent": "garbage-collector-controller",
        }
        self._writes.create(COLLECTOR, Target(events, target.namespace), body, WriteOptions())


def _keep_owners(object_: Json, keep: Callable[[Json], bool]) -> None:
    left = [
        reference for reference in object_["metadata"].get("ownerReferences", ()) if keep(reference)
    ]
    if left:
        object_["metadata"]["ownerReferences"] = left
    else:
        object_["metadata"].pop("ownerReferences", None)
