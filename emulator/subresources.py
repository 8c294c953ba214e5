"""Subresources with a shape of their own: scale, Pod binding, namespace finalize is an ordinary
update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.contracts import Caller, Json, Outcome, Patch, Target, WriteOptions
from emulator.errors import not_found
from emulator.kinds.custom import Custom
from emulator.kinds.kind import Kind
from emulator.kinds.pods import bound
from emulator.reads import parsed_version
from emulator.state import State
from emulator.writes import Writes

_BUILTIN_SCALE: Mapping[str, tuple[str, ...]] = {
    "specReplicasPath": ("spec", "replicas"),
    "statusReplicasPath": ("status", "replicas"),
}
_SCALED = frozenset(("deployments", "replicasets", "statefulsets"))


class Scales:
    """The scale subresource: an object's replicas in the shape of autoscaling/v1."""

    def __init__(self, state: State, writes: Writes) -> None:
        self._state = state
        self._writes = writes

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

        return Outcome(_scale(kind, self._writes.modify(caller, target, change, options)))

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


def bind_pod(state: State, writes: Writes, caller: Caller, target: Target, body: Json) -> Outcome:
    """Bind a Pod to the node that a Binding names. Raises ApiError 404, 409."""
    node = body.get("target", {}).get("name", "")
    annotations = body.get("metadata", {}).get("annotations", {})
    now = state.now()

    def change(pod: Json) -> None:
        after = bound(pod, node, annotations, now)
        pod.clear()
        pod.update(after)

    # Binding writes spec.nodeName, which no ordinary update may: it goes by a subresource of its own.
    target = Target(target.resource, target.namespace, target.name, "binding")
    writes.modify(caller, target, change)
    return Outcome(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
        201,
    )
