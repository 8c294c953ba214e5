"""Which resources are served right now: the built-in ones, and those of established CRDs."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from emulator.contracts import Resource
from emulator.errors import not_emulated, not_served
from emulator.kinds.catalogue import builtin_kinds
from emulator.kinds.custom import Custom
from emulator.kinds.kind import Kind
from emulator.kinds.unserved import RESOURCES

Served = tuple[str, str, str]  # group, version, plural


class Registry:
    """Kinds by group, version and plural. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        builtin = builtin_kinds()
        self._kinds: dict[Served, Kind] = {_key(kind.resource): kind for kind in builtin}
        self._builtin_versions = frozenset(
            (one.resource.group, one.resource.version) for one in builtin
        )

    def kinds(self) -> tuple[Kind, ...]:
        """Return every kind, built-in ones first."""
        with self._lock:
            return tuple(self._kinds.values())

    def serve(self, kind: Kind) -> None:
        """Begin to serve a kind, or replace its rules."""
        with self._lock:
            self._kinds[_key(kind.resource)] = kind

    def replace(self, group: str, plural: str, kinds: Iterable[Custom]) -> None:
        """Serve exactly these versions of a CRD."""
        with self._lock:
            stale = [key for key in self._kinds if (key[0], key[2]) == (group, plural)]
            for key in stale:
                del self._kinds[key]
            self._kinds.update({_key(kind.resource): kind for kind in kinds})

    def kind(self, resource: Resource) -> Kind:
        """Return the rules of a resource. Raises ApiError 404 when it is no longer served."""
        found = self._kinds.get(_key(resource))
        if found is None:
            raise self.missing(resource.group, resource.version)
        return found

    def find(self, group: str, version: str, plural: str) -> Kind:
        """Return the rules of a resource by name. Raises ApiError 404, or 501 (`unserved`)."""
        found = self._kinds.get((group, version, plural))
        if found is None:
            if (group, version, plural) in RESOURCES:
                raise not_emulated(f"{plural}.{group}" if group else plural)
            raise self.missing(group, version)
        return found

    def find_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the rules of the resource whose objects carry this apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        for found in self.kinds():
            resource = found.resource
            if (resource.group, resource.version, resource.kind) == (group, version, kind):
                return found
        return None

    def missing(self, group: str, version: str) -> Exception:
        """Return the 404: plain text unless the group is built in."""
        return not_served(plain=(group, version) not in self._builtin_versions)


def _key(resource: Resource) -> Served:
    return (resource.group, resource.version, resource.plural)
