"""The API over HTTP: requests in, verbs of the model, answers out. Nothing is decided here.

In order: who asks (authenticator), what for (`routes`), may they (`Api.authorize`), is it served,
what does the body say (`decoding`), the verb, and the form of the answer (`tables`).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import yaml

from emulator import tables
from emulator.api import Api
from emulator.contracts import Access, Caller, Json, Outcome, Patch, Target
from emulator.decoding import (
    JSON,
    YAML,
    check_patch_options,
    decode_object,
    decode_patch,
    delete_options,
    list_options,
    media_type,
    write_options,
)
from emulator.errors import ApiError, bad_request, failure, internal, not_allowed, not_emulated
from emulator.routes import Route, parse
from emulator.watch_body import WatchBody
from gpustack_delivery.httpd import Request, Response

_LOG = logging.getLogger(__name__)
_PLAIN_404 = b"404 page not found\n"
_TEXT = "text/plain; charset=utf-8"
_UNSERVED_PATHS = frozenset(("debug", "logs", "metrics", "statusz", "flagz"))
_UNNAMED = frozenset(("update", "patch"))


class Authenticator(Protocol):
    """Finds out who sent a request."""

    def authenticate(self, request: Request) -> Caller:
        """Return the caller. Raises ApiError 401, or 403 for a forbidden impersonation."""


class Extra(Protocol):
    """Answers paths outside the resources: discovery, OpenAPI, health, version."""

    def handle(self, caller: Caller, request: Request) -> Response | None:
        """Return an answer, or None when the path is not its own. May raise ApiError."""


class Aggregator(Protocol):
    """Passes requests for a group's version on to the server that an APIService names."""

    def forward(self, caller: Caller, request: Request, audit_id: str) -> Response | None:
        """Return the other server's answer, or None when no APIService claims the path."""


Connector = Callable[[Caller, Target, Route, Request], Response]
"""Answers a subresource that is a connection, such as nodes/proxy or pods/log."""


@dataclass(frozen=True, slots=True)
class Doors:
    """What else a server is put together from; each may be left out."""

    authenticator: Authenticator | None = None
    extras: Sequence[Extra] = ()
    aggregator: Aggregator | None = None
    connectors: dict[tuple[str, str, str], Connector] = field(default_factory=dict)


class ApiServer:
    """A handler for `httpd.Server`; stateless beyond the model it serves."""

    def __init__(self, api: Api, doors: Doors | None = None) -> None:
        self._api = api
        self._doors = doors or Doors()
        self._own = [
            ("Cache-Control", "no-cache, private"),
            ("X-Kubernetes-Pf-Flowschema-Uid", str(uuid.uuid4())),
            ("X-Kubernetes-Pf-Prioritylevel-Uid", str(uuid.uuid4())),
        ]

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        audit = request.headers.get("Audit-Id") or self._api.new_uid()
        try:
            response = self._answer(request, audit)
        except ApiError as error:
            response = _refusal(error)
        except Exception:  # noqa: BLE001 - a fault of ours is an answer, too: 500 and a log line
            _LOG.exception("method=%s path=%s the emulator failed", request.method, request.path)
            response = _refusal(internal("Internal Server Error: the emulator failed, see its log"))
        response.headers[:0] = [("Audit-Id", audit), *self._own]
        return response

    def _answer(self, request: Request, audit: str) -> Response:
        authenticator = self._doors.authenticator
        caller = authenticator.authenticate(request) if authenticator else _anonymous(request)
        route = parse(request.method, request.path, request.query)
        self._api.authorize(_access(caller, route))
        aggregator = self._doors.aggregator
        forwarded = aggregator.forward(caller, request, audit) if aggregator else None
        if forwarded is not None:
            return forwarded
        if not route.plural:
            return self._outside(caller, request)
        resource = self._api.resource(route.group, route.version, route.plural)
        namespace = route.namespace if resource.namespaced else ""
        name = route.name if route.verb not in ("list", "watch") else ""
        target = Target(resource, namespace, name, route.subresource)
        connector = self._doors.connectors.get((route.group, route.plural, route.subresource))
        if connector is not None:
            return connector(caller, target, route, request)
        return self._resource(caller, target, route, request)

    def _outside(self, caller: Caller, request: Request) -> Response:
        for extra in self._doors.extras:
            response = extra.handle(caller, request)
            if response is not None:
                return response
        first = request.path.split("/")[1]
        if first in _UNSERVED_PATHS:
            raise not_emulated(f"/{first}")
        return _plain_not_found()

    def _resource(self, caller: Caller, target: Target, route: Route, request: Request) -> Response:
        form = tables.accepted(request.headers.get("Accept"))
        answer = _Answer(self._api, target, route, form)
        _check_verb(target, route)
        self._api.check_verb(target, route.verb)
        match route.verb:
            case "get":
                return answer.object(
                    Outcome(self._api.get(target, route.parameter("resourceVersion")))
                )
            case "list":
                return answer.page(self._api.list(target, list_options(route)))
            case "watch":
                return answer.stream(self._api.watch(target, list_options(route)))
            case "deletecollection":
                options = delete_options(route, request.body, _content_type(request))
                return answer.page(
                    self._api.delete_collection(caller, target, list_options(route), options)
                )
            case "delete":
                options = delete_options(route, request.body, _content_type(request))
                return answer.object(self._api.delete(caller, target, options))
        return answer.object(self._write(caller, target, route, request))

    def _write(self, caller: Caller, target: Target, route: Route, request: Request) -> Outcome:
        content_type = _content_type(request)
        if route.verb == "patch":
            options = write_options(route, "PatchOptions")
            check_patch_options(route, content_type)
            patch = Patch(content_type, decode_patch(request.body, content_type))
            return self._api.patch(caller, target, patch, options)
        kind = "CreateOptions" if route.verb == "create" else "UpdateOptions"
        write_options(route, kind)
        body, complaints = decode_object(request.body, content_type, target.resource)
        options = write_options(route, kind, complaints)
        verb = self._api.create if route.verb == "create" else self._api.update
        return verb(caller, target, body, options)


class _Answer:
    """Puts results into the form that a request asked for."""

    def __init__(self, api: Api, target: Target, route: Route, form: tables.Form) -> None:
        self._api, self._target, self._form = api, target, form
        self._pretty = route.flag("pretty") is True
        self._tabulator: tables.Tabulator | None = None
        if form.shape == "Table" and not target.subresource:
            now = api.clock.now()
            self._tabulator = tables.Tabulator(
                api.kind(target.resource), now, route.parameter("includeObject")
            )

    def object(self, outcome: Outcome) -> Response:
        """Answer with one object, or with a Status as it is."""
        body = outcome.object
        if body.get("kind") != "Status":
            if self._tabulator is not None:
                body = self._tabulator.one(body)
            elif self._form.shape == "PartialObjectMetadata":
                body = tables.partial(body)
            elif self._form.shape == "PartialObjectMetadataList":
                raise tables.not_acceptable()
        return self._rendered(outcome.code, body, outcome.warnings)

    def page(self, result: Any) -> Response:
        """Answer with a page of a collection."""
        if self._tabulator is not None:
            body = self._tabulator.page(result)
        elif self._form.shape == "PartialObjectMetadataList":
            body = tables.partial_list(result)
        elif self._form.shape:
            raise tables.not_acceptable()
        else:
            body = tables.listed(self._target.resource, result)
        return self._rendered(200, body, ())

    def stream(self, stream: Any) -> Response:
        """Answer with a watch."""
        shape: Callable[[Json], Json] | None = None
        if self._tabulator is not None:
            shape = _Tables(self._tabulator)
        elif self._form.shape:
            shape = tables.partial
        return Response(200, [("Content-Type", JSON)], WatchBody(stream, shape), live=True)

    def _rendered(self, code: int, body: Json, warnings: Sequence[str]) -> Response:
        headers = [("Content-Type", self._form.media), *_warning_headers(warnings)]
        if self._form.media == YAML:
            text = yaml.safe_dump(body, default_flow_style=False, width=1 << 20)
            return Response(code, headers, text.encode())
        if self._pretty:
            return Response(
                code, headers, json.dumps(body, indent=2, ensure_ascii=False).encode() + b"\n"
            )
        return Response(code, headers, msgspec.json.encode(body) + b"\n")


class _Tables:
    """Tables of a watch: only the first has a heading."""

    def __init__(self, tabulator: tables.Tabulator) -> None:
        self._tabulator = tabulator
        self._heading = True

    def __call__(self, object_: Json) -> Json:
        if "uid" not in object_["metadata"]:
            # A bookmark is no object: its table has a version and no rows.
            return self._tabulator.table(object_["metadata"], [], heading=False)
        table = self._tabulator.one(object_, heading=self._heading)
        self._heading = False
        return table


def _access(caller: Caller, route: Route) -> Access:
    if not route.plural:
        return Access(caller, route.verb, path=route.path)
    return Access(
        caller=caller,
        verb=route.verb,
        group=route.group,
        version=route.version,
        plural=route.plural,
        subresource=route.subresource,
        namespace=route.namespace,
        name=route.name,
        field_selector=route.parameter("fieldSelector"),
    )


def _check_verb(target: Target, route: Route) -> None:
    """Refuse combinations of verb and path that no resource has. Raises ApiError 400, 404, 405."""
    resource = target.resource
    if route.verb in _UNNAMED and not target.name:
        if resource.custom:
            raise bad_request("name must be provided")
        raise _unsupported_method()
    if not route.verb:
        raise not_allowed(resource, "")
    if route.verb not in resource.verbs and not target.subresource:
        raise _unsupported_method()
    if target.name and route.verb == "create" and not target.subresource and not resource.custom:
        raise _unsupported_method()


def _unsupported_method() -> ApiError:
    text = "the server does not allow this method on the requested resource"
    return failure(405, "MethodNotAllowed", text, {})


def _content_type(request: Request) -> str:
    return media_type(request.headers.get("Content-Type"))


def _anonymous(request: Request) -> Caller:
    agent = request.headers.get("User-Agent") or ""
    return Caller("system:anonymous", ("system:unauthenticated",), user_agent=agent)


def _warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings)
    return [("Warning", f'299 - "{text}"') for text in quoted]


def _plain_not_found() -> Response:
    return Response(
        404, [("Content-Type", _TEXT), ("X-Content-Type-Options", "nosniff")], _PLAIN_404
    )


def _refusal(error: ApiError) -> Response:
    if error.plain:
        return _plain_not_found()
    headers = [("Content-Type", JSON), *_warning_headers(error.warnings)]
    if error.code == 403 and " cannot " in error.message:
        headers.append(("X-Content-Type-Options", "nosniff"))
    if error.retry_after_seconds:
        headers.append(("Retry-After", str(error.retry_after_seconds)))
    return Response(error.code, headers, msgspec.json.encode(error.status) + b"\n")
