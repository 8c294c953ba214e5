"""The Kubernetes API over HTTPS: the real `ports.Kube`, as an identity of `kube_identity`.

Requests and answers are plain JSON, encoded and decoded here, so no generated model stands between
the wire and our records. Promises that the library does not make: a 401 makes a kubeconfig be read
again, once; no redirect is followed, so the token goes nowhere else; and a program that is told to
stop hangs up, whatever it waits for. Every failure leaves as a class of `errors.ApiFault`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3.util

from gpustack_delivery.adapters.flights import Fleet
from gpustack_delivery.adapters.kube_answers import decode, fault_of
from gpustack_delivery.adapters.kube_identity import Kubeconfig, ServiceAccount
from gpustack_delivery.adapters.kube_streams import (
    TRANSPORT_ERRORS,
    PassedOn,
    Stream,
    drain,
    unreachable,
)
from gpustack_delivery.errors import ApiFault, Unreachable
from gpustack_delivery.ports import Errand, Page, Reply, Selection, Watch
from gpustack_delivery.vocabulary.resources import Json, Resource

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_SIZE: Final = 500
REQUEST_SECONDS: Final = 30.0
# A server sends a bookmark about once a minute, but one as old as 1.32 only of a kind that has
# changed since it started. A connection that stays silent for longer is dead, or its kind at rest.
WATCH_SILENCE_SECONDS: Final = 150.0
# Once more at once, for a connection that the server had just given up. A wish to wait is the
# caller's to hear: the transport would sleep through it, a day if need be, and nothing wakes it.
_AGAIN: Final = urllib3.util.Retry(1, redirect=False, respect_retry_after_header=False)


def connect(
    kubeconfig: str = "",
    *,
    account: Path = SERVICE_ACCOUNT,
    environment: Mapping[str, str] = os.environ,
) -> KubeClient:
    """Return a client of the cluster that a kubeconfig names, or of the one we run in without one.

    Raises:
        ConfigurationFault: the kubeconfig or the service account cannot be used.
    """
    if kubeconfig:
        return KubeClient(Kubeconfig(kubeconfig))
    return KubeClient(ServiceAccount(account, environment))


@dataclass(frozen=True, slots=True)
class _Call:
    """One request: its method, path and query, and a JSON body if it has one."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    content_type: str = "application/json"


class KubeClient:
    """The Kubernetes API as one identity; `ports.Kube` says what each call means. Thread-safe."""

    def __init__(
        self,
        identity: Kubeconfig | ServiceAccount,
        patience_seconds: float = REQUEST_SECONDS,
        fleet: Fleet | None = None,
    ) -> None:
        self._identity = identity
        self._patience = patience_seconds
        self._fleet = fleet or Fleet()
        self._adopt()

    def within(self, seconds: float) -> KubeClient:
        """Return a client of the same connections that gives silence up sooner, watches apart."""
        return KubeClient(self._identity, seconds, self._fleet)

    def _adopt(self) -> None:
        self._base = self._identity.settings.host.rstrip("/")
        self._pool = self._identity.pool

    def hang_up(self) -> None:
        """End every request that waits, and all that follow, as Unreachable; watches go on.

        What an aborted request was to change may be changed or not.
        """
        self._fleet.ground()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object."""
        return self._object(_Call("GET", resource.path(namespace, name)))

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return one page of a collection."""
        query = _present(
            limit=str(PAGE_SIZE),
            labelSelector=selection.label_selector,
            fieldSelector=selection.field_selector,
            **{"continue": continue_token},
        )
        resource = selection.resource
        body = self._object(_Call("GET", resource.path(selection.namespace), query))
        metadata = body.get("metadata") or {}  # items of built-in types lack kind and apiVersion
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        return Page(
            items=[named | item for item in body.get("items") or ()],
            resource_version=metadata.get("resourceVersion", ""),
            continue_token=metadata.get("continue", ""),
        )

    def watch(self, selection: Selection, resource_version: str) -> Watch:
        """Open a watch with bookmarks."""
        query = _present(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=selection.label_selector,
            fieldSelector=selection.field_selector,
        )
        call = _Call("GET", selection.resource.path(selection.namespace), query)
        with self._aloft():
            return Stream(self._send(call, seconds=WATCH_SILENCE_SECONDS))

    def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Create an object, or ask a review."""
        namespace = namespace or (body.get("metadata") or {}).get("namespace", "")
        return self._object(_Call("POST", resource.path(namespace), body=body))

    def update(self, resource: Resource, body: Json, *, subresource: str = "") -> Json:
        """Replace an object."""
        return self._object(_Call("PUT", _path_of(resource, body, subresource), body=body))

    def apply(
        self, resource: Resource, body: Json, *, field_manager: str, subresource: str = ""
    ) -> Json:
        """Apply a partial object by server-side apply."""
        named = {"apiVersion": resource.api_version, "kind": resource.kind} | body
        call = _Call(
            "PATCH",
            _path_of(resource, body, subresource),
            {"fieldManager": field_manager, "force": "true"},
            named,
            "application/apply-patch+yaml",
        )
        return self._object(call)

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Json:
        """Patch an object by JSON merge patch."""
        path = resource.path(namespace, name, subresource)
        return self._object(_Call("PATCH", path, {}, patch, "application/merge-patch+json"))

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        self._object(_Call("DELETE", resource.path(namespace, name), body=options))

    def get_raw(self, path: str, *, timeout_seconds: float) -> bytes:
        """Return the body of a path outside the resources."""
        with self._aloft():
            return drain(self._send(_Call("GET", path), seconds=timeout_seconds))

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Reply:
        """Send a request as it is; its answer, good or bad, is the caller's to read and close."""
        with self._aloft():
            response = self._authorized(errand, timeout_seconds)
        if response.status == 401:  # ours is the identity that was refused, not the caller's
            raise _fault(response)
        return PassedOn(response)

    @contextmanager
    def _aloft(self) -> Iterator[None]:
        try:
            with self._fleet.flight():
                yield
        except OSError as error:
            raise unreachable(error) from None

    def _object(self, call: _Call) -> Json:
        with self._aloft():
            body = decode(drain(self._send(call, seconds=self._patience)))
        if body is None:
            raise Unreachable("the Kubernetes API answered something that is not a JSON object")
        return body

    def _send(self, call: _Call, *, seconds: float) -> Any:
        """Send a call; return its open answer, which is good."""
        headers = {"Accept": "application/json", "User-Agent": "gpustack-delivery"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        target = f"{call.path}?{urlencode(call.query)}" if call.query else call.path
        body = b"" if call.body is None else msgspec.json.encode(call.body)
        response = self._authorized(Errand(call.method, target, headers, body), seconds)
        if response.status >= 300:
            raise _fault(response)
        return response

    def _authorized(self, errand: Errand, seconds: float) -> Any:
        """Send a request as ourselves, once more with a kubeconfig read again after a 401."""
        response = self._try(errand, seconds)
        if response.status == 401 and self._identity.reload():
            drain(response)
            self._pool.clear()
            self._adopt()
            response = self._try(errand, seconds)
        return response

    def _try(self, errand: Errand, seconds: float) -> Any:
        headers = dict(errand.headers)
        if bearer := self._identity.authorization():
            headers["Authorization"] = bearer.reveal()
        try:
            return self._pool.request(
                errand.method,
                self._base + errand.target,
                body=errand.body or None,
                headers=headers,
                timeout=seconds,
                retries=_AGAIN,
                redirect=False,
                preload_content=False,
            )
        except TRANSPORT_ERRORS as error:
            raise unreachable(error, urlsplit(self._base).netloc) from None


def _path_of(resource: Resource, body: Json, subresource: str) -> str:
    metadata = body["metadata"]
    return resource.path(metadata.get("namespace", ""), metadata["name"], subresource)


def _present(**query: str) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _fault(response: Any) -> ApiFault:
    wait = response.headers.get("Retry-After", "")
    return fault_of(response.status, drain(response), retry_after=wait)
