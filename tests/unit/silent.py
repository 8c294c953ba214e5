"""A server that never says a word: it takes connections and what they say, or not even those."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

_SYN_SENT: Final = "02"


class Silent:
    """A silent listener on loopback, from `with` to its end.

    Args:
        accepts: whether it takes connections; one that does not leaves them half made.
    """

    def __init__(self, *, accepts: bool = True) -> None:
        self._accepts = accepts
        self._stack = ExitStack()
        self._asked = threading.Event()

    def __enter__(self) -> Self:
        """Listen."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        self.port: int = listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        if self._accepts:
            thread = threading.Thread(target=self._take, args=(listener,))
            thread.start()
            self._stack.callback(thread.join)
            self._stack.callback(listener.shutdown, socket.SHUT_RDWR)
        else:  # one connection that nobody accepts fills its queue
            self._stack.enter_context(socket.create_connection(listener.getsockname()))
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        self._stack.close()

    def waited_for(self) -> bool:
        """Say whether somebody waits now: for an answer, or for a connection."""
        return self._asked.is_set() if self._accepts else self._half_made()

    def _half_made(self) -> bool:
        remote = f":{self.port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(row[2].endswith(remote) and row[3] == _SYN_SENT for row in rows)

    def _take(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._stack.enter_context(connection)
                if connection.recv(1):
                    self._asked.set()
