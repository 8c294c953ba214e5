"""Threads in a world that has an end of them.

A Pod may have so many processes and threads (kubelet's `podPidsLimit`) and a machine so many in
all. Whoever starts one while it works hears here that there is none left, and goes on without it or
gives up what it was for.
"""

from __future__ import annotations

import threading

from gpustack_delivery.errors import HostFault


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        HostFault: the system has none left; the thread never was.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise HostFault("the plugin can start no more threads") from error
