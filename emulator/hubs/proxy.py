"""A forward proxy that shows what went through it.

It tunnels CONNECT, forwards absolute `http://` targets, and can send names that exist nowhere to
a local port: with `routes={"huggingface.co:443": ("127.0.0.1", port)}` a client that uses the
proxy reaches the emulated hub under its real name, and one that does not use it reaches nothing.
A tunnel's content is not looked at.
"""

from __future__ import annotations

import http.client
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from emulator.clock import SystemClock
from emulator.contracts import Clock
from emulator.hubs.request_log import Entry, RequestLog
from gpustack_delivery.httpd import Request, Response, Server

_CONNECT_SECONDS = 10.0
_PIECE_BYTES = 64 * 1024
_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


class Proxy:
    """An HTTP proxy from `start` to `stop`; `requests` tells what it was asked.

    In the log a tunnel's path is `host:port`, a forwarded request's its URL without query.

    Args:
        routes: where connections to a `host:port` really go.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        routes: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        self.requests = RequestLog(clock or SystemClock())
        self._routes = dict(routes or {})
        self._server = Server(self._handle, name="proxy", host=host)

    @property
    def url(self) -> str:
        """Return the proxy's address as clients are told it."""
        return self._server.url

    def start(self) -> Self:
        """Listen, on the port of the last time if there was one."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Cut every tunnel and refuse connections."""
        self._server.stop(drain_seconds=0.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _handle(self, request: Request) -> Response:
        target = urlsplit(request.target)
        if request.method == "CONNECT":
            entry = self.requests.begin("proxy", request, request.target)
            response = self._tunnel(request, entry)
        else:
            entry = self.requests.begin("proxy", request, request.target.partition("?")[0])
            if target.scheme == "http":
                response = self._forward(request, target.netloc)
            else:
                response = _refusal(400, "this proxy wants CONNECT or an http:// URL")
        entry.status = response.status
        if not callable(response.body):
            response.done = lambda sent_bytes: self.requests.end(entry, sent_bytes)
        return response

    def _address(self, authority: str, default_port: int) -> tuple[str, int]:
        """Return where to connect for `host` or `host:port`.

        Raises:
            ValueError: the authority is malformed.
        """
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname or "", parts.port or default_port
        return self._routes.get(f"{host}:{port}", (host, port))

    def _tunnel(self, request: Request, entry: Entry) -> Response:
        try:
            address = self._address(request.target, 443)
            upstream = socket.create_connection(address, _CONNECT_SECONDS)
            upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, ValueError):
            return _refusal(502, "the proxy cannot connect there")

        def run(client: socket.socket, rest: bytes) -> None:
            received = 0
            try:
                with upstream:
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    upstream.sendall(rest)
                    for size in _pump(client, upstream):
                        received += size
            finally:
                self.requests.end(entry, received)

        return Response(200, body=run)

    def _forward(self, request: Request, authority: str) -> Response:
        try:
            host, port = self._address(authority, 80)
            connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
            path = request.path + (f"?{request.query}" if request.query else "")
            headers = {
                name: value
                for name, value in request.headers.items()
                if name.lower() not in _HOP_BY_HOP
            }
            connection.request(request.method, path, request.body or None, headers)
            answer = connection.getresponse()
        except (OSError, ValueError, http.client.HTTPException):
            return _refusal(502, "the proxy cannot connect there")
        kept = [pair for pair in answer.getheaders() if pair[0].lower() not in _HOP_BY_HOP]
        if request.method == "HEAD" or answer.status in {204, 304}:
            connection.close()
            return Response(answer.status, kept)
        return Response(answer.status, kept, _body(connection, answer))


def _body(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
) -> Iterator[bytes]:
    with closing(connection), answer:
        while piece := answer.read1(_PIECE_BYTES):
            yield piece


def _pump(client: socket.socket, upstream: socket.socket) -> Iterator[int]:
    """Copy both ways until either side ends; yield how many bytes went to the client each time."""
    others = {client.fileno(): (client, upstream), upstream.fileno(): (upstream, client)}
    ready = select.poll()
    for descriptor in others:
        ready.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in ready.poll():
            source, sink = others[descriptor]
            data = source.recv(_PIECE_BYTES)
            if not data:
                return
            sink.sendall(data)
            if sink is client:
                yield len(data)


def _refusal(status: int, message: str) -> Response:
    return Response(status, [("Content-Type", "text/plain")], f"{message}\n".encode())
