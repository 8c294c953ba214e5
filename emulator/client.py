"""An API client in the same process, for one caller, on plain dicts.

It asks for permission as the HTTP server would, and copies what comes out, so its user may do with
an object what it likes. Tests, the kubelet and the scheduler of the emulator use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emulator.api import Api
from emulator.contracts import (
    ADMIN,
    Access,
    Caller,
    DeleteOptions,
    Json,
    ListOptions,
    Patch,
    Target,
    WatchStream,
    WriteOptions,
    copied,
)

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Client:
    """Calls an `Api` as one caller. Every method raises `errors.ApiError`; thread-safe."""

    def __init__(self, api: Api, caller: Caller = ADMIN) -> None:
        self.api = api
        self.caller = caller

    def as_caller(self, caller: Caller) -> Client:
        """Return a client of the same server for somebody else."""
        return Client(self.api, caller)

    # reading

    def get(
        self, api_version: str, kind: str, name: str, *, namespace: str = "", subresource: str = ""
    ) -> Json:
        """Return one object."""
        target = self._target(api_version, kind, namespace, name)
        target = Target(target.resource, target.namespace, name, subresource)
        self._ask("get", target)
        return copied(self.api.get(target))

    def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> list[Json]:
        """Return all objects of a kind, in all namespaces unless one is given, by selectors."""
        target = self._target(api_version, kind, namespace)
        self._ask("list", target, fields)
        options = ListOptions(label_selector=labels, field_selector=fields)
        return copied(list(self.api.list(target, options).items))

    def list_version(
        self, api_version: str, kind: str, *, namespace: str = ""
    ) -> tuple[Sequence[Json], str]:
        """Return all objects of a kind and the version to watch from."""
        target = self._target(api_version, kind, namespace)
        self._ask("list", target)
        result = self.api.list(target)
        return copied(list(result.items)), result.resource_version

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        options: ListOptions | None = None,
    ) -> Watch:
        """Open a watch; close it, or use it in a `with` block."""
        target = self._target(api_version, kind, namespace)
        options = options or ListOptions()
        self._ask("watch", target, options.field_selector)
        return Watch(self.api.watch(target, options))

    # writing

    def create(
        self,
        object_: Json,
        *,
        namespace: str = "",
        subresource: str = "",
        name: str = "",
        options: WriteOptions | None = None,
    ) -> Json:
        """Create an object, or POST to the subresource of a named object."""
        target = self._target_of(object_, namespace)
        target = Target(target.resource, target.namespace, name if subresource else "", subresource)
        self._ask("create", target)
        outcome = self.api.create(self.caller, target, copied(object_), options or WriteOptions())
        return copied(outcome.object)

    def post(self, target: Target, body: Json) -> Json:
        """POST any body to a collection or subresource: reviews, tokens, bindings."""
        self._ask("create", target)
        return copied(self.api.create(self.caller, target, copied(body)).object)

    def update(self, object_: Json, *, subresource: str = "") -> Json:
        """Replace an object by its metadata's name and namespace."""
        target = self._target_of(object_)
        target = Target(target.resource, target.namespace, object_["metadata"]["name"], subresource)
        self._ask("update", target)
        return copied(self.api.update(self.caller, target, copied(object_)).object)

    def update_status(self, object_: Json) -> Json:
        """Replace an object's status."""
        return self.update(object_, subresource="status")

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Patch,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Json:
        """Patch an object: by JSON merge patch, or by a Patch that says its type itself."""
        resource = self.api.resource_of(api_version, kind)
        target = Target(resource, namespace, name, subresource)
        self._ask("patch", target)
        sent = patch if isinstance(patch, Patch) else Patch(MERGE, copied(dict(patch)))
        return copied(self.api.patch(self.caller, target, sent).object)

    def apply(
        self,
        object_: Json,
        *,
        field_manager: str = "emulator",
        subresource: str = "",
        force: bool = True,
    ) -> Json:
        """Apply an object by server-side apply; creates it when it is not there."""
        target = self._target_of(object_)
        target = Target(target.resource, target.namespace, object_["metadata"]["name"], subresource)
        self._ask("patch", target)
        options = WriteOptions(field_manager=field_manager, force=force)
        outcome = self.api.patch(self.caller, target, Patch(APPLY, copied(object_)), options)
        return copied(outcome.object)

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        *,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> Json:
        """Delete an object; return the Status, or the object when something still holds it."""
        target = self._target(api_version, kind, namespace, name)
        self._ask("delete", target)
        outcome = self.api.delete(self.caller, target, options or DeleteOptions())
        return copied(outcome.object)

    def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a Pod to a node."""
        target = Target(self.api.resource("", "v1", "pods"), namespace, pod, "binding")
        self.post(target, {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})

    # internals

    def _target(self, api_version: str, kind: str, namespace: str, name: str = "") -> Target:
        return Target(self.api.resource_of(api_version, kind), namespace, name)

    def _target_of(self, object_: Json, namespace: str = "") -> Target:
        resource = self.api.resource_of(object_["apiVersion"], object_["kind"])
        given = object_["metadata"].get("namespace", "") or namespace
        return Target(resource, given if resource.namespaced else "")

    def _ask(self, verb: str, target: Target, field_selector: str = "") -> None:
        self.api.authorize(Access.to(target, self.caller, verb, field_selector))


class Watch:
    """An open watch that yields (type, object); the objects are copies."""

    def __init__(self, stream: WatchStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        for event in self._stream:
            yield event.type, copied(event.object)

    def close(self) -> None:
        """End the watch; safe from any thread, and twice."""
        self._stream.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
