"""The one `contracts.Patcher`: applies patches and keeps metadata.managedFields.

Plain writes move ownership of what they changed to their manager (`track`); server-side apply
merges a document into the object, takes out what its manager no longer says, and refuses to take
fields from others unless forced (`apply`).
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

from emulator.contracts import FieldWrite, Json, Patch, Resource, Target
from emulator.errors import bad_request, failure
from emulator.patches import builtin, managed, typed
from emulator.patches.documents import json_patch, merge_patch
from emulator.patches.fields import FieldSet
from emulator.patches.managed import APPLY, UPDATE, Entry, Managed
from emulator.patches.shapes import Shape, root_shape
from emulator.patches.strategic import strategic_merge_patch
from emulator.patches.typed import Comparison

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_BEFORE_FIRST_APPLY = "before-first-apply"

_SERVER_OWNED = FieldSet.from_wire({
    "f:apiVersion": {}, "f:kind": {},
    "f:metadata": {
        ".": {}, "f:creationTimestamp": {}, "f:generation": {}, "f:managedFields": {}, "f:name": {},
        "f:namespace": {}, "f:resourceVersion": {}, "f:selfLink": {}, "f:uid": {},
    },
})  # fmt: skip
"""What nobody owns: the server sets it, or the request's address does."""


class FieldPatcher:
    """Patches and field ownership. Thread-safe: it remembers only the shapes of schemas it has
    seen.
    """

    def __init__(self) -> None:
        """Start knowing no schema."""
        # Keyed by identity, and holding the schema so that its identity stays taken.
        self._shapes: dict[int, tuple[Json, Shape]] = {}

    def patch(self, target: Target, patch: Patch, current: Json, schema: Json | None) -> Json:
        """Return a new object: `current` with a JSON, merge or strategic merge patch applied.

        Raises:
            ApiError: 400 for a malformed patch, 415 for a type the resource does not take, 422 for
                a JSON patch that does not fit.
        """
        if patch.type == JSON_PATCH:
            return json_patch(current, patch.body)
        if patch.type == MERGE_PATCH:
            return merge_patch(current, patch.body)
        if patch.type == STRATEGIC_PATCH and not target.resource.custom:
            return strategic_merge_patch(current, patch.body)
        accepted = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
        if target.resource.custom:
            accepted.remove(STRATEGIC_PATCH)
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
        )
        raise failure(415, "UnsupportedMediaType", message + ", ".join(accepted))

    def apply(self, target: Target, patch: Patch, current: Json | None, write: FieldWrite) -> Json:
        """Return the result of a server-side apply, managedFields included.

        Raises:
            ApiError: 400 for a body that is no object of this version or carries managedFields, 409
                with every field that another manager owns, 500 for fields the schema does not
                declare.
        """
        shape = self._shape(target.resource, write.schema)
        config = _config(target.resource, patch.body, shape)
        live = _empty(target.resource) if current is None else _unmanaged(current)
        held = self._held_before_apply(target, current, live, write)
        version = target.resource.api_version
        everything = typed.owned(config, shape)
        said = _writable(target, everything)
        writer = managed.owner(write.manager, APPLY, version, write.subresource)
        last = held.get(writer)
        held[writer] = Entry(said, version, last.time if last else write.time)
        merged: Json = typed.merge(live, config, shape)
        if last is not None:
            merged = typed.prune(merged, shape, last.owned, everything.union(_all_owned(held)))
        held = self._resolve(target, live, merged, held, write)
        changed = merged != live or last is None or last.owned != said
        if changed and writer in held:
            held[writer] = replace(held[writer], time=write.time)
        _refresh_last_applied(merged, config, write.manager)
        merged["metadata"]["managedFields"] = managed.write(held)
        return merged

    def track(self, target: Target, current: Json | None, updated: Json, write: FieldWrite) -> None:
        """Bring `updated`'s managedFields up to date after a create, update or non-apply patch, in
        place.
        """
        metadata = updated.setdefault("metadata", {})
        sent = metadata.pop("managedFields", None)
        held = _starting_point(current, sent, write.subresource)
        if held is None:
            return
        live = _empty(target.resource) if current is None else _unmanaged(current)
        change = self._change(target, live, updated, self._shape(target.resource, write.schema))
        held = managed.disown(held, None, change)
        gained = change.added.union(change.modified)
        if gained:
            version = target.resource.api_version
            writer = managed.owner(write.manager, UPDATE, version, write.subresource)
            before = held[writer].owned if writer in held else FieldSet()
            held[writer] = Entry(before.union(gained), version, write.time)
        if held:
            metadata["managedFields"] = managed.write(managed.capped(held))

    def _held_before_apply(
        self, target: Target, current: Json | None, live: Json, write: FieldWrite
    ) -> Managed:
        """Return who owns what; an object that nobody owns gets an owner for all it holds."""
        held = managed.read(((current or {}).get("metadata") or {}).get("managedFields"))
        if current is None or held:
            return held
        before = self._change(
            target, _empty(target.resource), live, self._shape(target.resource, write.schema)
        )
        version = target.resource.api_version
        owner = managed.owner(_BEFORE_FIRST_APPLY, UPDATE, version, "")
        return {owner: Entry(before.added.union(before.modified), version, write.time)}

    def _resolve(
        self, target: Target, live: Json, merged: Json, held: Managed, write: FieldWrite
    ) -> Managed:
        """Take what an apply changed from its other owners. Raises ApiError 409 unless it may."""
        change = self._change(target, live, merged, self._shape(target.resource, write.schema))
        writer = managed.owner(write.manager, APPLY, target.resource.api_version, write.subresource)
        found = managed.conflicts(held, writer, change)
        if found and not write.force:
            allowed = self._left_by_client_side_apply(target, live, write)
            refused = {who: fields.difference(allowed) for who, fields in found.items()}
            refused = {who: fields for who, fields in refused.items() if fields}
            if refused:
                raise managed.conflict_error(refused)
        return managed.disown(held, writer, change)

    def _left_by_client_side_apply(self, target: Target, live: Json, write: FieldWrite) -> FieldSet:
        """Return what kubectl may take over without force: what its own client-side apply wrote.

        That is every field of the last applied configuration which the object still has as applied.
        """
        annotations = (live.get("metadata") or {}).get("annotations") or {}
        if write.manager != _KUBECTL or _LAST_APPLIED not in annotations:
            return FieldSet()
        try:
            applied = json.loads(annotations[_LAST_APPLIED])
        except ValueError:
            return FieldSet()
        if not isinstance(applied, dict) or applied.get("apiVersion") != live.get("apiVersion"):
            return FieldSet()
        shape = self._shape(target.resource, write.schema)
        change = self._change(target, applied, live, shape)
        moved = change.added.union(change.modified).union(change.removed)
        return typed.owned(applied, shape).difference(moved)

    def _change(self, target: Target, before: Json, after: Json, shape: Shape) -> Comparison:
        change = typed.compare(before, after, shape)
        return Comparison(
            _writable(target, change.added),
            _writable(target, change.removed),
            _writable(target, change.modified),
        )

    def _shape(self, resource: Resource, schema: Json | None) -> Shape:
        if schema is None:
            return root_shape(None, resource.api_version, resource.kind)
        known = self._shapes.get(id(schema))
        if known is None:
            shape = root_shape(schema, resource.api_version, resource.kind)
            known = self._shapes[id(schema)] = (schema, shape)
        return known[1]


def _config(resource: Resource, body: Any, shape: Shape) -> Json:
    """Return an apply's document. Raises ApiError 400 or 500 when it cannot be one."""
    if not isinstance(body, dict):
        raise bad_request("error decoding YAML: an apply patch is one object")
    config = copy.deepcopy(body)
    metadata = config.setdefault("metadata", {})
    if config.get("apiVersion") != resource.api_version:
        raise bad_request(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {config.get('apiVersion')}, expected: {resource.api_version}"
        )
    if metadata.pop("managedFields", None):
        raise bad_request("metadata.managedFields must be nil")
    found = typed.complaints(config, shape)
    if found:
        name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        listed = (
            found[0] if len(found) == 1 else "errors:\n" + "\n".join(f"  {one}" for one in found)
        )
        kind = f"{resource.group}/{resource.version}, Kind={resource.kind}"
        raise failure(500, "", f"failed to create typed patch object ({name}; {kind}): {listed}")
    return config


def _starting_point(current: Json | None, sent: Any, subresource: str) -> Managed | None:
    """Return the ownership that a plain write starts from; None when the object shall stay without
    any.

    A writer may replace managedFields, or clear them by a list with one empty entry; one that knows
    nothing of them and drops them changes nothing.
    """
    live = managed.read(((current or {}).get("metadata") or {}).get("managedFields"))
    if subresource:
        held = live
    elif sent == [{}]:
        held = {}
    else:
        held = managed.read(sent) or live
    return held if held or current is None else None


def _empty(resource: Resource) -> Json:
    blank = {} if resource.custom else copy.deepcopy(builtin.EMPTY.get(resource.kind, {}))
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **blank}


def _unmanaged(document: Json) -> Json:
    metadata = {
        key: value
        for key, value in (document.get("metadata") or {}).items()
        if key != "managedFields"
    }
    return {**document, "metadata": metadata}


def _writable(target: Target, paths: FieldSet) -> FieldSet:
    """Return the paths that a write to this resource or subresource can own."""
    paths = paths.difference(_SERVER_OWNED)
    if target.subresource == "status":
        return paths.only("f:status") if target.resource.custom else paths.without(("f:spec",))
    return paths.without(("f:status",)) if "status" in target.resource.subresources else paths


def _all_owned(held: Managed) -> FieldSet:
    result = FieldSet()
    for entry in held.values():
        result = result.union(entry.owned)
    return result


def _refresh_last_applied(merged: Json, config: Json, manager: str) -> None:
    """Keep the annotation of client-side apply true when kubectl goes over to server-side apply."""
    annotations = (merged.get("metadata") or {}).get("annotations") or {}
    if manager != _KUBECTL or _LAST_APPLIED not in annotations:
        return
    document = copy.deepcopy(config)
    (document["metadata"].get("annotations") or {}).pop(_LAST_APPLIED, None)
    annotations[_LAST_APPLIED] = json.dumps(document, separators=(",", ":"), sort_keys=True) + "\n"
