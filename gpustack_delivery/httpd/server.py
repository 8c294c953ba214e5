"""A threaded HTTP/1.1 server on the standard library, plain or TLS.

The API server of the emulator, its hubs, the plugin's own endpoints and the webhooks all stand on
it. One thread accepts and does nothing slow: the handshake and everything after it happen on the
connection's own thread, so a client that connects and stays silent delays nobody. When every
connection is taken, the one that has waited for its client the longest is closed for the next; and
large bodies share so much memory and no more (`room`).

    with Server(handler, name="hub") as server:
        requests.get(server.url)
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from gpustack_delivery.httpd.accepting import Lobby
from gpustack_delivery.httpd.connection import Connection
from gpustack_delivery.httpd.messages import Handler, Limits
from gpustack_delivery.httpd.room import Room

_CUT_SECONDS = 2.0
_log = logging.getLogger(__name__)


def everywhere() -> str:
    """Return the host that means every address of the machine, of both families if it has both."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - asked for by name


class Server:
    """Listens from `start` to `stop`; after that it may be started again, on the same port.

    Args:
        handler: answers requests, on many threads at once.
        name: names the threads, as one would search for them in a log.
        host: an IPv4 or IPv6 address to listen on; `::` is every address of both families.
        port: 0 takes a free one; see `port` after `start`.
        tls: serves HTTPS with this context, see `certificates.server_context`; a function is asked
            for each connection's. A context in use is no place for another certificate: for a
            moment it would hold the one and the key of the other.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        name: str,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen, so sharing it is safe
    ) -> None:
        self._handler = handler
        self._name = name
        self._host = host
        self._port = port
        self._tls = tls
        self._limits = limits
        self._room = Room(limits)
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._leaving: set[Connection] = set()
        self._lobby: Lobby | None = None
        self._acceptor: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """Scheme, host and port, without a final slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    def start(self) -> Self:
        """Listen and serve.

        Raises:
            OSError: the address is taken or not ours.
        """
        listener = socket.create_server(
            (self._host, self._port),
            family=socket.AF_INET6 if ":" in self._host else socket.AF_INET,
            backlog=self._limits.backlog,
            dualstack_ipv6=self._host == "::" and socket.has_dualstack_ipv6(),
        )
        listener.settimeout(0)
        self._port = listener.getsockname()[1]
        lobby = self._lobby = Lobby(listener)
        self._acceptor = threading.Thread(
            target=lambda: lobby.serve(lambda sock: self._admit(sock, lobby)),
            name=self._name,
            daemon=True,
        )
        self._acceptor.start()
        return self

    def stop(self, drain_seconds: float = 5.0) -> None:
        """Stop listening, end idle connections and live bodies, and give the others time to finish.

        A handler may call it: its own connection is cut.

        Args:
            drain_seconds: after this, connections are cut.
        """
        lobby, acceptor = self._lobby, self._acceptor
        if lobby is None or acceptor is None:
            return
        self._lobby = self._acceptor = None
        lobby.stop()
        acceptor.join()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            connection.drain()
        _join(connections.values(), drain_seconds)
        for connection, thread in connections.items():
            if thread.is_alive():
                connection.cut()
        _join(connections.values(), _CUT_SECONDS)
        others = set(connections.values()) - {threading.current_thread()}
        stuck = [thread.name for thread in others if thread.is_alive()]
        if stuck:
            _log.warning("%s stopped while its handler was still busy in %s", self._name, stuck)
        lobby.close()

    def _admit(self, sock: socket.socket, lobby: Lobby) -> bool:
        """Give a new socket its thread; False when there is no room for it yet."""
        with self._lock:
            taken = len(self._connections) - len(self._leaving)
        if taken >= self._limits.connections and not self._make_room():
            return False
        try:
            client = sock.getpeername()[:2]
        except OSError:  # left already
            sock.close()
            return True
        tls = self._tls() if callable(self._tls) else self._tls
        connection = Connection(sock, client, tls=tls, limits=self._limits, room=self._room)
        thread = threading.Thread(
            target=self._serve,
            args=(connection, lobby),
            name=f"{self._name}:{client[1]}",
            daemon=True,
        )
        with self._lock:
            self._connections[connection] = thread
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left
            with self._lock:
                del self._connections[connection]
            return False
        return True

    def _serve(self, connection: Connection, lobby: Lobby) -> None:
        try:
            connection.run(self._handler, lobby)
        finally:
            with self._lock:
                del self._connections[connection]
                self._leaving.discard(connection)

    def _make_room(self) -> bool:
        """Part with the client that has been waited for the longest; False if all are answered.

        One that is slow, or has nothing to say, must not keep out a probe that has.
        """
        with self._lock:
            staying = self._connections.keys() - self._leaving
        waiting = [(since, each) for each in staying if (since := each.waiting_since) is not None]
        for _, connection in sorted(waiting, key=lambda found: found[0]):
            if connection.give_way():
                with self._lock:
                    if connection in self._connections:
                        self._leaving.add(connection)
                return True
        return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _join(threads: Iterable[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
