"""The API server as a model: every verb, no HTTP.

`api_server.ApiServer` puts HTTP before it, `client.Client` calls it in the same process. Both ask `authorize`
first: a verb itself does not, so that a forbidden request is refused before its body is looked at.

A write goes through the same stations as in the real server: decode and warn of unknown fields, patch, default and
prune, mutating admission, reset of what the caller may not write, validation, validating admission, managed fields,
store. What the steps do is theirs (`contracts.Authorizer`, `Admission`, `Patcher`).
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.contracts import (
    ADMIN, Access, Admission, Attributes, Authorizer, Caller, Clock, Decision, DeleteOptions, FieldWrite, Json,
    ListOptions, ListResult, Outcome, Patch, Patcher, Resource, Target, Virtual, WatchEvent, WatchStream, WriteOptions,
)  # fmt: skip

__all__ = [
    "ADMIN", "Access", "Admission", "Api", "Attributes", "Authorizer", "Caller", "Clock", "Decision", "DeleteOptions",
    "FieldWrite", "Json", "ListOptions", "ListResult", "Outcome", "Patch", "Patcher", "Resource", "Steps", "Target",
    "Virtual", "WatchEvent", "WatchStream", "WriteOptions",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Steps:
    """The pluggable steps; each left out allows everything, or tracks nothing."""

    authorizer: Authorizer | None = None
    admission: Admission | None = None
    patcher: Patcher | None = None


class Api:
    """One API server. Thread-safe; construct, use, close."""

    def __init__(self, clock: Clock, steps: Steps | None = None) -> None:
        """Start empty but for the namespaces default, kube-system, kube-public and kube-node-lease."""

    def close(self) -> None:
        """End every open watch and every background controller."""

    # resources

    def resource(self, group: str, version: str, plural: str) -> Resource:
        """Return a served resource. Raises ApiError 404 when there is none."""

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return the resource whose objects carry this apiVersion and kind. Raises ApiError 404."""

    def resources(self) -> tuple[Resource, ...]:
        """Return every served resource in every version, built-in ones first."""

    def schema(self, resource: Resource) -> Json | None:
        """Return the structural schema of a custom resource's version; None for a built-in kind."""

    def register(self, resource: Resource, subresource: str, virtual: Virtual) -> None:
        """Answer creates of a resource ("" as subresource) or of one of its subresources by a function."""

    # access

    def authorize(self, access: Access) -> None:
        """Ask the authorizer. Raises ApiError 403 with the server's own sentence when it says no."""

    # verbs; each raises ApiError

    def get(self, target: Target, resource_version: str = "") -> Json:
        """Return a stored object, or its scale."""

    def list(self, target: Target, options: ListOptions = ListOptions()) -> ListResult:
        """Return one page; an empty namespace means all of them."""

    def watch(self, target: Target, options: ListOptions = ListOptions()) -> WatchStream:
        """Open a watch; a version that is too old comes as an ERROR event, as in the real server."""

    def create(self, caller: Caller, target: Target, body: Json, options: WriteOptions = WriteOptions()) -> Outcome:
        """Create an object (code 201); `body` is taken over and changed in place."""

    def update(self, caller: Caller, target: Target, body: Json, options: WriteOptions = WriteOptions()) -> Outcome:
        """Replace an object, its status or its scale; `body` is taken over and changed in place."""

    def patch(self, caller: Caller, target: Target, patch: Patch, options: WriteOptions = WriteOptions()) -> Outcome:
        """Patch an object, its status or its scale; an apply may create (code 201)."""

    def delete(self, caller: Caller, target: Target, options: DeleteOptions = DeleteOptions()) -> Outcome:
        """Delete an object: a Status when it is gone, the object when something still holds it."""

    def delete_collection(
        self, caller: Caller, target: Target, selection: ListOptions, options: DeleteOptions = DeleteOptions()
    ) -> ListResult:
        """Delete what a selection matches, one by one; return what was deleted."""
