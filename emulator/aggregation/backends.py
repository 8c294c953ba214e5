"""Calls to the server behind an APIService, with the front proxy's certificate.

The answer to a request that is passed on is streamed when its length is not known: a watch is then
one without the front knowing what a watch is.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass

from emulator.aggregation.front_proxy import CHECKER, FrontProxy
from emulator.contracts import Caller, Json
from emulator.services import Address, Objects, Routes, connect, reason, resolve, server_name
from gpustack_delivery.httpd import Response
from gpustack_delivery.httpd.certificates import client_context

CHECK_SECONDS = 5.0
FORWARD_SECONDS = 60.0
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_OWN = frozenset(("audit-id", "content-length", "date"))


class BackendFault(Exception):
    """The server behind an APIService did not answer; the text says why, in a Go client's words."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to be sent to a server behind the front."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _Opened:
    """An answer whose head has come."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    socket: socket.socket  # the connection forgets it when the server says it will close

    def close(self) -> None:
        """Close everything; twice is no error."""
        self.response.close()
        self.connection.close()


class Backends:
    """Calls servers by the `spec` of their APIServices. Thread-safe."""

    def __init__(self, objects: Objects, routes: Routes, proxy: FrontProxy) -> None:
        self._objects, self._routes, self._proxy = objects, routes, proxy
        self._lock = threading.Lock()
        self._trust: dict[str | None, ssl.SSLContext] = {}

    def address(self, spec: Json) -> Address:
        """Return where the server is. Raises ServiceFault."""
        service = spec["service"]
        namespace, name = service["namespace"], service["name"]
        host, port = resolve(
            self._objects, self._routes, namespace, name, service.get("port") or 443
        )
        return Address(host, port, server_name(namespace, name))

    def ask(
        self, spec: Json, path: str, *, method: str = "GET", caller: Caller = CHECKER
    ) -> tuple[int, bytes]:
        """Return status and body of a request without one, as the aggregator itself or another.

        Raises:
            BackendFault: no answer. ServiceFault: nothing to ask.
        """
        address = self.address(spec)
        headers = (("Accept", "application/json"), *self._proxy.headers(caller))
        outgoing = Outgoing(method, path, (("Host", f"{address.host}:{address.port}"), *headers))
        try:
            with closing(self._exchange(spec, address, outgoing, CHECK_SECONDS)) as opened:
                return opened.response.status, opened.response.read()
        except OSError as fault:
            url = f"https://{address.host}:{address.port}{path}"
            raise BackendFault(f'{method.capitalize()} "{url}": {reason(fault, address)}') from None
        except http.client.HTTPException:
            url = f"https://{address.host}:{address.port}{path}"
            raise BackendFault(f'{method.capitalize()} "{url}": EOF') from None

    def send(self, spec: Json, address: Address, outgoing: Outgoing) -> Response:
        """Return the server's answer to a request. Raises BackendFault."""
        try:
            opened = self._exchange(spec, address, outgoing, FORWARD_SECONDS)
        except OSError as fault:
            raise BackendFault(reason(fault, address)) from None
        except http.client.HTTPException:
            raise BackendFault("EOF") from None
        response, headers = opened.response, passed_on(opened.response.getheaders())
        if response.length is None:
            return Response(response.status, headers, StreamedBody(opened), live=True)
        with closing(opened):
            try:
                return Response(response.status, headers, response.read())
            except (OSError, http.client.HTTPException):
                raise BackendFault("unexpected EOF") from None

    def _exchange(
        self, spec: Json, address: Address, outgoing: Outgoing, timeout_seconds: float
    ) -> _Opened:
        connection = connect(address, self._trusting(spec), timeout_seconds)
        opened_socket = connection.sock
        try:
            connection.putrequest(
                outgoing.method, outgoing.target, skip_host=True, skip_accept_encoding=True
            )
            for name, value in outgoing.headers:
                connection.putheader(name, value)
            if outgoing.body or outgoing.method in {"POST", "PUT", "PATCH"}:
                connection.putheader("Content-Length", str(len(outgoing.body)))
            connection.endheaders(outgoing.body or None)
            return _Opened(connection, connection.getresponse(), opened_socket)
        except BaseException:
            connection.close()
            raise

    def _trusting(self, spec: Json) -> ssl.SSLContext:
        """Return the TLS context for a server: its caBundle, the system's CAs, or anyone."""
        key = None if spec.get("insecureSkipTLSVerify") else str(spec.get("caBundle") or "")
        with self._lock:
            if key not in self._trust:
                self._trust[key] = _context(key, self._proxy)
            return self._trust[key]


def passed_on(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers that mean something beyond this connection, the length apart."""
    return [
        pair
        for pair in headers
        if pair[0].lower() not in _HOP_BY_HOP and pair[0].lower() not in _OWN
    ]


def _context(bundle: str | None, proxy: FrontProxy) -> ssl.SSLContext:
    if bundle is None:
        return client_context("", proxy.pair)
    if bundle:
        return client_context(base64.b64decode(bundle).decode(), proxy.pair)
    # The system's CAs would count, and have signed nothing here: any server is refused.
    return client_context(proxy.authority_pem, proxy.pair)


class StreamedBody:
    """An answer of unknown length, as it comes; `close` ends it from any thread, and twice."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        self._reading = threading.Lock()
        opened.socket.settimeout(None)  # a watch may be silent for as long as it likes

    def __iter__(self) -> StreamedBody:
        return self

    def __next__(self) -> bytes:
        with self._reading:
            try:
                piece = self._opened.response.read1(65536)
            except (OSError, ValueError, http.client.HTTPException):
                piece = b""  # broken off there, or closed here
            if not piece:
                self._opened.close()
                raise StopIteration
            return piece

    def close(self) -> None:
        """End the stream: a read under way comes back."""
        with suppress(OSError):  # it has ended by itself
            self._opened.socket.shutdown(socket.SHUT_RDWR)
        with self._reading:
            self._opened.close()
