"""Role based access control, evaluated on the Role and binding objects that are stored.

A ClusterRole with an aggregation rule has the rules of every ClusterRole its selectors match:
computed when asked, where a real cluster has a controller that writes them down. Privilege
escalation checks are not emulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.access.accounts import PREFIX, Objects
from emulator.contracts import Access, Caller, Decision, Json

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class Granted:
    """One rule that applies to a caller, and through which binding. `fault` is set when its role is
    missing.
    """

    rule: Json
    because: str
    fault: str = ""


class Rbac:
    """Answers from stored roles and bindings; before `bind` it knows none."""

    def __init__(self) -> None:
        """Start without objects."""
        self._objects: Objects | None = None

    def bind(self, objects: Objects) -> None:
        """Say where roles and bindings are read."""
        self._objects = objects

    def decide(self, access: Access) -> Decision:
        """Answer one question; the reason names the binding that allows, or a missing role."""
        if MASTERS in access.caller.groups:
            return Decision(allowed=True)
        faults: list[str] = []
        for granted in self.granted(access.caller, access.namespace):
            if granted.fault:
                faults.append(granted.fault)
            elif covers(granted.rule, access):
                return Decision(allowed=True, reason=f"RBAC: allowed by {granted.because}")
        if not faults:
            return Decision(allowed=False)
        listed = faults[0] if len(faults) == 1 else "[" + ", ".join(faults) + "]"
        return Decision(allowed=False, reason=f"RBAC: {listed}")

    def granted(self, caller: Caller, namespace: str) -> Iterator[Granted]:
        """Yield every rule that applies to a caller: cluster-wide ones, then those of the
        namespace.
        """
        if self._objects is None:
            return
        for binding in self._objects.all((GROUP, "clusterrolebindings")):
            yield from self._through(binding, caller, "ClusterRoleBinding", "")
        if namespace:
            for binding in self._objects.all((GROUP, "rolebindings"), namespace):
                yield from self._through(binding, caller, "RoleBinding", namespace)

    def _through(
        self, binding: Json, caller: Caller, kind: str, namespace: str
    ) -> Iterator[Granted]:
        subject = _matching(binding.get("subjects") or (), caller, namespace)
        if subject is None:
            return
        role = binding["roleRef"]
        name = binding["metadata"]["name"] + (f"/{namespace}" if namespace else "")
        subject_text = _described(subject, namespace)
        because = f'{kind} "{name}" of {role["kind"]} "{role["name"]}" to {subject_text}'
        rules = self._rules(role, namespace)
        if rules is None:
            fault = f'{role["kind"].lower()}.{GROUP} "{role["name"]}" not found'
            yield Granted({}, because, fault)
            return
        for rule in rules:
            yield Granted(rule, because)

    def _rules(self, role: Json, namespace: str) -> Sequence[Json] | None:
        assert self._objects is not None  # noqa: S101 - reached only through `granted`
        if role["kind"] == "Role":
            found = self._objects.get((GROUP, "roles"), namespace, role["name"])
        else:
            found = self._objects.get((GROUP, "clusterroles"), "", role["name"])
        if found is None:
            return None
        rules = list(found.get("rules") or ())
        for selector in (found.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            wanted = (selector.get("matchLabels") or {}).items()
            for other in self._objects.all((GROUP, "clusterroles")):
                labels = other["metadata"].get("labels") or {}
                if other is not found and wanted <= labels.items():
                    rules.extend(
                        self._rules({"kind": "ClusterRole", **other["metadata"]}, "") or ()
                    )
        return rules


def covers(rule: Json, access: Access) -> bool:
    """Say whether a rule allows what is asked."""
    if not _has(rule.get("verbs"), access.verb):
        return False
    if access.path:
        return any(_path_matches(url, access.path) for url in rule.get("nonResourceURLs") or ())
    if not _has(rule.get("apiGroups"), access.group):
        return False
    names = rule.get("resourceNames") or ()
    if names and access.name not in names:
        return False
    resources = rule.get("resources") or ()
    if not access.subresource:
        return _has(resources, access.plural)
    return _has(resources, f"{access.plural}/{access.subresource}") or (
        f"*/{access.subresource}" in resources
    )


def _has(values: Sequence[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern.rstrip("*"))
    return pattern == path


def _matching(subjects: Sequence[Json], caller: Caller, namespace: str) -> Json | None:
    for subject in subjects:
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == caller.name:
            return subject
        if kind == "Group" and name in caller.groups:
            return subject
        if kind == "ServiceAccount":
            home = subject.get("namespace") or namespace
            if caller.name == f"{PREFIX}{home}:{name}":
                return subject
    return None


def _described(subject: Json, namespace: str) -> str:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name += f"/{subject.get('namespace') or namespace}"
    return f'{subject["kind"]} "{name}"'
