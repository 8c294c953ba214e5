"""The Kubernetes API over HTTPS: the real `ports.Kube`, and the only importer of `kubernetes`.

The library finds and reads the configuration: a kubeconfig with everything that can stand in one,
or the service account of the Pod we run in. Requests and answers are plain JSON, encoded and
decoded here, so no generated model stands between the wire and our records. Three promises that the
library does not make: a Pod's bearer token is read again for every request, so a rotation is never
noticed by a failure; a 401 makes a kubeconfig be read again, once; and no redirect is followed, so
the token goes nowhere else. Every failure leaves as a class of `errors.ApiFault`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3.util
from kubernetes import client, config
from kubernetes.client import rest
from kubernetes.config.incluster_config import InClusterConfigLoader

from gpustack_delivery.adapters.kube_answers import decode, fault_of
from gpustack_delivery.adapters.kube_streams import (
    TRANSPORT_ERRORS,
    PassedOn,
    Stream,
    drain,
    unreachable,
)
from gpustack_delivery.adapters.kubeconfig import kubeconfig_fault
from gpustack_delivery.decisions.addresses import endpoint_fault
from gpustack_delivery.errors import ApiFault, ConfigurationFault, Unreachable
from gpustack_delivery.ports import Errand, Page, Reply, Selection, Watch
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import Json, Resource

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_SIZE: Final = 500
REQUEST_SECONDS: Final = 30.0
# The server sends a bookmark about once a minute; a connection that stays silent for longer is
# dead.
WATCH_SILENCE_SECONDS: Final = 150.0
_CONNECTIONS: Final = 32
# Once more at once, for a connection that the server had just given up. A wish to wait is the
# caller's to hear: the transport would sleep through it, a day if need be, and nothing wakes it.
_AGAIN: Final = urllib3.util.Retry(1, redirect=False, respect_retry_after_header=False)
_log = logging.getLogger(__name__)


class _Kubeconfig:
    """A kubeconfig file; credential plugins and expiry are the library's."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._load()

    def reload(self) -> bool:
        """Read the file again, for a token that was replaced in it or behind it."""
        try:
            self._load()
        except ConfigurationFault as fault:  # somebody is at it: what was read before still counts
            _log.error("%s", fault)
            return False
        return True

    def _load(self) -> None:
        settings = client.Configuration()
        settings.host = ""  # the library's own default would hide that none is named
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]  # the library's gap
                self._path, client_configuration=settings, persist_config=False
            )
            self.pool = _pool(settings)
            usable = not endpoint_fault(settings.host)
        except Exception:  # noqa: BLE001 - the library lets its parsers' errors through
            usable = False
        if not usable:
            raise ConfigurationFault(f"the kubeconfig {kubeconfig_fault(self._path)}")
        self.settings = settings

    def authorization(self) -> Token:
        """Return the Authorization header's value; empty for client certificates."""
        return Token(self.settings.get_api_key_with_prefix("BearerToken", "authorization") or "")


class _ServiceAccount:
    """The Pod's own identity: address from the environment, CA and token from mounted files."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._token = directory / "token"
        self.settings = client.Configuration()
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]  # the library's gap
            token_filename=str(self._token),
            cert_filename=str(directory / "ca.crt"),
            try_refresh_token=False,
            environ=environment,
        )
        try:
            loader.load_and_set(self.settings)  # type: ignore[no-untyped-call]  # likewise
        except (config.ConfigException, OSError) as error:
            raise ConfigurationFault(
                "there is no way to the Kubernetes API: run in a Pod with a service account, "
                "or name a kubeconfig",
                detail=str(error),
            ) from None
        self.pool = _pool(self.settings)

    def reload(self) -> bool:
        """Do nothing: the token is read for every request anyway."""
        return False

    def authorization(self) -> Token:
        """Return the Authorization header's value."""
        try:
            return Token("Bearer " + self._token.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            message = "the service account token cannot be read"
            raise Unreachable(message, detail=str(error)) from None


def _pool(settings: client.Configuration) -> Any:
    settings.connection_pool_maxsize = _CONNECTIONS
    return rest.RESTClientObject(settings).pool_manager


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
        return KubeClient(_Kubeconfig(kubeconfig))
    return KubeClient(_ServiceAccount(account, environment))


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
        self, identity: _Kubeconfig | _ServiceAccount, patience_seconds: float = REQUEST_SECONDS
    ) -> None:
        self._identity = identity
        self._patience = patience_seconds
        self._adopt()

    def within(self, seconds: float) -> KubeClient:
        """Return a client of the same connections that gives silence up sooner, watches apart."""
        return KubeClient(self._identity, seconds)

    def _adopt(self) -> None:
        self._base = self._identity.settings.host.rstrip("/")
        self._pool = self._identity.pool

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
        return drain(self._send(_Call("GET", path), seconds=timeout_seconds))

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Reply:
        """Send a request as it is; its answer, good or bad, is the caller's to read and close."""
        response = self._authorized(errand, timeout_seconds)
        if response.status == 401:  # ours is the identity that was refused, not the caller's
            raise _fault(response)
        return PassedOn(response)

    def _object(self, call: _Call) -> Json:
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
