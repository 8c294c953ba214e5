"""The least that a delivery costs: CPU time to hash, to receive and to write the bytes, alone.

    python -m tests.performance.floors URL SIZE_BYTES FILE

prints one JSON number: the sum of the three in CPU seconds, for a URL that serves SIZE_BYTES over
plain http and a FILE on the filesystem that is delivered to. What is hashed and written is random:
a piece of zeros is one page to the kernel, which never leaves the fastest cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PIECE: Final = 8 << 20


def hashing(piece: memoryview, size_bytes: int) -> None:
    """Hash a piece again and again, so many bytes of it."""
    digest = hashlib.sha256()
    for at in range(0, size_bytes, _PIECE):
        digest.update(piece[: size_bytes - at])


def receiving(url: str, size_bytes: int) -> None:
    """Receive a body into one buffer, after one redirect at most."""
    buffer = memoryview(bytearray(_PIECE))
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port)
    connection.request("GET", f"{parts.path}?{parts.query}")
    with connection.getresponse() as response:
        if response.status in {301, 302, 307}:
            return receiving(response.headers["Location"], size_bytes)
        while size_bytes:
            count = response.readinto(buffer)
            if not count:
                raise SystemExit(f"the server ended {size_bytes} bytes too early")
            size_bytes -= count
    connection.close()
    return None


def writing(piece: memoryview, file: Path, size_bytes: int) -> None:
    """Write so many bytes to a new file, and make them durable."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    for at in range(0, size_bytes, _PIECE):
        os.pwrite(descriptor, piece[: size_bytes - at], at)
    os.fsync(descriptor)
    os.close(descriptor)
    file.unlink()


def cpu_seconds(work: Callable[[], None]) -> float:
    """Return the CPU time that some work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    where, size, scratch = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    random = memoryview(os.urandom(_PIECE))
    total = cpu_seconds(lambda: hashing(random, size))
    total += cpu_seconds(lambda: receiving(where, size))
    total += cpu_seconds(lambda: writing(random, scratch, size))
    sys.stdout.write(json.dumps(total) + "\n")
