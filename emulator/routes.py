"""What a request's path says: which resource, which object, which verb, or a path outside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_PARTS = frozenset(("status", "finalize"))
_TRUE = frozenset(("true", "1", ""))


@dataclass(frozen=True, slots=True)
class Route:
    """A parsed request line. `plural` is empty for a path outside the resources."""

    verb: str
    path: str
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # what follows a subresource, as for a proxied path

    def parameter(self, name: str) -> str:
        """Return a query parameter's first value, "" when it is not there."""
        return self.query.get(name, ("",))[0]

    def flag(self, name: str) -> bool | None:
        """Return a boolean query parameter, None when it is not there."""
        return self.parameter(name).lower() in _TRUE if name in self.query else None


def parse(method: str, path: str, query: str) -> Route:
    """Parse a request line as the API server does."""
    parameters: dict[str, tuple[str, ...]] = {}
    if query:
        found = parse_qs(query, keep_blank_values=True)
        parameters = {name: tuple(values) for name, values in found.items()}
    verb = _VERBS.get(method, "")
    parts = [unquote(part) for part in path.strip("/").split("/") if part]
    outside = Route(method.lower(), "/" + "/".join(parts) if parts else "/", parameters)
    if len(parts) > 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return outside
    legacy_watch = rest[0] == "watch" and len(rest) > 1
    if legacy_watch:
        rest = rest[1:]
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS)
    ):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *below = (*rest[:3], *[""] * (3 - len(rest)), *rest[3:])
    return Route(
        verb=_refined(verb, name, parameters, legacy_watch=legacy_watch),
        path=outside.path,
        query=parameters,
        group=group,
        version=version,
        namespace=namespace or (name if (group, plural) == ("", "namespaces") else ""),
        plural=plural,
        name=name or _selected_name(verb, parameters),
        subresource=subresource,
        rest="/".join(below),
    )


def _refined(
    verb: str, name: str, parameters: Mapping[str, tuple[str, ...]], *, legacy_watch: bool
) -> str:
    if verb == "get" and legacy_watch:
        return "watch"
    if verb == "get" and not name:
        watched = parameters.get("watch", ("false",))[0].lower() in _TRUE
        return "watch" if watched else "list"
    return "deletecollection" if verb == "delete" and not name else verb


def _selected_name(verb: str, parameters: Mapping[str, tuple[str, ...]]) -> str:
    """Return the one name that a list's field selector allows: access is decided by it."""
    selector = parameters.get("fieldSelector", ("",))[0]
    if verb != "get" or "," in selector or not selector.startswith("metadata.name="):
        return ""
    return selector.removeprefix("metadata.name=").removeprefix("=")
