"""A body's bytes as they arrive, gathered from many small reads into few large ones.

A TLS read brings 16 KiB at most, and who accounts for each of them spends more time on accounts
than on bytes. So as long as more has arrived, reading goes on into the same view. It never waits
for more: on a slow connection every arrival is told of at once.

`http.Stream` reads through this.
"""

from __future__ import annotations

import io
import select
from typing import Any, Final

GATHERED_BYTES: Final = 512 << 10


class Gatherer:
    """Reads from the buffered reader under an HTTP response, on one thread.

    What lies under urllib3 fills the caller's buffer with one system call and no copy, and loses no
    byte that came before a failure; urllib3 itself has no such call.

    Args:
        reader: an `io.BufferedReader` over a socket, or a TLS connection on one.
    """

    def __init__(self, reader: Any) -> None:
        self._read = reader.readinto1
        self._arrivals = select.poll()
        self._arrivals.register(reader.fileno(), select.POLLIN)
        self._leading = True
        self._failure: OSError | None = None

    def read_into(self, view: memoryview) -> int:
        """Wait for bytes and return how many came, at most a view's length; 0 at the end.

        Raises:
            OSError: the connection failed; what had come before was returned.
        """
        if self._failure is not None:
            raise self._failure
        if self._leading:
            # What came with the headers lies in the reader's buffer. A view larger than that buffer
            # would get it only together with a read that may block for ever.
            view = view[: io.DEFAULT_BUFFER_SIZE]
            self._leading = len(view) < io.DEFAULT_BUFFER_SIZE
            return int(self._read(view))
        view = view[:GATHERED_BYTES]
        total = came = int(self._read(view))
        while came and total < len(view) and self._arrivals.poll(0):
            try:
                came = int(self._read(view[total:]))
            except OSError as error:
                self._failure = error
                break
            total += came
        return total
