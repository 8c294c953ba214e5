"""Who asks: what the cluster's aggregator says in headers, believed because of its certificate.

The API server publishes the CA of its front-proxy certificate, the certificate's allowed names and
the headers' names in one ConfigMap of kube-system. TLS checks the CA; the name is checked here. A
request without that certificate is nobody's, whatever its headers claim.

Rule: VW-AUT-01.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote

from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.worker.public_api.statuses import Refused

CONFIG_MAP: Final = "extension-apiserver-authentication"
CONFIG_MAP_NAMESPACE: Final = "kube-system"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked, in the words of the API server that authenticated them."""

    username: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the aggregator is recognized: its CA (PEM), its names, and the headers it writes.

    No names at all allow every certificate of the CA.
    """

    ca_pem: str
    names: tuple[str, ...]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    uid_headers: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, config_map: Mapping[str, Any]) -> Self:
        """Read the ConfigMap.

        Raises:
            ConfigurationFault: this API server passes requests on to nobody.
        """
        data = config_map.get("data") or {}
        ca_pem = data.get("requestheader-client-ca-file", "")
        users = _names(data, "requestheader-username-headers")
        if not ca_pem or not users:
            raise ConfigurationFault(
                f"the ConfigMap {CONFIG_MAP_NAMESPACE}/{CONFIG_MAP} names no request-header CA: "
                "start the API server with --requestheader-client-ca-file and its companions"
            )
        return cls(
            ca_pem,
            _names(data, "requestheader-allowed-names"),
            users,
            _names(data, "requestheader-group-headers"),
            _names(data, "requestheader-extra-headers-prefix"),
            _names(data, "requestheader-uid-headers"),
        )

    def caller(self, request: Request) -> Caller:
        """Return who asked.

        Raises:
            Refused: the request did not come through the aggregator.
        """
        name = _common_name(request.client_certificate)
        if name is None or (self.names and name not in self.names):
            message = "Unauthorized: this server is reached through the cluster's API server only"
            raise Refused(401, "Unauthorized", message)
        username = _first(request.headers, self.user_headers)
        if not username:
            raise Refused(401, "Unauthorized", "Unauthorized: the front proxy named no user")
        groups = [
            group for header in self.group_headers for group in request.headers.get_all(header)
        ]
        return Caller(
            username,
            tuple(groups),
            _first(request.headers, self.uid_headers),
            self._extra(request.headers),
        )

    def _extra(self, headers: Headers) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name, value in headers.items():
            for prefix in self.extra_prefixes:
                if name.lower().startswith(prefix.lower()):
                    key = unquote(name[len(prefix) :].lower())
                    found[key] = (*found.get(key, ()), value)
        return found


def _names(data: Json, key: str) -> tuple[str, ...]:
    text = data.get(key) or "[]"
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigurationFault(f"{key} in the ConfigMap {CONFIG_MAP} must be a list of names")
    return tuple(names)


def _first(headers: Headers, names: Sequence[str]) -> str:
    return next((value for name in names if (value := headers.get(name))), "")


def _common_name(certificate: Mapping[str, Any] | None) -> str | None:
    for group in (certificate or {}).get("subject", ()):
        for key, value in group:
            if key == "commonName":
                return str(value)
    return None if certificate is None else ""
