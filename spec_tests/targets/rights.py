"""Which rights the processes under test hold, and which of them no test ever saw in use.

A missing right fails a test at once: the emulator enforces what the chart grants. A needless one
would fail nothing, so every request of the two accounts is noted here and held against their roles.
What was granted and never used in a complete run is needless, or has its reason in a strict list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

Right = tuple[str, str, str]
"""An account, a resource as `plural.group` or `plural/subresource.group`, and a verb."""

_RBAC = "rbac.authorization.k8s.io/v1"


class Rights:
    """What accounts were granted and what they used, over all worlds of a run."""

    def __init__(self) -> None:
        self.granted: set[Right] = set()
        self.used: set[Right] = set()

    def watch(self, cluster: Any, users: Iterable[str]) -> None:
        """Note the requests of some users from now on, and what the cluster grants them now."""
        accounts = {user: user.rpartition(":")[2] for user in users}

        def noting(access: Any) -> None:
            if access.caller.name in accounts and access.plural:
                resource = _named(access.group, access.plural, access.subresource)
                self.used.add((accounts[access.caller.name], resource, access.verb))

        cluster.api.tell_access(noting)
        self.granted.update(_granted(cluster.client, set(accounts.values())))

    def add(self, others: Rights) -> None:
        """Take over what another process of the same run saw."""
        self.granted |= others.granted
        self.used |= others.used

    def to_wire(self) -> dict[str, list[list[str]]]:
        """Return both sets as JSON has them."""
        return {
            "granted": [list(right) for right in self.granted],
            "used": [list(right) for right in self.used],
        }

    @classmethod
    def from_wire(cls, wire: dict[str, list[list[str]]]) -> Self:
        """Read what `to_wire` wrote."""
        rights = cls()
        for right in wire["granted"]:
            rights.granted.add((right[0], right[1], right[2]))
        for right in wire["used"]:
            rights.used.add((right[0], right[1], right[2]))
        return rights

    def idle(self) -> list[str]:
        """Return what was granted and never used, as `account: verb resource`."""
        return [_line(right) for right in sorted(self.granted - self.used)]

    def breaches(self, reasons: Mapping[str, str]) -> Iterator[str]:
        """Hold what was never used against the strict list of what need not be, a line for each."""
        idle = set(self.idle())
        for line in sorted(idle - reasons.keys()):
            yield f"{line}: granted and never used; take it from the chart, or give a reason"
        for line in sorted(reasons.keys() - idle):
            yield f"{line}: listed as never used, but used or not granted; remove the line"


def _line(right: Right) -> str:
    account, what, verb = right
    return f"{account}: {verb} {what}"


def _named(group: str, plural: str, subresource: str) -> str:
    resource = f"{plural}/{subresource}" if subresource else plural
    return f"{resource}.{group}" if group else resource


def _granted(client: Any, accounts: set[str]) -> Iterator[Right]:
    for bindings, roles in (
        ("ClusterRoleBinding", "ClusterRole"),
        ("RoleBinding", "Role"),
    ):
        rules = {
            (role["metadata"].get("namespace", ""), role["metadata"]["name"]): role.get("rules", [])
            for role in client.list(_RBAC, roles)
        }
        for binding in client.list(_RBAC, bindings):
            held = accounts & {subject["name"] for subject in binding.get("subjects", [])}
            place = binding["metadata"].get("namespace", "")
            for rule in rules.get((place, binding["roleRef"]["name"]), []):
                for account in held:
                    yield from _of_rule(account, rule)


def _of_rule(account: str, rule: dict[str, Any]) -> Iterator[Right]:
    for group in rule.get("apiGroups", []):
        for resource in rule.get("resources", []):
            for verb in rule["verbs"]:
                plural, _, subresource = resource.partition("/")
                yield account, _named(group, plural, subresource), verb
