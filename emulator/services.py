"""Where a Service leads, and the TLS call to the program behind it.

The API server itself calls two kinds of program: webhooks, and the servers of aggregated APIs. Both
name a Service. It is looked up like the cluster's own network would: a route that was registered
for it, an ExternalName, or the first address of its Endpoints. The certificate must be valid for
`NAME.NAMESPACE.svc` in either case. What goes wrong is worded as a Go program words it, because
that is what people read in conditions and messages.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Protocol

from emulator.contracts import Json

_UNKNOWN_AUTHORITY = frozenset((18, 19, 20, 21))  # self-signed, or an issuer that is not there


class ServiceFault(Exception):
    """A Service that leads nowhere; the text says why."""


class Objects(Protocol):
    """Reads stored objects; `objects.Store` does."""

    def get(self, key: tuple[str, str], namespace: str, name: str) -> Json | None:
        """Return an object."""


class Routes(MutableMapping[tuple[str, str], tuple[str, int]]):
    """What stands in for Services: (namespace, name) to (host, port). Tells who listens."""

    def __init__(self) -> None:
        """Start empty; `listeners` are called after each change, on the thread that made it."""
        self.listeners: list[Callable[[tuple[str, str]], None]] = []
        self._lock = threading.Lock()
        self._routes: dict[tuple[str, str], tuple[str, int]] = {}

    def __getitem__(self, service: tuple[str, str]) -> tuple[str, int]:
        return self._routes[service]

    def __setitem__(self, service: tuple[str, str], address: tuple[str, int]) -> None:
        with self._lock:
            self._routes[service] = address
        self._tell(service)

    def __delitem__(self, service: tuple[str, str]) -> None:
        with self._lock:
            del self._routes[service]
        self._tell(service)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        with self._lock:
            return iter(tuple(self._routes))

    def __len__(self) -> int:
        return len(self._routes)

    def _tell(self, service: tuple[str, str]) -> None:
        for listener in tuple(self.listeners):
            listener(service)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a program is reached, and under which name its certificate must be valid."""

    host: str
    port: int
    server_name: str


def server_name(namespace: str, service: str) -> str:
    """Return the name that a Service's certificate must be valid for."""
    return f"{service}.{namespace}.svc"


def resolve(
    objects: Objects, routes: Routes, namespace: str, name: str, port: int
) -> tuple[str, int]:
    """Return the host and port that a Service's port leads to.

    Raises:
        ServiceFault: there is no such Service, or nothing behind it.
    """
    if (namespace, name) in routes:
        return routes[namespace, name]
    found = objects.get(("", "services"), namespace, name)
    if found is None:
        raise ServiceFault(f"service {json.dumps(name)} not found")
    spec = found.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return spec.get("externalName", ""), port
    for subset in (objects.get(("", "endpoints"), namespace, name) or {}).get("subsets") or ():
        for address in subset.get("addresses") or ():
            ports = subset.get("ports") or [{}]
            return address["ip"], ports[0].get("port", port)
    raise ServiceFault(f"no endpoints available for service {json.dumps(name)}")


def connect(
    address: Address, trust: ssl.SSLContext, timeout_seconds: float
) -> http.client.HTTPConnection:
    """Return an open TLS connection, to be closed by the caller. Raises OSError."""
    connection = http.client.HTTPConnection(address.server_name, address.port)
    plain = socket.create_connection((address.host, address.port), timeout_seconds)
    # A body follows its head at once, instead of waiting until the other end has acknowledged that.
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.sock = trust.wrap_socket(plain, server_hostname=address.server_name)
    except BaseException:
        plain.close()
        raise
    return connection


def reason(fault: OSError, address: Address) -> str:
    """Return a network failure as a Go client words it."""
    if isinstance(fault, TimeoutError):
        return "context deadline exceeded"
    if isinstance(fault, ssl.SSLCertVerificationError):
        unknown = fault.verify_code in _UNKNOWN_AUTHORITY
        detail = "certificate signed by unknown authority" if unknown else fault.verify_message
        return f"tls: failed to verify certificate: x509: {detail}"
    if isinstance(fault, ConnectionRefusedError):
        return f"dial tcp {address.host}:{address.port}: connect: connection refused"
    if isinstance(fault, ConnectionResetError):
        return "read: connection reset by peer"
    return str(fault)
