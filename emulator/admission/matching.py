"""Does a webhook want to see this write? Rules, selectors and match policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from emulator.contracts import Attributes, Json, Resource

GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    {
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
)


class Reader(Protocol):
    """Read access to stored objects; `objects.Store` has it."""

    def get(self, key: tuple[str, str], namespace: str, name: str) -> Json | None:
        """Return a stored object of the collection (group, plural), or None."""

    def all(self, key: tuple[str, str], namespace: str = "") -> list[Json]:
        """Return every object of a collection."""


class Catalogue(Protocol):
    """What is served; `api.Api` has it."""

    def resources(self) -> Sequence[Resource]:
        """Return every served resource in every version."""


@dataclass(frozen=True, slots=True)
class Match:
    """A webhook that wants to see a write, and the version of the resource it wants it in."""

    webhook: Json
    resource: Resource


def matching(
    configurations: Iterable[Json], attributes: Attributes, reader: Reader, catalogue: Catalogue
) -> list[Match]:
    """Return the webhooks that a write is shown to: configurations by name, webhooks in their
    order.
    """
    resource = attributes.target.resource
    if resource.group == GROUP and resource.plural in _EXEMPT:
        return []
    found = []
    for configuration in sorted(configurations, key=lambda one: str(one["metadata"]["name"])):
        for webhook in configuration.get("webhooks") or ():
            wanted = _wanted_version(webhook, attributes, catalogue)
            if (
                wanted is not None
                and _namespace_selected(webhook, attributes, reader)
                and _object_selected(webhook, attributes)
            ):
                found.append(Match(webhook, wanted))
    return found


def _wanted_version(webhook: Json, attributes: Attributes, catalogue: Catalogue) -> Resource | None:
    """Return the resource as the rules name it: its own version, or another one that means the
    same.
    """
    own = attributes.target.resource
    rules = webhook.get("rules") or ()
    if any(_rule_matches(rule, attributes, own) for rule in rules):
        return own
    if webhook.get("matchPolicy", "Equivalent") != "Equivalent":
        return None
    for other in catalogue.resources():
        if other.collection == own.collection and other != own:
            for rule in rules:
                if _rule_matches(rule, attributes, other):
                    return other
    return None


def _rule_matches(rule: Json, attributes: Attributes, resource: Resource) -> bool:
    scope = rule.get("scope") or "*"
    return (
        _listed(rule.get("operations"), attributes.operation)
        and _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and (scope == "*" or (scope == "Namespaced") == _is_namespaced(attributes))
        and any(
            _resource_matches(pattern, resource.plural, attributes.target.subresource)
            for pattern in rule.get("resources") or ()
        )
    )


def _is_namespaced(attributes: Attributes) -> bool:
    return attributes.target.resource.namespaced


def _listed(values: Sequence[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    wanted, _, part = pattern.partition("/")
    return wanted in {"*", plural} and part in {"*", subresource}


def _namespace_selected(webhook: Json, attributes: Attributes, reader: Reader) -> bool:
    selector = webhook.get("namespaceSelector") or {}
    if not selector:
        return True
    target = attributes.target
    if target.resource.collection == ("", "namespaces"):
        subject = attributes.object or attributes.old_object
    elif target.resource.namespaced:
        subject = reader.get(("", "namespaces"), "", target.namespace)
    else:
        return True
    return selects(selector, _labels(subject))


def _object_selected(webhook: Json, attributes: Attributes) -> bool:
    selector = webhook.get("objectSelector") or {}
    if not selector:
        return True
    states = (attributes.object, attributes.old_object)
    return any(state is not None and selects(selector, _labels(state)) for state in states)


def _labels(document: Json | None) -> dict[str, str]:
    return ((document or {}).get("metadata") or {}).get("labels") or {}


def selects(selector: Json, labels: dict[str, str]) -> bool:
    """Say whether a label selector object matches labels."""
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    for requirement in selector.get("matchExpressions") or ():
        key, values = requirement["key"], requirement.get("values") or ()
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[requirement["operator"]]
        if not holds:
            return False
    return True
