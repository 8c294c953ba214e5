"""OpenAPI of the servers behind this one, as it stands in this server's own documents.

A group version's document is passed on to its server, as who asked. Its entry in the index of
version 3, and its part of the one document of version 2, are that server's as well: a real
aggregator fetches both about once a minute, this one whenever a client asks, and both go on with
what they heard last when a server fails. A server that has no OpenAPI is not listed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from emulator.aggregation.backends import BackendFault, Backends
from emulator.contracts import Caller, Json
from emulator.services import ServiceFault

AGGREGATOR = Caller("system:aggregator")
"""As whom the servers are asked for their index and their version 2."""

_DEFINITIONS = "#/definitions/"


class Specifications:
    """What other servers say of their APIs. Thread-safe."""

    def __init__(
        self, backends: Backends, services: Callable[[], Iterable[tuple[Json, bool]]]
    ) -> None:
        """`services` yields every APIService of another server, and whether it is available."""
        self._backends, self._services = backends, services
        self._lock = threading.Lock()
        self._heard: dict[tuple[str, str], Json] = {}  # by APIService and path

    def index(self) -> dict[str, Json]:
        """Return the entries of the other servers in the index of version 3."""
        found = {}
        for spec, answer in self._answers("/openapi/v3"):
            key = f"apis/{spec['group']}/{spec['version']}"
            entry = (answer.get("paths") or {}).get(key)
            if entry is not None:
                found[key] = entry
        return found

    def add_to(self, swagger: Json) -> None:
        """Add what the other servers say to a document of version 2."""
        merge(swagger, self._swaggers())

    def _swaggers(self) -> Iterator[Json]:
        """Yield each server's document of version 2, with nothing but its group version's paths."""
        for spec, answer in self._answers("/openapi/v2"):
            prefix = f"/apis/{spec['group']}/{spec['version']}/"
            paths = {
                path: item
                for path, item in (answer.get("paths") or {}).items()
                if path.startswith(prefix)
            }
            definitions = _used(paths, answer.get("definitions") or {})
            yield {"paths": paths, "definitions": definitions}

    def _answers(self, path: str) -> Iterator[tuple[Json, Json]]:
        for service, available in self._services():
            name = service["metadata"]["name"], path
            answer = self._asked(service["spec"], path) if available else None
            with self._lock:
                if answer is not None:
                    self._heard[name] = answer
                answer = self._heard.get(name)
            if answer is not None:
                yield service["spec"], answer

    def _asked(self, spec: Json, path: str) -> Json | None:
        """Return what a server answers, None when it gives nothing that could be used."""
        try:
            status, body = self._backends.ask(spec, path, caller=AGGREGATOR)
            found = json.loads(body) if status == 200 else {} if status == 404 else None
        except (BackendFault, ServiceFault, ValueError):
            return None
        return found if isinstance(found, dict) else None


def merge(document: Json, others: Iterable[Mapping[str, Any]]) -> None:
    """Add other documents of version 2 to one; a definition that differs gets a name of its own."""
    definitions: Json = document["definitions"]
    for other in others:
        names = {}
        for name, definition in other["definitions"].items():
            free, number = name, 1
            while free in definitions and definitions[free] != definition:
                number += 1
                free = f"{name}_v{number}"
            names[name] = free
        renamed = _renamed(other["definitions"], names)
        definitions |= {names[name]: definition for name, definition in renamed.items()}
        document["paths"] |= _renamed(other["paths"], names)


def _used(root: Any, definitions: Mapping[str, Any]) -> Json:
    """Return the definitions that something refers to, directly or through others."""
    found: Json = {}
    due = list(_references(root))
    while due:
        name = due.pop()
        if name in definitions and name not in found:
            found[name] = definitions[name]
            due.extend(_references(definitions[name]))
    return found


def _references(value: Any) -> Iterator[str]:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for below in held:
        yield from _references(below)
    if isinstance(value, dict) and isinstance(value.get("$ref"), str):
        yield value["$ref"].removeprefix(_DEFINITIONS)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(below, names) for below in value]
    if not isinstance(value, dict):
        return value
    found = {key: _renamed(below, names) for key, below in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_DEFINITIONS)
        found["$ref"] = _DEFINITIONS + names.get(name, name)
    return found
