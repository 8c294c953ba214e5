"""`worker.gpustack.ai/v1`: requests for the five kinds, sent on to where they are stored.

The request has been allowed when it comes here. It goes to `v1alpha1` under the worker's identity
with the client's own query, patch and options, and the answer comes back in the public version; so
the API server's validation, webhooks, conflicts and watches are everybody's. The stored kinds have
a `status` subresource and this API has none: a status in a body is ignored there.

Rules: VW-RES-01, VW-RES-02, NS-OWN-09.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from gpustack_delivery.httpd import Request, Response
from gpustack_delivery.ports import Clock, Errand, Passage, Reply
from gpustack_delivery.vocabulary.resources import STORED_VERSION, Json, Resource
from gpustack_delivery.worker.public_api.rewriting import (
    APPLY_PATCH,
    delete_options,
    published,
    stored_object,
    stored_patch,
)
from gpustack_delivery.worker.public_api.statuses import JSON, Refused
from gpustack_delivery.worker.public_api.tables import INCLUDED, LAYOUTS, Layout, bad_include
from gpustack_delivery.worker.public_api.targets import Form, Target, form
from gpustack_delivery.worker.public_api.watching import BOOKMARK, Events, Upstream

ANSWER_SECONDS: Final = 30.0
_ACCEPT: Final = {
    Form.WHOLE: "application/json",
    Form.TABLE: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
}
_PASSED_BACK: Final = ("Warning", "Retry-After")


class Models:
    """Sends requests on, and answers in the public version."""

    def __init__(self, passage: Passage, clock: Clock) -> None:
        self._passage = passage
        self._clock = clock

    def answer(self, target: Target, request: Request, may_create: Callable[[], bool]) -> Response:
        """Do what an allowed request asks for.

        Args:
            target: what it is for; anything but a subresource.
            request: the request.
            may_create: says whether the caller may also create, for an apply that would.

        Raises:
            Refused: the request cannot be sent on.
            ApiFault: the API server does not answer.
        """
        accept = request.headers.get("Accept") or ""
        wanted = form(accept)
        layout = LAYOUTS.get(target.served.resource.plural) if wanted is Form.TABLE else None
        if layout and target.parameter("includeObject") not in INCLUDED:
            raise bad_include(target.parameter("includeObject"))
        shown = Form.WHOLE if layout else wanted
        headers = {
            "Accept": _ACCEPT.get(shown, accept),
            "User-Agent": request.headers.get("User-Agent") or "gpustack-delivery",
        }
        body = b""
        if target.verb in {"create", "update", "patch"}:
            content_type = request.headers.get("Content-Type") or ""
            body = self._body(target, request, content_type, may_create)
            headers["Content-Type"] = content_type or "application/json"
            if target.verb != "patch":
                headers["Content-Type"] = "application/json"
        elif target.verb == "delete":
            body = delete_options(request.body)
            headers["Content-Type"] = "application/json"
        path = stored(target.served.resource).path(target.namespace, target.name)
        hidden = ("includeObject",) if layout else ()
        if target.verb == "watch":
            errand = Errand(request.method, path, headers)
            upstream = Upstream(self._passage, self._clock, errand, target, hidden)
            return self._watch(upstream, target, layout)
        query = target.query_without(*hidden)
        errand = Errand(request.method, f"{path}?{query}" if query else path, headers, body)
        reply = self._passage.pass_on(errand, timeout_seconds=ANSWER_SECONDS)
        return self._whole(reply, target, layout)

    def _body(
        self,
        target: Target,
        request: Request,
        content_type: str,
        may_create: Callable[[], bool],
    ) -> bytes:
        if target.verb != "patch":
            return msgspec.json.encode(stored_object(request.body, content_type))
        patch = stored_patch(request.body, content_type)
        if content_type.startswith(APPLY_PATCH) and not may_create():
            # Only what is there already may be changed: a uid lets an apply create nothing.
            uid = self._stored(target)["metadata"]["uid"]
            patch["metadata"] = {"uid": uid} | (patch.get("metadata") or {})
        return msgspec.json.encode(patch)

    def _stored(self, target: Target) -> Json:
        path = stored(target.served.resource).path(target.namespace, target.name)
        errand = Errand("GET", path, {"Accept": "application/json"})
        reply = self._passage.pass_on(errand, timeout_seconds=ANSWER_SECONDS)
        raw = reply.read()
        if reply.status == 404:
            message = f'"{target.name}" does not exist, and applying it needs the right to create'
            raise Refused(403, "Forbidden", message)
        if reply.status >= 300:
            raise Refused(503, "ServiceUnavailable", "the object cannot be read now; try again")
        body: Json = msgspec.json.decode(raw)
        return body

    def _whole(self, reply: Reply, target: Target, layout: Layout | None) -> Response:
        raw = reply.read()
        headers = list(JSON)
        headers += [(name, value) for name in _PASSED_BACK if (value := reply.header(name))]
        try:
            body = published(msgspec.json.decode(raw))
        except (msgspec.DecodeError, AttributeError, TypeError, ValueError):
            # Not the API's own words: a proxy's page, or a server that is going down.
            raise Refused(
                503, "ServiceUnavailable", f"the API server answered {reply.status} without JSON"
            ) from None
        if layout and reply.status < 300 and target.verb in {"get", "list"}:
            items = body.get("items") if target.verb == "list" else [body]
            body = layout.table(
                items or [],
                body.get("metadata") or {},
                target.parameter("includeObject"),
                self._clock.now(),
            )
        return Response(reply.status, headers, msgspec.json.encode(body))

    def _watch(self, upstream: Upstream, target: Target, layout: Layout | None) -> Response:
        reply = upstream.open()
        if reply.status >= 300:
            return self._whole(reply, target, None)
        asked = target.parameter("allowWatchBookmarks").lower() not in {"", "false", "0"}
        show = partial(self._shown, layout, target.parameter("includeObject"))
        events = Events(upstream, reply, show, bookmarks=asked)
        return Response(200, list(JSON), events, live=True)

    def _shown(self, layout: Layout | None, include: str, kind: str, body: Json) -> Json:
        """Return what an event of a watch shows: its object, or a table of it."""
        if layout is None or kind == "ERROR":
            return body
        objects = [] if kind == BOOKMARK else [body]
        return layout.table(objects, body.get("metadata") or {}, include, self._clock.now())


def stored(resource: Resource) -> Resource:
    """Return the stored version of a public resource."""
    return Resource(
        resource.group, STORED_VERSION, resource.plural, resource.kind, resource.namespaced
    )
