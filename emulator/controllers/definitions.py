"""The controller of CustomResourceDefinitions: names, establishment, and the end of a whole
resource.

Establishing is not left to the background thread: it happens right after the write that asks for
it, so that whoever creates a definition can use it at once.
"""

from __future__ import annotations

from emulator.contracts import Caller, DeleteOptions, Json, ListOptions, Target
from emulator.controllers.worklist import Worklist
from emulator.deletion import Deletion
from emulator.kinds.custom import Custom
from emulator.kinds.definitions import CLEANUP, terminate
from emulator.objects import Change
from emulator.state import State
from emulator.writes import Writes

CONTROLLER = Caller("system:apiserver", ("system:masters",), user_agent="kube-apiserver/emulator")
_COLLECTION = ("apiextensions.k8s.io", "customresourcedefinitions")
_CONFLICTS = (
    ("listKind", "ListKindConflict"),
    ("kind", "KindConflict"),
    ("singular", "SingularConflict"),
)
_IN_PROGRESS = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")


class DefinitionController:
    """Controller of definitions."""

    def __init__(self, state: State, writes: Writes, deletion: Deletion) -> None:
        self._state, self._writes, self._deletion = state, writes, deletion
        self._resource = state.registry.find(*_COLLECTION[:1], "v1", _COLLECTION[1]).resource
        self.work = Worklist("definitions")

    def establish(self, name: str) -> None:
        """Accept or refuse a definition's names, say so in its status, and serve it."""
        definition = self._state.store.get(_COLLECTION, "", name)
        if definition is None:
            return
        conflict = self._conflict(definition)
        names = definition["spec"]["names"]
        status = definition.get("status") or {}
        accepted = names if conflict is None else {"plural": names["plural"], "kind": ""}
        conditions = self._conditions(status.get("conditions") or [], conflict)
        stored = list(status.get("storedVersions") or [])
        stored += [
            one["name"]
            for one in definition["spec"]["versions"]
            if one.get("storage") and one["name"] not in stored
        ]
        target = Target(self._resource, "", name, "status")

        def change(held: Json) -> None:
            held["status"] = {
                "conditions": conditions,
                "acceptedNames": dict(accepted),
                "storedVersions": stored,
            }

        self._writes.modify(CONTROLLER, target, change)
        if conflict is None:
            self._serve(name)

    def _serve(self, name: str) -> None:
        """Serve a definition as it stands, unless its end came first."""
        with self._state.store.lock:
            definition = self._state.store.get(_COLLECTION, "", name)
            if definition is not None:
                self._serve_as(definition)

    def _serve_as(self, definition: Json) -> None:
        spec = definition["spec"]
        terminating = bool(definition["metadata"].get("deletionTimestamp"))
        key = (spec["group"], spec["names"]["plural"])
        if terminating and self._state.store.collection(key) is None:
            return
        served = [version for version in spec["versions"] if version.get("served")]
        kinds = [Custom(definition, version, terminating=terminating) for version in served]
        self._state.store.open(key)
        self._state.registry.replace(*key, kinds)
        for version, kind in zip(served, kinds, strict=True):
            if version.get("storage"):
                # A new schema counts for what is stored, too: reading prunes and defaults.
                self._state.store.rewrite(key, kind.reread)

    def _conflict(self, definition: Json) -> tuple[str, str] | None:
        """Return reason and message when another definition of the group has one of the names."""
        spec = definition["spec"]
        for other in self._state.store.all(_COLLECTION):
            same = other["metadata"]["name"] == definition["metadata"]["name"]
            if same or other["spec"]["group"] != spec["group"]:
                continue
            taken = (other.get("status") or {}).get("acceptedNames") or {}
            for part, reason in _CONFLICTS:
                name = spec["names"].get(part)
                if name and name == taken.get(part):
                    return reason, f'"{name}" is already in use'
        return None

    def _conditions(self, before: list[Json], conflict: tuple[str, str] | None) -> list[Json]:
        if conflict is None:
            wanted = [
                ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                (
                    "Established",
                    "True",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                ),
            ]
        else:
            wanted = [
                ("NamesAccepted", "False", *conflict),
                ("Established", "False", "NotAccepted", "not all names are accepted"),
            ]
        known = {one["type"]: one for one in before}
        conditions = []
        for type_, status, reason, message in wanted:
            held = known.pop(type_, None)
            same = held is not None and held["status"] == status
            since = held["lastTransitionTime"] if held is not None and same else self._state.now()
            conditions.append(
                {
                    "type": type_,
                    "status": status,
                    "lastTransitionTime": since,
                    "reason": reason,
                    "message": message,
                }
            )
        return [*conditions, *known.values()]

    def refuse_new(self, name: str) -> None:
        """Refuse new instances of a definition that is being deleted, from now on."""
        self._serve(name)

    def hear(self, change: Change) -> None:
        """Note definitions that are being deleted, and instances of such that are gone."""
        if change.collection == _COLLECTION:
            if change.type != "DELETED" and CLEANUP in change.object["metadata"].get(
                "finalizers", ()
            ):
                self.work.add(change.object["metadata"]["name"])
        elif change.type == "DELETED":
            self.work.add(f"{change.collection[1]}.{change.collection[0]}")

    def look(self, name: str) -> None:
        """Delete the instances of a definition that goes, and let it go when none is left."""
        definition = self._state.store.get(_COLLECTION, "", name)
        if definition is not None and CLEANUP in definition["metadata"].get("finalizers", ()):
            self._clean(name, definition)

    def _clean(self, name: str, definition: Json) -> None:
        spec = definition["spec"]
        key = (spec["group"], spec["names"]["plural"])
        served = [one for one in self._state.registry.kinds() if one.resource.collection == key]
        if self._state.store.all(key) and served:
            status = Target(self._resource, "", name, "status")
            now = self._state.now()
            self._writes.modify(
                CONTROLLER, status, lambda held: terminate(held, now, *_IN_PROGRESS)
            )
            target = Target(served[0].resource)
            self._deletion.delete_collection(CONTROLLER, target, ListOptions(), DeleteOptions())

        def release(held: Json) -> None:
            left = [one for one in held["metadata"].get("finalizers", ()) if one != CLEANUP]
            held["metadata"]["finalizers"] = left

        with self._state.store.lock:
            if self._state.store.all(key):
                return
            self._state.registry.replace(*key, ())
            self._state.store.drop(key)
        self._writes.modify(CONTROLLER, Target(self._resource, "", name), release)
