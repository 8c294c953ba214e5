"""A small cluster for the worker's unit tests: the fake API with the writes that the worker makes.

Server-side apply keeps, for each field manager, what it applied last, so that a field one manager
leaves out goes and a field of another stays. Finalizers hold a deleted object. What is not modelled
raises.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emulator.stillness import wait_for_rest
from gpustack_delivery.errors import AlreadyExists, ApiFault, Conflict, NotFound
from gpustack_delivery.ports import Page, Selection
from gpustack_delivery.vocabulary.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    DRIVER_NAME,
    NODES,
    Json,
    Resource,
)
from tests.unit.fakes import DEADLINE_SECONDS, FakeKube, ManualClock, eventually

NAMESPACE = "gpustack-system"
CONFIGZ = {
    "kubeletconfig": {
        "evictionHard": {"nodefs.available": "10%"},
        "imageGCHighThresholdPercent": 85,
    }
}


class ClusterKube(FakeKube):
    """The fake API server with creation, apply, patches, finalizers and raw paths."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: dict[str, Any] = {}
        self.reviews: dict[str, Json | ApiFault] = {}
        self.missing: set[str] = set()
        self._applied: dict[tuple[tuple[str, str, str], str], Json] = {}

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return a page; of field selectors only a name restricts."""
        if selection.resource.plural in self.missing:
            raise NotFound("no such resource", code=404)
        if not selection.field_selector.startswith("metadata.name="):
            selection = replace(selection, field_selector="")
        return super().list_page(selection, continue_token)

    def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Create an object, or answer a review as planned."""
        with self.lock:
            if resource.plural.endswith("reviews"):
                self._called(f"create {resource.plural}")
                answer = self.reviews.get(resource.plural, NotFound("not served", code=404))
                if isinstance(answer, ApiFault):
                    raise answer
                return body | answer
            body = copy.deepcopy(body)
            if namespace:
                body["metadata"]["namespace"] = namespace
            if self._key(resource, body) in self.objects:
                raise AlreadyExists("there already", code=409)
            return super().create(resource, body, namespace)

    def update(self, resource: Resource, body: Json, *, subresource: str = "") -> Json:
        """Replace an object but its status, or its status alone."""
        if subresource == "status":
            return super().update(resource, body, subresource=subresource)
        with self.lock:
            self._called(f"update {resource.plural}/{body['metadata']['name']}")
            stored = self._stored(resource, body["metadata"]["name"], body["metadata"])
            return self._replace(resource, stored, body | {"status": stored.get("status")})

    def apply(
        self, resource: Resource, body: Json, *, field_manager: str, subresource: str = ""
    ) -> Json:
        """Apply a partial object."""
        with self.lock:
            key = self._key(resource, body)
            self._called(f"apply {resource.plural}/{key[2]}")
            last = self._applied.get((key, field_manager), {})
            self._applied[key, field_manager] = copy.deepcopy(body)
            if key not in self.objects:
                return self.put(resource, body)
            stored = self.objects[key]
            return self._replace(resource, stored, _merged(_without(stored, last), body))

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Json:
        """Patch an object by JSON merge patch."""
        with self.lock:
            self._called(f"patch {resource.plural}/{name}")
            metadata = {"namespace": namespace} | patch.get("metadata", {})
            stored = self._stored(resource, name, metadata)
            return self._replace(resource, stored, _merged(stored, patch))

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object; finalizers hold it."""
        with self.lock:
            self._called(f"delete {resource.plural}/{name}")
            stored = self._stored(resource, name, {"namespace": namespace})
            if uid and stored["metadata"]["uid"] != uid:
                raise Conflict("another object by now", code=409)
            if not stored["metadata"].get("finalizers"):
                self._applied = {
                    place: body
                    for place, body in self._applied.items()
                    if place[0] != (resource.plural, namespace, name)
                }
                self.remove(resource, name, namespace)
                return
            held = copy.deepcopy(stored)
            held["metadata"]["deletionTimestamp"] = "2026-09-25T06:00:00Z"
            self._replace(resource, stored, held)

    def get_raw(self, path: str, *, timeout_seconds: float) -> bytes:
        """Return a planned answer."""
        with self.lock:
            self._called(f"raw {path}")
            answer = self.raw.get(path, NotFound("no such path", code=404))
            if isinstance(answer, ApiFault):
                raise answer
            return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        """Return an object without counting the call; None if it is not there."""
        with self.lock:
            return copy.deepcopy(self.objects.get((resource.plural, namespace, name)))

    def all(self, resource: Resource) -> list[Json]:
        """Return every object of a kind without counting the call."""
        with self.lock:
            return [
                copy.deepcopy(body)
                for (plural, _, _), body in sorted(self.objects.items())
                if plural == resource.plural
            ]

    def count(self, call: str) -> int:
        """Return how often a call was made, by its beginning."""
        with self.lock:
            return sum(made.startswith(call) for made in self.calls)

    def changes(self, resource: Resource) -> int:
        """Return how often objects of a kind came, changed or went; an idle apply is none."""
        with self.lock:
            return sum(key[0] == resource.plural for _, key, _ in self._told)

    def _key(self, resource: Resource, body: Json) -> tuple[str, str, str]:
        metadata = body["metadata"]
        return resource.plural, metadata.get("namespace", ""), metadata["name"]

    def _stored(self, resource: Resource, name: str, metadata: Mapping[str, Any]) -> Json:
        try:
            stored = self.objects[resource.plural, metadata.get("namespace", ""), name]
        except KeyError:
            raise NotFound("not there", code=404) from None
        version = metadata.get("resourceVersion", stored["metadata"]["resourceVersion"])
        if version != stored["metadata"]["resourceVersion"]:
            raise Conflict("moved on", code=409)
        return stored

    def _replace(self, resource: Resource, stored: Json, body: Json) -> Json:
        body = copy.deepcopy(body)
        kept = ("uid", "generation", "resourceVersion")
        body["metadata"] |= {name: stored["metadata"][name] for name in kept}
        if body == stored:
            return copy.deepcopy(stored)
        if body.get("spec") != stored.get("spec"):
            body["metadata"]["generation"] += 1
        key = self._key(resource, stored)
        if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            self.remove(resource, key[2], key[1])
            return body
        self._store(key, body, "MODIFIED")
        return copy.deepcopy(body)


def _merged(stored: Any, patch: Any) -> Any:
    """Merge a patch into a value; None removes a member."""
    if not isinstance(patch, Mapping) or not isinstance(stored, Mapping):
        return copy.deepcopy(patch)
    result = {key: copy.deepcopy(value) for key, value in stored.items()}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _without(stored: Any, applied: Any) -> Any:
    """Return a value without the fields that were applied before."""
    if not isinstance(applied, Mapping) or not isinstance(stored, Mapping):
        return None
    left = {}
    for key, value in stored.items():
        if key not in applied or key == "name":
            left[key] = value
        elif isinstance(value, Mapping):
            left[key] = _without(value, applied[key])
    return left


def add_driver(kube: ClusterKube) -> None:
    """Install the CSIDriver."""
    kube.put(CSI_DRIVERS, {"metadata": {"name": DRIVER_NAME}})


def add_node(kube: ClusterKube, name: str, *, registered: bool = True, **labels: str) -> None:
    """Add a Node whose kubelet answers, with or without the plugin registered."""
    kube.put(NODES, {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}})
    kube.raw[f"/api/v1/nodes/{name}/proxy/configz"] = CONFIGZ
    register(kube, name, registered=registered)


def register(kube: ClusterKube, name: str, *, registered: bool = True) -> None:
    """Write a node's CSINode, with or without the driver."""
    drivers = [{"name": DRIVER_NAME, "nodeID": name}] if registered else []
    kube.put(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": drivers}})


class SteppedClock(ManualClock):
    """A manual clock whose steps can be waited on: until every thread has seen one, and is done."""

    def __init__(self) -> None:
        super().__init__()
        self._active: dict[object, threading.Condition] = {}

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait for a notification or an advance."""
        ticket = object()
        self._active[ticket] = condition
        try:
            super().wait(condition, seconds)
        finally:
            del self._active[ticket]

    def advance(self, seconds: float) -> None:
        """Move time, and return when everyone who waited has woken."""
        before = set(self._active)
        super().advance(seconds)
        eventually(lambda: not before & set(self._active), "the waking of every thread")

    @property
    def waiting(self) -> int:
        """How many threads wait on the clock; one that was notified waits no longer."""
        conditions = set(self._active.copy().values())
        # A condition takes a thread off its list at the moment of the notification, long before
        # that thread runs.
        return sum(len(getattr(condition, "_waiters", ())) for condition in conditions)

    def settle(self, threads: int) -> None:
        """Return when this many threads wait on the clock."""
        eventually(lambda: self.waiting == threads, f"the wait of {threads} threads")


class SilentObserver:
    """Hears of passes and forgets them."""

    def reconciled(self, controller: str, seconds: float, *, failed: bool) -> None:
        """Forget."""


def idle(kube: ClusterKube, clock: SteppedClock, threads: int) -> None:
    """Return when every change was seen to, this many threads wait on the clock, and none runs."""

    def busy() -> bool:
        with kube.lock:
            heard = all(watch.heard for _, watch in kube.watches if not watch.closed)
        return not heard or clock.waiting != threads

    assert wait_for_rest(busy, patience_seconds=DEADLINE_SECONDS), "there is no rest"
