"""A request in the air, and how another thread brings it down.

A thread that waits for bytes sits in the kernel; only shutting its socket down wakes it. `abort`
may come at any moment, even before there is a socket: the request then ends as soon as it has one.
`adapters/http.py` boards the socket, from `connected` on, and lets it go again; watchdogs and
cancellation abort. Name resolution alone cannot be ended: the resolver's own patience limits it.

A flight is the thread's: whatever a thread asks for inside `aboard` travels on it.
"""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final


class Flight:
    """One request, or one after another on the same thread; abort them from any other thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False

    @property
    def aborted(self) -> bool:
        """Say whether somebody brought this flight down."""
        return self._aborted

    def board(self, connected: socket.socket | None) -> None:
        """Name the socket the request now waits on."""
        with self._lock:
            self._socket = connected
            if self._aborted:
                self._shut()

    def land(self) -> None:
        """Let go of the socket: the answer is read, and the connection is the pool's again."""
        with self._lock:
            self._socket = None

    def abort(self) -> None:
        """End the request: its thread reads end-of-file or an error at once."""
        with self._lock:
            self._aborted = True
            self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            # The base class's method on purpose: SSLSocket.shutdown first forgets its TLS state,
            # and a thread that reads at that moment would take ciphertext for content.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_CURRENT: Final[ContextVar[Flight | None]] = ContextVar("flight", default=None)


@contextmanager
def aboard(flight: Flight | None) -> Iterator[None]:
    """Let every request that this thread makes meanwhile travel on a flight; None: on none."""
    entered = _CURRENT.set(flight)
    try:
        yield
    finally:
        _CURRENT.reset(entered)


def current_flight() -> Flight | None:
    """Return the flight that this thread's requests travel on."""
    return _CURRENT.get()


@contextmanager
def landing() -> Iterator[None]:
    """Let go of the socket in the end: it may be another request's by then."""
    try:
        yield
    finally:
        if flight := _CURRENT.get():
            flight.land()


class Fleet:
    """The requests of one client that are in the air, and the word that ends them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._air: set[Flight] = set()
        self._grounded = False

    @contextmanager
    def flight(self) -> Iterator[None]:
        """Let this thread's requests travel on a flight of the fleet.

        Raises:
            OSError: the fleet is grounded.
        """
        flight = Flight()
        with self._lock:
            if self._grounded:
                raise OSError(errno.ECANCELED, "this program is ending")
            self._air.add(flight)
        try:
            with aboard(flight):
                yield
        finally:
            flight.land()
            with self._lock:
                self._air.discard(flight)

    def ground(self) -> None:
        """End every request that is in the air, and refuse each that would follow."""
        with self._lock:
            self._grounded = True
            air = tuple(self._air)
        for flight in air:
            flight.abort()


class TlsSocket(ssl.SSLSocket):
    """A TLS connection that is aboard its thread's flight before its handshake."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is inherited
        """Shake hands; see the base class."""
        if flight := _CURRENT.get():
            flight.board(self)
        super().do_handshake(block)


def connected(
    address: tuple[str, int], seconds: float | None, options: Iterable[tuple[int, int, int]]
) -> socket.socket:
    """Return a TCP connection, aboard the thread's flight from before it is made.

    Args:
        address: host and port; each of the host's addresses is tried in turn.
        seconds: how long each may take.
        options: what `setsockopt` gets first.

    Raises:
        OSError: none could be reached, or the flight was aborted.
    """
    flight, failure = _CURRENT.get(), OSError("the name has no address")
    host, port = address[0].strip("[]"), address[1]
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if flight is not None and flight.aborted:
            break
        connection = socket.socket(family, kind, protocol)
        try:
            for option in options:
                connection.setsockopt(*option)
            connection.settimeout(seconds)
            if flight is not None:
                flight.board(connection)
            connection.connect(where)
        except OSError as error:
            failure = error
            connection.close()
        else:
            if flight is not None:
                flight.board(connection)  # one that was aborted before it connected ends here
            return connection
    if flight is not None and flight.aborted:
        # Not the kernel's own word, a reset: urllib3 would go on to read what was answered before.
        raise OSError(errno.ECANCELED, "the request was aborted")
    raise failure
