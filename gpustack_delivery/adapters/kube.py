"""The Kubernetes API over HTTPS: the real `ports.Kube`, and the only importer of `kubernetes`.

The library finds and reads the configuration: a kubeconfig with everything that can stand in one,
or the service account of the Pod we run in. Requests and answers are plain JSON, encoded and
decoded here, so no generated model stands between the wire and our records. Three promises that the
library does not make: a Pod's bearer token is read again for every request, so a rotation is never
noticed by a failure; a 401 makes a kubeconfig be read again, once; and no redirect is followed, so
the token goes nowhere else. Every failure leaves as a class of `errors.ApiFault`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from kubernetes import client, config
from kubernetes.client import rest
from kubernetes.config.incluster_config import InClusterConfigLoader
from urllib3.exceptions import HTTPError

from gpustack_delivery.adapters.kube_answers import decode, fault_of, read_change
from gpustack_delivery.errors import ApiFault, ConfigurationFault, Unreachable
from gpustack_delivery.ports import Change, Page, Watch
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import Json, Resource

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_SIZE: Final = 500
REQUEST_SECONDS: Final = 30.0
# The server sends a bookmark about once a minute; a connection that stays silent for longer is
# dead.
WATCH_SILENCE_SECONDS: Final = 150.0
_CONNECTIONS: Final = 32
# The library's transport lets its own errors through unwrapped.
_TRANSPORT_ERRORS: Final = (HTTPError, OSError)
_CHUNK_BYTES: Final = 1 << 16


class _Kubeconfig:
    """A kubeconfig file; credential plugins and expiry are the library's."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.reload()

    def reload(self) -> bool:
        """Read the file again, for a token that was replaced in it or behind it."""
        settings = client.Configuration()
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]  # the library's gap
                self._path, client_configuration=settings, persist_config=False
            )
        except Exception as error:  # noqa: BLE001 - the library lets its parsers' errors through
            raise ConfigurationFault(
                f"the kubeconfig {self._path} cannot be used: {type(error).__name__}",
                detail=str(error),
            ) from None
        self.settings = settings
        return True

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

    def __init__(self, identity: _Kubeconfig | _ServiceAccount) -> None:
        self._identity = identity
        self._adopt()

    def _adopt(self) -> None:
        settings = self._identity.settings
        settings.connection_pool_maxsize = _CONNECTIONS
        self._base = settings.host.rstrip("/")
        self._pool = rest.RESTClientObject(settings).pool_manager

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object."""
        return self._object(_Call("GET", resource.path(namespace, name)))

    def list_page(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        continue_token: str = "",
    ) -> Page:
        """Return one page of a collection."""
        query = _present(
            limit=str(PAGE_SIZE),
            labelSelector=label_selector,
            fieldSelector=field_selector,
            **{"continue": continue_token},
        )
        body = self._object(_Call("GET", resource.path(namespace), query))
        metadata = body.get("metadata") or {}  # items of built-in types lack kind and apiVersion
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        return Page(
            items=[named | item for item in body.get("items") or ()],
            resource_version=metadata.get("resourceVersion", ""),
            continue_token=metadata.get("continue", ""),
        )

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Watch:
        """Open a watch with bookmarks."""
        query = _present(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        call = _Call("GET", resource.path(namespace), query)
        return _Stream(self._send(call, seconds=WATCH_SILENCE_SECONDS))

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
        return _drain(self._send(_Call("GET", path), seconds=timeout_seconds))

    def _object(self, call: _Call) -> Json:
        body = decode(_drain(self._send(call, seconds=REQUEST_SECONDS)))
        if body is None:
            raise Unreachable("the Kubernetes API answered something that is not a JSON object")
        return body

    def _send(self, call: _Call, *, seconds: float) -> Any:
        """Send a call; return its open answer, which is good."""
        response = self._try(call, seconds)
        if response.status == 401 and self._identity.reload():
            _drain(response)
            self._pool.clear()
            self._adopt()
            response = self._try(call, seconds)
        if response.status >= 300:
            raise _fault(response)
        return response

    def _try(self, call: _Call, seconds: float) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "gpustack-delivery"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if bearer := self._identity.authorization():
            headers["Authorization"] = bearer.reveal()
        target = self._base + call.path
        if call.query:
            target += "?" + urlencode(call.query)
        try:
            return self._pool.request(
                call.method,
                target,
                body=None if call.body is None else msgspec.json.encode(call.body),
                headers=headers,
                timeout=seconds,
                retries=1,
                redirect=False,
                preload_content=False,
            )
        except _TRANSPORT_ERRORS as error:
            raise _unreachable(error) from None


class _Stream:
    """An open watch: one JSON object a line."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._reading = False
        self._closed = False

    def __iter__(self) -> Iterator[Change]:
        self._reading = True
        try:
            for line in self._lines():
                yield read_change(line)
        except (*_TRANSPORT_ERRORS, ValueError) as error:
            # A read on a socket that `close` has just shut down fails in many ways, all of them
            # meant.
            if not self._closed:
                raise _unreachable(error) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """Wake the reader and end the watch; the reader closes the connection, if there is one."""
        self._closed = True
        with suppress(ValueError, RuntimeError, OSError):  # it had ended by itself
            self._response.shutdown()
        if not self._reading:
            self._response.close()

    def _lines(self) -> Iterator[bytes]:
        rest_of_line = b""
        for chunk in self._response.stream(_CHUNK_BYTES):
            *whole, rest_of_line = (rest_of_line + chunk).split(b"\n")
            yield from (line for line in whole if line.strip())


def _path_of(resource: Resource, body: Json, subresource: str) -> str:
    metadata = body["metadata"]
    return resource.path(metadata.get("namespace", ""), metadata["name"], subresource)


def _present(**query: str) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _drain(response: Any) -> bytes:
    try:
        raw: bytes = response.read()
    except _TRANSPORT_ERRORS as error:
        raise _unreachable(error) from None
    response.release_conn()
    return raw


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(
        "the Kubernetes API does not answer", detail=f"{type(error).__name__}: {error}"
    )


def _fault(response: Any) -> ApiFault:
    wait = response.headers.get("Retry-After", "")
    return fault_of(response.status, _drain(response), retry_after=wait)
