"""The namespace controller: what every namespace starts with, and how one is emptied before it
goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from emulator.contracts import Caller, DeleteOptions, Json, ListOptions, Target, WriteOptions
from emulator.controllers.worklist import Worklist
from emulator.deletion import Deletion
from emulator.errors import ApiError, failure
from emulator.objects import Change
from emulator.state import State, collection_of
from emulator.writes import Writes

CONTROLLER = Caller(
    "system:serviceaccount:kube-system:namespace-controller",
    ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
    user_agent="kube-controller-manager/emulator",
)
_ROOT_CA_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes "
    "clusters."
)


_CALM = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}
"""Conditions of a terminating namespace, and what they say when all is well."""


class NamespaceController:
    """Controller of namespaces."""

    def __init__(self, state: State, writes: Writes, deletion: Deletion) -> None:
        self._state, self._writes, self._deletion = state, writes, deletion
        self.work = Worklist("namespaces")
        self._resource = state.registry.find("", "v1", "namespaces").resource

    def furnish(self, name: str, root_ca: str) -> None:
        """Give a new namespace its default ServiceAccount and the server's CA."""
        accounts = self._state.registry.find("", "v1", "serviceaccounts").resource
        body: Json = {"metadata": {"name": "default"}}
        self._writes.create(CONTROLLER, Target(accounts, name), body, WriteOptions())
        if root_ca:
            maps = self._state.registry.find("", "v1", "configmaps").resource
            annotations = {"kubernetes.io/description": _ROOT_CA_TEXT}
            metadata = {"name": "kube-root-ca.crt", "annotations": annotations}
            body = {"metadata": metadata, "data": {"ca.crt": root_ca}}
            self._writes.create(CONTROLLER, Target(maps, name), body, WriteOptions())

    def hear(self, change: Change) -> None:
        """Note namespaces that terminate, and what leaves them."""
        if change.collection == ("", "namespaces"):
            if change.type != "DELETED" and change.object["metadata"].get("deletionTimestamp"):
                self.work.add(change.object["metadata"]["name"])
        elif change.namespace:
            holder = self._state.store.get(("", "namespaces"), "", change.namespace)
            if holder is not None and holder["metadata"].get("deletionTimestamp"):
                self.work.add(change.namespace)

    def look(self, name: str) -> None:
        """Empty a namespace that terminates, as far as finalizers allow.

        Raises:
            ApiError: servers behind this one keep it from ending; it is looked at again.
        """
        if self._state.store.get(("", "namespaces"), "", name) is None:
            return
        elsewhere = self._state.elsewhere
        stale = elsewhere.stale() if elsewhere is not None else ()
        left = elsewhere.empty(name) if elsewhere is not None else {}
        self._empty(name, stale, left)
        if stale or left:
            raise failure(503, "ServiceUnavailable", f"not over yet: {[*stale, *left]}", {})

    def _empty(self, name: str, stale: Sequence[str], elsewhere: Mapping[str, int]) -> None:
        for kind in self._state.registry.kinds():
            if not kind.resource.namespaced or "deletecollection" not in kind.resource.verbs:
                continue
            target = Target(kind.resource, name)
            try:
                self._deletion.delete_collection(CONTROLLER, target, ListOptions(), DeleteOptions())
            except ApiError as error:
                if error.code != 404:  # its definition went meanwhile, and took all along
                    raise
        conditions = self._conditions(name, stale, elsewhere)
        target = Target(self._resource, "", name)
        if all(one["status"] == "False" for one in conditions):
            finalize = replace(target, subresource="finalize")
            self._writes.modify(CONTROLLER, finalize, _release)
        else:
            status = replace(target, subresource="status")
            self._writes.modify(CONTROLLER, status, lambda held: _report(held, conditions))

    def _conditions(
        self, name: str, stale: Sequence[str], elsewhere: Mapping[str, int]
    ) -> list[Json]:
        """Return what the status says of a namespace that is being emptied."""
        left, held = self._left(name, elsewhere)
        unknown = ", ".join(f"{one}: stale GroupVersion discovery: {one}" for one in stale)
        troubles = {
            "NamespaceDeletionDiscoveryFailure": (
                "DiscoveryFailed",
                f"Discovery failed for some groups, {len(stale)} failing: unable to retrieve the "
                f"complete list of server APIs: {unknown}"
                if unknown
                else "",
            ),
            "NamespaceContentRemaining": (
                "SomeResourcesRemain",
                f"Some resources are remaining: {left}" if left else "",
            ),
            "NamespaceFinalizersRemaining": (
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {held}" if held else "",
            ),
        }
        conditions = []
        for type_, (calm_reason, calm) in _CALM.items():
            reason, trouble = troubles.get(type_, ("", ""))
            conditions.append(
                {
                    "type": type_,
                    "status": "True" if trouble else "False",
                    "lastTransitionTime": self._state.now(),
                    "reason": reason if trouble else calm_reason,
                    "message": trouble or calm,
                }
            )
        return conditions

    def _left(self, name: str, elsewhere: Mapping[str, int]) -> tuple[str, str]:
        """Return what is left in a namespace, and which finalizers hold it, in words."""
        remaining: dict[str, int] = dict(elsewhere)
        finalizers: Counter[str] = Counter()
        # Events of both groups are one collection, and count once.
        kinds = {collection_of(one.resource): one for one in reversed(self._state.registry.kinds())}
        for key, kind in reversed(kinds.items()):
            objects = self._state.store.all(key, name) if kind.resource.namespaced else []
            if objects:
                remaining[f"{kind.resource.plural}.{kind.resource.group}"] = len(objects)
            for object_ in objects:
                finalizers.update(object_["metadata"].get("finalizers", ()))
        left = [f"{what} has {count} resource instances" for what, count in remaining.items()]
        held = [f"{what} in {count} resource instances" for what, count in finalizers.items()]
        return ", ".join(left), ", ".join(sorted(held))


def _report(namespace: Json, conditions: list[Json]) -> None:
    """Set the conditions; those that say what they said before keep their time."""
    before = {one["type"]: one for one in namespace["status"].get("conditions", ())}
    for condition in conditions:
        known = before.get(condition["type"])
        if known is not None and known["message"] == condition["message"]:
            condition["lastTransitionTime"] = known["lastTransitionTime"]
    namespace["status"]["conditions"] = conditions


def _release(namespace: Json) -> None:
    namespace["spec"].pop("finalizers", None)
