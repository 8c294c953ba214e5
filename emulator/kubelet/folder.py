"""Tells when something appears in a folder or goes from it, without asking again and again."""

from __future__ import annotations

import ctypes
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_EVENTS = _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE


class FolderWatch:
    """Calls back after every change of a folder's entries, until closed. Linux's inotify."""

    def __init__(self, folder: Path, changed: Callable[[], None], *, name: str) -> None:
        """Watch a folder from now on; `changed` runs on the watch's own thread.

        Raises:
            OSError: the folder cannot be watched.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if (
            self._inotify < 0
            or libc.inotify_add_watch(self._inotify, os.fsencode(folder), _EVENTS) < 0
        ):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
        self._changed = changed
        self._closing, self._close = os.pipe()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching and wait for the thread."""
        os.close(self._close)
        self._thread.join()
        os.close(self._closing)
        os.close(self._inotify)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._inotify, select.POLLIN)
        poll.register(self._closing, select.POLLIN)
        while all(descriptor != self._closing for descriptor, _ in poll.poll()):
            os.read(self._inotify, 65536)
            self._changed()
