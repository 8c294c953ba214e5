"""One client connection, from handshake to farewell, on a thread of its own.

Whatever the client sends or the handler raises, the thread ends in order: bodies closed, socket
closed, nothing left registered. A client that left is no event worth a log line; a handler's
exception is.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from gpustack_delivery.httpd import writing
from gpustack_delivery.httpd.messages import Body, Handler, Limits, Refusal, Request, Response
from gpustack_delivery.httpd.reading import Head, Reader
from gpustack_delivery.httpd.room import Room

_LINGER_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Hangups(Protocol):
    """Watches sockets for the other end's farewell, and knows of the server's own."""

    @property
    def stopping(self) -> bool:
        """Whether the server takes no new requests."""

    def watch(self, sock: socket.socket, close: Callable[[], None]) -> None:
        """Call `close` from another thread when the other end hangs up or the server stops."""

    def forget(self, sock: socket.socket) -> None:
        """Stop watching a socket."""


class Connection:
    """Serves the requests of one socket until either side has had enough.

    Args:
        sock: the accepted socket, now owned here.
        client: the peer's address and port.
        tls: performs the handshake, on this connection's own thread; None for plain HTTP.
        room: what the bodies of all connections may hold.
    """

    def __init__(
        self,
        sock: socket.socket,
        client: tuple[str, int],
        *,
        tls: ssl.SSLContext | None,
        limits: Limits,
        room: Room,
    ) -> None:
        self._sock = sock
        self._client = client
        self._tls = tls
        self._limits = limits
        self._room = room
        self._patience = limits.header_seconds
        self._certificate: Mapping[str, Any] | None = None
        self._lock = threading.Lock()  # `drain` and `cut` reach the socket from other threads
        self._idle = True  # until the first request is here
        self._draining = False
        self._over = False
        self._waiting_since: float | None = time.monotonic()

    @property
    def waiting_since(self) -> float | None:
        """Since when it waits for its client, on the monotonic clock; None while it is answered."""
        return self._waiting_since

    def run(self, handler: Handler, hangups: Hangups) -> None:
        """Serve until the connection ends. Never raises."""
        orderly = True
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                self._shake_hands(self._tls)
            reader = Reader(self._sock, self._limits)
            while self._serve_one(reader, handler, hangups):
                pass
        except writing.Cut as cut:
            orderly = False
            _log.warning(
                "an answer to %s was cut short: %s", self._client[0], cut, exc_info=cut.__cause__
            )
        except OSError as error:
            # The client left, speaks something else, or took nothing for too long.
            orderly = not isinstance(error, ConnectionResetError)
        except Exception:  # noqa: BLE001 - a fault of ours ends one connection, and is told
            orderly = False
            _log.exception("the connection of %s failed", self._client[0])
        finally:
            self._close(orderly=orderly)

    def drain(self) -> None:
        """End an idle connection now and a busy one after its answer. For other threads."""
        with self._lock:
            self._draining = True
            if self._idle:
                self._shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """End the connection now, whatever it is doing. For other threads."""
        with self._lock:
            self._end()

    def give_way(self) -> bool:
        """End the connection now if it only waits for its client. For other threads."""
        with self._lock:
            if self._waiting_since is None:
                return False
            self._end()
            return True

    def _end(self) -> None:
        self._draining = self._over = True
        self._shutdown(socket.SHUT_RDWR)

    def _shake_hands(self, tls: ssl.SSLContext) -> None:
        self._sock.settimeout(self._limits.handshake_seconds)
        with self._lock:
            secure = tls.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
            self._sock = secure
        try:
            secure.do_handshake()
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                answer = _plain(400, "this port speaks HTTPS")
                framed = writing.frame(answer, to_head=False, http_1_0=True, keep_alive=False)
                # Beneath the TLS layer, which has nothing to say to this client.
                socket.socket.sendall(secure, framed.head + b"this port speaks HTTPS\n")
                self._linger()
            raise
        self._certificate = secure.getpeercert() or None

    def _serve_one(self, reader: Reader, handler: Handler, hangups: Hangups) -> bool:
        """Read and answer one request; return whether the connection lives on."""
        try:
            head = self._next_head(reader)
            if head is None:
                return False
            with self._room.hold(self, head.length):
                response = self._answer(head, reader, handler)
        except Refusal as refusal:
            self._send(_refused(refusal), None, hangups)
            self._linger()
            return False
        if response is None:
            return False
        if callable(response.body):
            self._sock.settimeout(self._limits.write_seconds)
            try:
                response.body(self._sock, reader.rest())
            finally:
                if response.done is not None:
                    response.done(0)
            return False
        keep_alive = self._send(response, head, hangups)
        if not keep_alive and reader.pending:
            self._linger()
        return keep_alive

    def _answer(self, head: Head, reader: Reader, handler: Handler) -> Response | None:
        """Read a request's body and ask the handler; None if it had to give way meanwhile.

        Raises:
            Refusal: the body is malformed, too large or too slow.
        """
        if head.expects_continue and head.length != 0 and not reader.pending:
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = reader.body(head)
        if not self._turn_to_answer():
            return None
        request = Request(
            head.method,
            head.target,
            head.path,
            head.query,
            head.headers,
            body,
            self._client,
            self._certificate,
        )
        return _ask(handler, request)

    def _next_head(self, reader: Reader) -> Head | None:
        with self._lock:
            if self._draining:
                return None
            self._idle = not reader.pending
            if self._waiting_since is None:  # or it waits already, since its answer was ready
                self._waiting_since = time.monotonic()
        try:
            return reader.head(self._patience)
        finally:
            with self._lock:
                self._idle = False
            self._patience = self._limits.idle_seconds

    def _turn_to_answer(self) -> bool:
        """Wait for the client no longer, its request is whole; False if it had to give way."""
        with self._lock:
            self._waiting_since = None
            return not self._over

    def _send(self, response: Response, head: Head | None, hangups: Hangups) -> bool:
        """Send a response, close its body and return whether the connection lives on."""
        body, done = response.body, response.done
        try:
            framed = self._frame(response, head, hangups)
        except Exception:  # noqa: BLE001 - whatever the handler built, the client gets an answer
            _close_body(body)
            _log.exception("a handler's answer cannot be sent")
            response = _failed()
            framed = self._frame(response, head, hangups)
        self._sock.settimeout(self._limits.write_seconds)
        watched = response.live and not framed.silent
        tally = writing.Tally()
        if isinstance(response.body, bytes):  # done with: what is left is for the client to take
            self._waiting_since = time.monotonic()
        try:
            if watched:
                hangups.watch(self._sock, lambda: _close_body(body))
            writing.transmit(self._sock, response, framed, tally)
        finally:
            if watched:
                hangups.forget(self._sock)
            _close_body(response.body)
            if done is not None:
                done(tally.body_bytes)
        return framed.keep_alive

    def _frame(self, response: Response, head: Head | None, hangups: Hangups) -> writing.Frame:
        return writing.frame(
            response,
            to_head=head is not None and head.method == "HEAD",
            http_1_0=head is not None and head.http_1_0,
            keep_alive=head is not None and head.keep_alive and not hangups.stopping,
        )

    def _linger(self) -> None:
        """Say goodbye and read on a moment: to close over unread bytes takes the answer back."""
        self._sign_off()
        with suppress(OSError):
            self._shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + _LINGER_SECONDS
            while (remaining := deadline - time.monotonic()) > 0:
                self._sock.settimeout(remaining)
                # Beneath TLS as well: what still comes is thrown away.
                if not socket.socket.recv(self._sock, 65536):
                    break

    def _sign_off(self) -> None:
        """Send TLS's own farewell without waiting for the client's."""
        if isinstance(self._sock, ssl.SSLSocket):
            with suppress(OSError, ValueError):
                self._sock.settimeout(0)
                self._sock.unwrap()

    def _shutdown(self, how: int) -> None:
        # Not SSLSocket.shutdown, which would drop the TLS state under the thread that uses it.
        with suppress(OSError):
            socket.socket.shutdown(self._sock, how)

    def _close(self, *, orderly: bool) -> None:
        if orderly:
            self._sign_off()
        with self._lock:
            if not orderly:  # a reset: whoever reads until the end must not take this for one
                with suppress(OSError):
                    self._sock.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
            self._sock.close()


def _ask(handler: Handler, request: Request) -> Response:
    try:
        return handler(request)
    except Exception:  # noqa: BLE001 - a handler's fault is an answer, never a dead thread
        _log.exception("%s %s failed", request.method, request.path)
        return _failed()


def _failed() -> Response:
    return _plain(500, "this request failed; the server's log says why")


def _refused(refusal: Refusal) -> Response:
    response = _plain(refusal.status, str(refusal))
    if refusal.retry_seconds:
        response.headers.append(("Retry-After", str(refusal.retry_seconds)))
    return response


def _plain(status: int, message: str) -> Response:
    return Response(
        status, [("Content-Type", "text/plain; charset=utf-8")], f"{message}\n".encode()
    )


def _close_body(body: Body) -> None:
    close = getattr(body, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception:  # noqa: BLE001 - a body that cannot close must not end the thread
        _log.exception("the body of an answer failed to close")
