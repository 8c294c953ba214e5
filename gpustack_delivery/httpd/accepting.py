"""What the accepting thread waits for: new clients, clients that hang up, and the word to stop.

A thread that serves a watch sleeps until the next event and would not notice that nobody listens
any more. So the accepting thread, which waits on the kernel anyway, watches those sockets as
well. Linux only, like the rest of the node: epoll says `RDHUP` even while unread bytes are
queued.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable

# After a failed accept (no descriptors, no room) the listener is left alone for a moment instead
# of spinning.
_PAUSE_SECONDS = 0.05


class Lobby:
    """Waits on one listening socket and any number of sockets with live bodies."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._lock = threading.Lock()
        self._closers: dict[int, Callable[[], None]] = {}
        self._stopped = False

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def serve(self, admit: Callable[[socket.socket], bool]) -> None:
        """Hand every new socket to `admit` until `stop`; one it has no room for is kept waiting.

        Returns when stopped, with the listener closed.
        """
        paused = False
        waiting: socket.socket | None = None
        while not self._stopped:
            events = self._epoll.poll(_PAUSE_SECONDS if paused else None)
            for descriptor, _ in events:
                if descriptor not in {self._listener.fileno(), self._wake}:
                    self._hung_up(descriptor)
            try:
                waiting = waiting or self._listener.accept()[0]
                room = admit(waiting)
                waiting = None if room else waiting
            except (BlockingIOError, ConnectionAbortedError):
                room = True
            except OSError:  # out of descriptors
                room = False
            if paused == room:
                paused = not room
                self._epoll.modify(self._listener.fileno(), select.EPOLLIN if room else 0)
        if waiting:
            waiting.close()
        self._listener.close()

    def watch(self, sock: socket.socket, close: Callable[[], None]) -> None:
        """Call `close` from the accepting thread when the other end hangs up, and at `stop`."""
        descriptor = sock.fileno()
        with self._lock:
            if not self._stopped:
                self._closers[descriptor] = close
                self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)
                return
        close()

    def forget(self, sock: socket.socket) -> None:
        """Stop watching a socket; call it before the socket is closed."""
        descriptor = sock.fileno()
        with self._lock:
            if self._closers.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)

    def stop(self) -> None:
        """End `serve` and close every live body."""
        with self._lock:
            self._stopped = True
            closers = list(self._closers.values())
            self._closers.clear()
        os.eventfd_write(self._wake, 1)
        for close in closers:
            close()

    def close(self) -> None:
        """Release the kernel's objects, once `serve` has returned."""
        self._epoll.close()
        os.close(self._wake)

    def _hung_up(self, descriptor: int) -> None:
        with self._lock:
            # The event may be older than the socket: its number is reused as soon as it is free.
            now = select.poll()
            now.register(descriptor, select.POLLRDHUP)
            if descriptor not in self._closers or not now.poll(0):
                return
            close = self._closers.pop(descriptor)
            self._epoll.unregister(descriptor)
        close()
