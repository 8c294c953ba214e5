"""Subresources with a shape of their own: scale, Pod binding, namespace finalize is an ordinary
update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emulator.contracts import Caller, Json, Outcome, Patch, Target, WriteOptions
from emulator.decoding import read_delete_options
from emulator.deletion import Deletion, check_preconditions
from emulator.errors import not_allowed, not_emulated, not_found
from emulator.kinds import unserved
from emulator.kinds.custom import Custom
from emulator.kinds.kind import Kind
from emulator.kinds.pods import bound
from emulator.reads import parsed_version
from emulator.state import State
from emulator.stations import Stations, Write
from emulator.writes import Writes

_BUILTIN_SCALE: Mapping[str, tuple[str, ...]] = {
    "specReplicasPath": ("spec", "replicas"),
    "statusReplicasPath": ("status", "replicas"),
}
_SCALED = frozenset(("deployments", "replicasets", "statefulsets"))
_POSTED = frozenset((("pods", "binding"), ("pods", "eviction")))


def check_verb(state: State, target: Target, verb: str) -> None:
    """Refuse subresources that are not there, and verbs they do not have.

    Raises:
        ApiError: 404; 405; 501 for what a real server has and this one has not.
    """
    if not target.subresource:
        return
    resource, verbs = target.resource, _verbs(state, target)
    if verb in verbs:
        return
    if verbs:
        raise not_allowed(resource, verb)
    if (resource.plural, target.subresource) in unserved.SUBRESOURCES:
        raise not_emulated(f"{resource.plural}/{target.subresource}")
    if resource.custom:
        raise not_found(resource, target.name)
    raise state.registry.missing(resource.group, resource.version)


def _verbs(state: State, target: Target) -> tuple[str, ...]:
    """Return the verbs of a subresource; none when it is not there."""
    resource, subresource = target.resource, target.subresource
    posted = (resource.plural, subresource) in _POSTED
    if posted or (resource.group, resource.plural, subresource) in state.virtuals:
        return ("create",)
    if subresource == "scale" and scale_paths(state.kind(resource)):
        return ("get", "update", "patch")
    if subresource not in resource.subresources:
        return ()
    return ("update",) if subresource == "finalize" else ("get", "update", "patch")


class Scales:
    """The scale subresource: an object's replicas in the shape of autoscaling/v1."""

    def __init__(self, state: State, writes: Writes) -> None:
        self._state = state
        self._writes = writes

    def serves(self, target: Target) -> bool:
        """Say whether a target is the scale of an object that has one."""
        return target.subresource == "scale" and bool(
            scale_paths(self._state.kind(target.resource))
        )

    def get(self, target: Target) -> Json:
        """Return the scale of an object. Raises ApiError 404."""
        kind = self._state.kind(target.resource)
        return _scale(kind, kind.convert(self._state.stored(target)))

    def update(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Set an object's replicas from a Scale. Raises ApiError."""
        kind = self._state.kind(target.resource)
        path = scale_paths(kind)["specReplicasPath"]

        def change(object_: Json) -> None:
            version = body.get("metadata", {}).get("resourceVersion", "")
            if parsed_version(version):
                object_["metadata"]["resourceVersion"] = version
            holder = object_
            for part in path[:-1]:
                holder = holder.setdefault(part, {})
            holder[path[-1]] = body.get("spec", {}).get("replicas", 0)

        def shown(object_: Json) -> Json:
            return _scale(kind, object_)

        after = self._writes.modify(caller, target, change, options, shown=shown)
        return Outcome(_scale(kind, after))

    def patch(self, caller: Caller, target: Target, patch: Patch, options: WriteOptions) -> Outcome:
        """Patch the scale of an object. Raises ApiError."""
        patcher = self._state.steps.patcher
        scale = self.get(target)
        if patcher is None:
            raise not_found(target.resource, target.name)
        patched = patcher.patch(target, patch, scale, {"type": "object"})
        if "resourceVersion" not in str(patch.body):
            patched = {**patched, "metadata": {**patched["metadata"], "resourceVersion": ""}}
        return self.update(caller, target, patched, options)


def scale_paths(kind: Kind) -> Mapping[str, tuple[str, ...]]:
    """Return where a kind keeps its replicas; empty when it has no scale."""
    if isinstance(kind, Custom):
        return kind.scale_paths
    return _BUILTIN_SCALE if kind.resource.plural in _SCALED else {}


def _at(object_: Any, path: tuple[str, ...] | None) -> Any:
    for part in path or ("",):
        object_ = object_.get(part) if isinstance(object_, dict) else None
    return object_


def _scale(kind: Kind, object_: Json) -> Json:
    paths, metadata = scale_paths(kind), object_["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _at(object_, paths.get("statusReplicasPath")) or 0}
    selector = _at(object_, paths.get("labelSelectorPath"))
    if selector:
        status["selector"] = selector
    replicas = _at(object_, paths.get("specReplicasPath"))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


class PodPosts:
    """What is POSTed to a Pod: a binding to a node, or an eviction from it."""

    def __init__(self, state: State, writes: Writes, deletion: Deletion) -> None:
        self._state, self._writes, self._deletion = state, writes, deletion

    def bind(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Bind a Pod to the node that a Binding names. Raises ApiError 404, 409."""
        node = body.get("target", {}).get("name", "")
        annotations = body.get("metadata", {}).get("annotations", {})
        binding = {"kind": "Binding", "apiVersion": "v1", **body}
        self._judge(caller, target, binding, options, tracked=True)
        now = self._state.now()

        def change(pod: Json) -> None:
            after = bound(pod, node, annotations, now)
            pod.clear()
            pod.update(after)

        # Binding writes spec.nodeName, which no ordinary update of a Pod may.
        self._writes.modify(caller, target, change, options, silent=True)
        return _created()

    def evict(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """Delete a Pod and say in its status why; disruption budgets are not looked at."""
        eviction = {"kind": "Eviction", "apiVersion": "policy/v1", **body}
        deleting = read_delete_options(body.get("deleteOptions") or {})
        deleting = replace(deleting, dry_run=deleting.dry_run or options.dry_run)
        options = replace(options, dry_run=deleting.dry_run)
        before = self._state.stored(target)
        check_preconditions(self._state.kind(target.resource), deleting, before["metadata"])
        self._judge(caller, target, eviction, options, tracked=False)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._state.now(),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        status = replace(target, subresource="status")

        def change(pod: Json) -> None:
            pod["status"].setdefault("conditions", []).append(condition)

        self._writes.modify(caller, status, change, options, silent=True)
        self._deletion.delete(caller, replace(target, subresource=""), deleting, judged=False)
        return _created()

    def _judge(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions, *, tracked: bool
    ) -> None:
        """Let admission see what is POSTed, as a create of its own kind."""
        self._state.stored(target)
        write = Write(caller, target, self._state.kind(target.resource), options, [])
        metadata = {**body.get("metadata", {}), "name": target.name, "namespace": target.namespace}
        object_ = {**body, "metadata": metadata}
        patcher, admission = self._state.steps.patcher, self._state.steps.admission
        stations = Stations(self._state)
        if patcher is not None and tracked:
            patcher.track(target, None, object_, stations.field_write(write))
        if admission is not None:
            attributes = stations.attributes(write, None, object_)
            admission.mutate(attributes, write.warnings.append)
            admission.validate(attributes, write.warnings.append)


def _created() -> Outcome:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return Outcome(status, 201)
