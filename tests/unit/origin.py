"""A small origin server for unit tests: what it answers, and how it misbehaves, is a function.

The handler gets the request and the wire, and may write anything to it, broken things included; the
server itself only accepts, reads heads and keeps a log. Use it as a context manager.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeAlias

from gpustack_delivery.httpd.certificates import Authority, server_context


@dataclass(frozen=True)
class Seen:
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def byte_range(self) -> tuple[int, int]:
        """Return first and last byte that the Range header asks for."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        assert found is not None, f"no plain range in {self}"
        return int(found[1]), int(found[2])


class Wire:
    """The connection, for a handler to write to."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._sock.sendall(data)

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Write a whole answer; header names have `_` for `-`; Content_Length="" leaves it out."""
        headers.setdefault("Content_Length", str(len(body)))
        lines = [f"HTTP/1.1 {status} Said"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def respond_range(self, seen: Seen, content: bytes) -> None:
        """Answer a range request as a good server does."""
        first, last = seen.byte_range
        part = content[first : last + 1]
        span = f"bytes {first}-{first + len(part) - 1}/{len(content)}"
        self.respond(206, part, Content_Range=span)

    def wait_for_hangup(self) -> None:
        """Say nothing until the client is gone."""
        with suppress(OSError):
            while self._sock.recv(4096):
                pass

    def hung_up(self, seconds: float) -> bool:
        """Wait a moment for the client to go; say whether it has."""
        self._sock.settimeout(seconds)
        try:
            return not self._sock.recv(4096)
        except TimeoutError:
            return False
        finally:
            self._sock.settimeout(None)

    def splice(self, port: int) -> None:
        """Carry bytes both ways between this connection and a local port until one side ends."""
        with socket.create_connection(("127.0.0.1", port)) as other:
            back = threading.Thread(target=_pump, args=(other, self._sock))
            back.start()
            _pump(self._sock, other)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for sock in (source, sink):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


Handler: TypeAlias = Callable[[Seen, Wire], object]
HANG_UP = "hang up"
"""A handler returns this to have its connection closed."""


class Origin:
    """The server; requests are in `seen` in the order their heads were read."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept)
        self.seen: list[Seen] = []
        self.connections = 0
        scheme = "https" if tls else "http"
        self.port = self._listener.getsockname()[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            for sock in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(sock,))
            with self._lock:
                self.connections += 1
                self._open.add(sock)
                self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        sock = plain
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(plain, server_side=True)
                with self._lock:
                    self._open.add(sock)
            self._converse(sock)
        except OSError:
            pass  # the client went away, which many tests make it do
        finally:
            with self._lock:
                self._open -= {plain, sock}
            sock.close()
            plain.close()

    def _converse(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as reader:
            while line := reader.readline().decode("latin-1").strip():
                method, target, _ = line.split(" ")
                headers = {}
                while header := reader.readline().decode("latin-1").strip():
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                seen = Seen(method, target, headers)
                with self._lock:
                    self.seen.append(seen)
                if self._handler(seen, Wire(sock)) == HANG_UP:
                    return


def tls_terms(*hosts: str) -> tuple[ssl.SSLContext, str]:
    """Return a server's TLS context for some hosts, and the PEM of the CA that signed it."""
    authority = Authority("tests")
    pair = authority.issue("origin", hosts or ("127.0.0.1",))
    return server_context(pair), authority.certificate_pem
