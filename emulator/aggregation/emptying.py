"""The end of a namespace, at the servers behind this one: what they keep in it is deleted, too.

A server that cannot be asked what it serves keeps every namespace from ending.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from emulator.aggregation.backends import BackendFault, Backends
from emulator.contracts import Caller, Json
from emulator.controllers.namespaces import CONTROLLER
from emulator.discovery.merging import RemoteVersion
from emulator.errors import failure
from emulator.services import ServiceFault


class Emptying:
    """A `contracts.Elsewhere` over what an aggregator knows."""

    def __init__(
        self, backends: Backends, remotes: Callable[[], Iterable[tuple[Json, RemoteVersion]]]
    ) -> None:
        """`remotes` yields the spec of each APIService of another server, and what it serves."""
        self._backends, self._remotes = backends, remotes
        self._caller: Caller = CONTROLLER

    def stale(self) -> list[str]:
        """Return the group versions whose server cannot be asked what it serves."""
        return [one.api_version for _, one in self._remotes() if not one.available]

    def empty(self, namespace: str) -> Mapping[str, int]:
        """Delete what other servers keep in a namespace; return what is left, by resource.

        Raises:
            ApiError: 503 when a server fails or cannot be reached.
        """
        left: dict[str, int] = {}
        for spec, remote in self._remotes():
            for resource in remote.resources:
                verbs = resource.get("verbs") or ()
                if "/" in resource["name"] or not resource.get("namespaced"):
                    continue
                if "delete" in verbs and "list" in verbs:
                    path = f"/apis/{remote.api_version}/namespaces/{quote(namespace)}"
                    count = self._clear(spec, f"{path}/{resource['name']}", verbs)
                    if count:
                        left[f"{resource['name']}.{remote.group}"] = count
        return left

    def _clear(self, spec: Json, path: str, verbs: Iterable[str]) -> int:
        """Delete a collection; return how many objects it still has."""
        if "deletecollection" in verbs:
            self._ask(spec, path, "DELETE")
        for name in self._names(spec, path):
            self._ask(spec, f"{path}/{quote(name)}", "DELETE")
        return len(self._names(spec, path))

    def _names(self, spec: Json, path: str) -> list[str]:
        listed = self._ask(spec, path, "GET")
        items = listed.get("items") if isinstance(listed, dict) else None
        return [one["metadata"]["name"] for one in items or ()]

    def _ask(self, spec: Json, path: str, method: str) -> Any:
        """Return what the server answers, None when it refuses: the list shows what is left.

        Raises:
            ApiError: 503 when the server fails or cannot be reached.
        """
        try:
            status, body = self._backends.ask(spec, path, method=method, caller=self._caller)
        except (BackendFault, ServiceFault) as fault:
            raise failure(503, "ServiceUnavailable", f"{method} {path}: {fault}", {}) from None
        if status >= 500:
            raise failure(503, "ServiceUnavailable", f"{method} {path}: status {status}", {})
        try:
            return json.loads(body) if status == 200 else None
        except ValueError:
            return None
