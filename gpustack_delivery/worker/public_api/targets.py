"""What a request is for: its resource, verb and form of answer, read strictly.

A path or a query that could mean one thing here and another to the API server behind is either
refused or written anew: what was authorized is what is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode

from gpustack_delivery.decisions.addresses import object_name_fault
from gpustack_delivery.httpd import Request
from gpustack_delivery.vocabulary.resources import GROUP, Resource
from gpustack_delivery.worker.public_api.access import Action
from gpustack_delivery.worker.public_api.statuses import Refused, no_such_path, wrong_method

VERSION: Final = "v1"
SETTINGS: Final = Resource("gpustack.ai", VERSION, "settings", "Setting")
PROGRESS: Final = "progress"

_ON_OBJECTS: Final[Mapping[str, str]] = {
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_ON_COLLECTIONS: Final[Mapping[str, str]] = {"GET": "list", "POST": "create"}
_ALL: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Served:
    """One resource of the public API with its verbs and short name."""

    resource: Resource
    verbs: tuple[str, ...]
    short_name: str = ""

    @property
    def public_version(self) -> str:
        """Return group and version as the public API writes them."""
        return f"{self.resource.group}/{VERSION}"


def _kind(plural: str, kind: str, short_name: str, *, namespaced: bool = True) -> Served:
    return Served(Resource(GROUP, VERSION, plural, kind, namespaced), _ALL, short_name)


SERVED: Final[Mapping[str, tuple[Served, ...]]] = {
    GROUP: (
        _kind("modelartifacts", "ModelArtifact", "mart"),
        _kind("modelprefetches", "ModelPrefetch", "mpf"),
        _kind("modelstorebindings", "ModelStoreBinding", "msb"),
        _kind("modelstores", "ModelStore", "ms", namespaced=False),
        # NS-OWN-09: its configuration is the worker's, its status the plugin's.
        Served(
            Resource(GROUP, VERSION, "nodemodelstores", "NodeModelStore", namespaced=False),
            ("delete", "get", "list", "watch"),
            "nms",
        ),
    ),
    SETTINGS.group: (Served(SETTINGS, ("get", "list", "patch", "update", "watch")),),
}


class Form(Enum):
    """What an answer's objects look like."""

    WHOLE = "whole"
    TABLE = "Table"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Target:
    """What one request is for."""

    served: Served
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: tuple[tuple[str, str], ...] = ()

    @property
    def action(self) -> Action:
        """Return what has to be allowed."""
        resource = self.served.resource
        name = self.name or (self._selected_name if self.verb in {"list", "watch"} else "")
        return Action(
            self.verb, resource.group, resource.plural, self.subresource, self.namespace, name
        )

    @property
    def _selected_name(self) -> str:
        """Return the one object that a field selector leaves, as RBAC sees it."""
        key, _, name = self.parameter("fieldSelector").partition("=")
        plain = key == "metadata.name" and not object_name_fault(name)
        return name if plain else ""

    def parameter(self, name: str) -> str:
        """Return a query parameter, empty when absent."""
        return next((value for key, value in self.query if key == name), "")

    def query_without(self, *names: str) -> str:
        """Return the query for the API server behind."""
        kept = [(key, value) for key, value in self.query if key not in names]
        return urlencode([*kept, ("watch", "true")] if self.verb == "watch" else kept)


def parse(request: Request) -> Target:
    """Read what a request is for.

    Raises:
        Refused: it is for nothing that is served here, or with a verb that it does not have.
    """
    parts = request.path.split("/")[1:]
    if len(parts) < 4 or parts[0] != "apis" or parts[2] != VERSION:
        raise no_such_path()
    group, rest = parts[1], [unquote(part) for part in parts[3:]]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3:
        namespace, rest = _name(rest[1]), rest[2:]
    served = next((one for one in SERVED.get(group, ()) if one.resource.plural == rest[0]), None)
    if served is None or len(rest) > 3 or (namespace and not served.resource.namespaced):
        raise no_such_path()
    name = _name(rest[1]) if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and (served.resource.plural, subresource) != ("modelartifacts", PROGRESS):
        raise no_such_path()
    if served.resource.namespaced and not namespace and (name or request.method != "GET"):
        raise no_such_path()
    query = parse_qsl(request.query, keep_blank_values=True)
    verb = _verb(request.method, query, named=bool(name))
    allowed = ("get",) if subresource else served.verbs
    if verb not in allowed:
        raise wrong_method(_methods(allowed, named=bool(name)))
    kept = tuple((key, value) for key, value in query if key not in {"watch", "pretty"})
    return Target(served, verb, namespace, name, subresource, kept)


def form(accept: str) -> Form:
    """Return the first form that a client accepts and that is served.

    Raises:
        Refused: none is.
    """
    for clause in (accept or "*/*").split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        named = dict(part.partition("=")[::2] for part in parameters)
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        wanted = named.get("as", "")
        if not wanted:
            return Form.WHOLE
        if named.get("g") == "meta.k8s.io" and named.get("v") == "v1":
            if wanted == Form.TABLE.value:
                return Form.TABLE
            if wanted.startswith("PartialObjectMetadata"):
                return Form.METADATA
    raise Refused(
        406, "NotAcceptable", "only the following media types are accepted: application/json"
    )


def _name(text: str) -> str:
    if object_name_fault(text):
        raise no_such_path()
    return text


def _verb(method: str, query: Sequence[tuple[str, str]], *, named: bool) -> str:
    verb = (_ON_OBJECTS if named else _ON_COLLECTIONS).get(method, "")
    watch = next((value for key, value in query if key == "watch"), "false")
    # Whatever is neither of these means yes to the API server.
    return "watch" if verb == "list" and watch.lower() not in {"false", "0"} else verb


def _methods(verbs: Sequence[str], *, named: bool) -> list[str]:
    known = _ON_OBJECTS if named else _ON_COLLECTIONS
    return [method for method, verb in known.items() if verb in verbs]
