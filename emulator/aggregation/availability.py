"""Which APIServices can be reached: the controller of their Available condition.

It looks when an APIService, its Service or that Service's endpoints change, every half minute
anyway, and sooner again after a failure. Besides, it keeps what the reachable servers serve, for
discovery.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import Any

from emulator.aggregation.backends import BackendFault, Backends
from emulator.aggregation.local import DEFINITIONS, LocalServices
from emulator.client import Client
from emulator.contracts import Clock, Json
from emulator.errors import ApiError
from emulator.objects import Change, Store
from emulator.services import Routes, ServiceFault
from emulator.timestamps import time

API_SERVICES = ("apiregistration.k8s.io", "apiservices")
RESYNC_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 0.05
_WATCHED = frozenset((API_SERVICES, DEFINITIONS, ("", "services"), ("", "endpoints")))


class Availability:
    """One thread that checks APIServices, from `start` to `stop`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        parts: tuple[Backends, LocalServices],
        routes: Routes,
    ) -> None:
        """`client` acts as the API server itself."""
        self._client, self._clock = client, clock
        self._backends, self._local = parts
        self._store: Store = client.api.store
        self._routes = routes
        self._wake = threading.Condition()
        self._due: dict[str, float] = {}  # name to when it is looked at next
        self._pauses: dict[str, float] = {}
        self._busy = False
        self._stopped = False
        self._served: dict[str, list[Json]] = {}
        self._thread = threading.Thread(target=self._run, name="apiservices", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._store.taps.append(self._hear)
        self._routes.listeners.append(lambda service: self._look_behind(*service))
        for definition in self._store.all(DEFINITIONS):
            self._look_at(self._local.concerned(definition))
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def idle(self) -> bool:
        """Say whether nothing is due now."""
        with self._wake:
            now = self._clock.monotonic()
            return not self._busy and all(due > now for due in self._due.values())

    def served(self, name: str) -> list[Json]:
        """Return the resources that the server behind an APIService named when last asked."""
        return self._served.get(name, [])

    def _hear(self, change: Change) -> None:
        """Note what a change concerns; called under the store's lock."""
        if change.collection not in _WATCHED:
            return
        metadata = change.object["metadata"]
        if change.collection == DEFINITIONS:
            self._look_at(self._local.concerned(change.object))
        elif change.collection != API_SERVICES:
            self._look_behind(metadata["namespace"], metadata["name"])
        elif change.type == "DELETED":
            with self._wake:
                for table in (self._due, self._pauses, self._served):
                    table.pop(metadata["name"], None)
        elif change.object["spec"].get("service") and _spec_changed(change):
            self._look_at([metadata["name"]])

    def _look_behind(self, namespace: str, service: str) -> None:
        wanted = (namespace, service)
        self._look_at(
            one["metadata"]["name"]
            for one in self._store.all(API_SERVICES)
            if _service_of(one) == wanted
        )

    def _look_at(self, names: Iterable[str]) -> None:
        chosen = list(names)
        with self._wake:
            for name in chosen:
                self._due[name] = self._clock.monotonic()
                self._pauses.pop(name, None)
            self._wake.notify_all()

    def _run(self) -> None:
        while (name := self._next()) is not None:
            try:
                reached = self._check(name)
            except ApiError:
                reached = False  # somebody else wrote it meanwhile: the retry reads it anew
            with self._wake:
                self._busy = False
                if name in self._due or not self._is_remote(name):
                    continue  # something changed meanwhile, or nothing will by itself
                pause = min(self._pauses.get(name, _FIRST_RETRY_SECONDS) * 2, RESYNC_SECONDS)
                self._pauses[name] = _FIRST_RETRY_SECONDS if reached else pause
                wait = RESYNC_SECONDS if reached else pause
                self._due[name] = self._clock.monotonic() + wait

    def _is_remote(self, name: str) -> bool:
        found = self._store.get(API_SERVICES, "", name)
        return found is not None and bool(found["spec"].get("service"))

    def _next(self) -> str | None:
        """Wait for the next name that is due; None when stopped."""
        with self._wake:
            while not self._stopped:
                now = self._clock.monotonic()
                name = min(self._due, key=self._due.__getitem__, default=None)
                if name is not None and self._due[name] <= now:
                    del self._due[name]
                    self._busy = True
                    return name
                self._clock.wait(self._wake, None if name is None else self._due[name] - now)
        return None

    def _check(self, name: str) -> bool:
        """Look at one APIService and write what is found; say whether it can be reached."""
        found = self._store.get(API_SERVICES, "", name)
        if found is None or not self._is_remote(name):
            self._local.keep(name)
            return True
        reason, message = self._state(found["spec"], name)
        condition = {
            "type": "Available",
            "status": "True" if reason == "Passed" else "False",
            "lastTransitionTime": time(self._clock.now()),
            "reason": reason,
            "message": message,
        }
        self._write(found, condition)
        return reason == "Passed" or reason in _WAITING

    def _state(self, spec: Json, name: str) -> tuple[str, str]:
        """Return the reason and message of the condition."""
        fault = self._network_fault(spec)
        if fault is not None:
            return fault
        path = f"/apis/{spec['group']}/{spec['version']}"
        try:
            address = self._backends.address(spec)
            url = f"https://{address.host}:{address.port}{path}"
            status, body = self._backends.ask(spec, path)
        except ServiceFault as fault_text:
            return "FailedDiscoveryCheck", str(fault_text)
        except BackendFault as fault_text:
            return "FailedDiscoveryCheck", f"failing or missing response from {url}: {fault_text}"
        if not 200 <= status < 300:
            text = f"bad status from {url}: {status}"
            return "FailedDiscoveryCheck", f"failing or missing response from {url}: {text}"
        self._served[name] = _resources(body)
        return "Passed", "all checks passed"

    def _network_fault(self, spec: Json) -> tuple[str, str] | None:
        """Return what is wrong between the APIService and its endpoints, None when nothing is."""
        namespace, name = spec["service"]["namespace"], spec["service"]["name"]
        what = f'service/{name} in "{namespace}"'
        service = self._store.get(("", "services"), namespace, name)
        if service is None:
            return "ServiceNotFound", f"{what} is not present"
        if service["spec"].get("type") == "ExternalName":
            return None
        wanted = spec["service"].get("port") or 443
        ports = [one for one in service["spec"].get("ports") or () if one["port"] == wanted]
        if not ports:
            return "ServicePortError", f"{what} is not listening on port {wanted}"
        endpoints = self._store.get(("", "endpoints"), namespace, name)
        port_name = ports[0].get("name", "")
        # A route stands in for the endpoints.
        if (namespace, name) in self._routes or _ready(endpoints, port_name):
            return None
        if endpoints is None:
            return "EndpointsNotFound", f"cannot find endpoints for {what}"
        text = f'endpoints for {what} have no addresses with port name "{port_name}"'
        return "MissingEndpoints", text

    def _write(self, found: Json, condition: Json) -> None:
        """Set the condition; the time stays when the status does. Raises ApiError."""
        before = condition_of(found)
        if before and before["status"] == condition["status"]:
            condition["lastTransitionTime"] = before["lastTransitionTime"]
        if before == condition:
            return
        others = [one for one in found["status"].get("conditions") or () if one is not before]
        self._client.update_status({**found, "status": {"conditions": [*others, condition]}})


_WAITING = frozenset(("ServiceNotFound", "ServicePortError", "EndpointsNotFound"))
"""Reasons that only a change of the objects can end, so there is no retry before the resync."""


def condition_of(api_service: Json) -> Json | None:
    """Return the Available condition."""
    conditions = (api_service.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "Available"), None)


def _service_of(api_service: Json) -> tuple[str, str] | None:
    service = api_service["spec"].get("service")
    return (service["namespace"], service["name"]) if service else None


def _ready(endpoints: Json | None, port_name: str) -> bool:
    """Say whether endpoints have an address for a port."""
    for subset in (endpoints or {}).get("subsets") or ():
        names = {port.get("name", "") for port in subset.get("ports") or ()}
        if subset.get("addresses") and port_name in names:
            return True
    return False


def _spec_changed(change: Change) -> bool:
    return change.previous is None or change.previous["spec"] != change.object["spec"]


def _resources(body: bytes) -> list[Json]:
    """Return the resources of an APIResourceList; none when the answer is something else."""
    try:
        listed: Any = json.loads(body)
    except ValueError:
        return []
    resources = listed.get("resources") if isinstance(listed, dict) else None
    return [one for one in resources or () if isinstance(one, dict) and "name" in one]
