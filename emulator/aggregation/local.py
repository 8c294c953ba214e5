"""APIServices of what this server serves itself: one for each group and version, kept by the
server.

They are there for people and tools that list them, and say where a group stands among the others.
"""

from __future__ import annotations

from emulator.client import Client
from emulator.contracts import Json
from emulator.objects import Store

DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY = 1000, 100
_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_GROUP_PRIORITIES = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
}


class LocalServices:
    """Writes the APIServices of what is served here."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._store: Store = client.api.store

    def install(self) -> None:
        """Create those of the built-in groups."""
        served = {(one.group, one.version) for one in self._client.api.resources()}
        for group, version in sorted(served):
            priority = _GROUP_PRIORITIES.get(group)
            if priority is not None:
                self._create(group, version, "onstart", (priority, 15 if group else 1))

    def concerned(self, definition: Json) -> list[str]:
        """Return the names of the APIServices that a definition concerns."""
        spec = definition["spec"]
        return [f"{one['name']}.{spec['group']}" for one in spec["versions"]]

    def keep(self, name: str) -> None:
        """Create or delete the APIService of a definition's version. Raises ApiError."""
        version, _, group = name.partition(".")
        found = self._store.get(("apiregistration.k8s.io", "apiservices"), "", name)
        wanted = self._declared(group, version)
        if wanted and found is None:
            priorities = (CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY)
            self._create(group, version, "true", priorities)
        elif found is not None and not wanted and _kept_here(found):
            self._client.delete("apiregistration.k8s.io/v1", "APIService", name)

    def _declared(self, group: str, version: str) -> bool:
        """Say whether a definition that is established serves this version."""
        return any(
            one["spec"]["group"] == group
            and _established(one)
            and any(v["name"] == version and v.get("served") for v in one["spec"]["versions"])
            for one in self._store.all(DEFINITIONS)
        )

    def _create(self, group: str, version: str, managed: str, priorities: tuple[int, int]) -> None:
        self._client.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}", "labels": {_MANAGED: managed}},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": priorities[0],
                    "versionPriority": priorities[1],
                },
            }
        )


def _kept_here(api_service: Json) -> bool:
    labels = api_service["metadata"].get("labels") or {}
    return labels.get(_MANAGED) == "true"


def _established(definition: Json) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
