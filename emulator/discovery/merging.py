"""One discovery out of two: what this server serves, and what servers behind it do.

Built-in groups come in the order in which a real server lists them. The others follow by the
priority that their APIServices ask for, then by name; versions within a group likewise, then by
how stable and new they are. An APIService of another server takes a version over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emulator.contracts import Json, Resource
from emulator.discovery.lists import GROUP_ORDER, discovered_version, version_rank

_CUSTOM = (1000, 100)


@dataclass(frozen=True, slots=True)
class RemoteVersion:
    """One version of a group that another server serves; `resources` as it lists them itself."""

    group: str
    version: str
    priorities: tuple[int, int]  # of the group, and of the version within it
    available: bool
    resources: tuple[Json, ...] = ()

    @property
    def api_version(self) -> str:
        """Return group and version as objects carry them."""
        return f"{self.group}/{self.version}"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a group; either served here, or by the server in `remote`."""

    name: str
    resources: Sequence[Resource] = ()
    remote: RemoteVersion | None = None

    @property
    def rank(self) -> tuple[int, tuple[int, int, int, str]]:
        """Return what versions are ordered by."""
        priority = self.remote.priorities[1] if self.remote else _CUSTOM[1]
        return -priority, version_rank(self.name)

    def discovered(self) -> Json:
        """Return the version as aggregated discovery shows it."""
        if self.remote is None:
            return discovered_version(self.name, self.resources)
        freshness = "Current" if self.remote.available else "Stale"
        return {
            "version": self.name,
            "resources": _discovered(self.remote),
            "freshness": freshness,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """One API group and its versions, the preferred one first."""

    name: str
    versions: Sequence[Version]

    def entry(self) -> Json:
        """Return the group as the list of groups shows it."""
        versions = [
            {"groupVersion": f"{self.name}/{one.name}", "version": one.name}
            for one in self.versions
        ]
        return {"name": self.name, "versions": versions, "preferredVersion": versions[0]}

    def discovered(self) -> Json:
        """Return the group as aggregated discovery shows it."""
        versions = [one.discovered() for one in self.versions]
        return {"metadata": {"name": self.name} if self.name else {}, "versions": versions}


def merged(resources: Iterable[Resource], remotes: Iterable[RemoteVersion] = ()) -> list[Group]:
    """Return the named groups of what is served here and elsewhere, in the server's order."""
    versions: dict[tuple[str, str], Version] = {}
    by_version: dict[tuple[str, str], list[Resource]] = {}
    for resource in resources:
        if resource.group:
            by_version.setdefault((resource.group, resource.version), []).append(resource)
    for (group, version), held in by_version.items():
        versions[group, version] = Version(version, held)
    priorities: dict[str, int] = dict.fromkeys((group for group, _ in by_version), _CUSTOM[0])
    for remote in remotes:
        versions[remote.group, remote.version] = Version(remote.version, remote=remote)
        before = priorities.get(remote.group, 0)
        priorities[remote.group] = max(before, remote.priorities[0])
    groups: dict[str, list[Version]] = {}
    for (group, _), held_version in versions.items():
        groups.setdefault(group, []).append(held_version)
    order = {name: place for place, name in enumerate(GROUP_ORDER)}
    return sorted(
        (Group(name, sorted(held, key=lambda one: one.rank)) for name, held in groups.items()),
        key=lambda one: (order.get(one.name, len(order)), -priorities[one.name], one.name),
    )


def _discovered(remote: RemoteVersion) -> list[Json]:
    """Return another server's resource list in the form of aggregated discovery."""
    found: dict[str, Json] = {}
    for one in remote.resources:
        plural, _, subresource = one["name"].partition("/")
        kind = {
            "group": one.get("group") or remote.group,
            "version": one.get("version") or remote.version,
            "kind": one.get("kind", ""),
        }
        if subresource:
            part = {"subresource": subresource, "responseKind": kind, "verbs": one.get("verbs", [])}
            if plural in found:
                found[plural].setdefault("subresources", []).append(part)
            continue
        found[plural] = {
            "resource": plural,
            "responseKind": kind,
            "scope": "Namespaced" if one.get("namespaced") else "Cluster",
            "singularResource": one.get("singularName", ""),
            "verbs": one.get("verbs", []),
        }
        for name in ("shortNames", "categories"):
            if one.get(name):
                found[plural][name] = one[name]
    return list(found.values())
