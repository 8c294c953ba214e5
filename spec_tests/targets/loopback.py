"""A network of the suite's own: a loopback on which nobody else listens, and nothing beyond it.

A port that was free a moment ago is still free when a program binds it, two runs at once never
meet, and a program that calls the world outside finds none.

Called by `processes`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1


def enter_private_network() -> None:
    """Give the calling thread, and what it starts from now on, such a network.

    Raises:
        OSError: without the right to do so.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "a private network namespace")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
