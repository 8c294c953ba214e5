"""Named steps of a plugin process, and an end at one of them.

The functions through which the plugin changes its disk and its mounts are wrapped, in this process
alone: each call under the watched directories is two steps, one before it and one after. A step's
name is the call and the kind of place, such as `after rename published/H`, so that it means the
same in every run. At the step of the plan the process kills itself, as the kernel would: nothing
after it happens, not even the end of another thread's call.

With a journal the wrapped `fsync` also writes down what it has made durable, for `power`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import signal
import stat
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpustack_delivery.adapters import kernel

CALLS: Final = (
    "chmod",
    "fsync",
    "ftruncate",
    "mkdir",
    "posix_fallocate",
    "pwrite",
    "rename",
    "replace",
    "rmdir",
    "unlink",
)
_KINDS: Final = (
    (re.compile(r"(published|trash)/[0-9a-f]{64}(-[0-9]+-[0-9]+)?"), r"\1/H"),
    (re.compile(r"partial/[0-9a-f]{64}/[0-9]+"), "partial/H/N"),
    (re.compile(r"partial/[0-9a-f]{64}"), "partial/H"),
    (re.compile(r"[0-9a-f]{64}\.(json|tmp)"), r"X.\1"),
    (re.compile(r"/tree/.*"), "/tree/*"),
    (re.compile(r"^pods/.*"), "target"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a process ends: at the n-th time a step comes, n counted from 1; "" for nowhere.

    With `seconds` it ends that long after its start, wherever it is.
    """

    step: str = ""
    occurrence: int = 1
    seconds: float = 0.0


class Steps:
    """Counts the steps of this process, writes them down, and ends it where the plan says.

    Args:
        watched: the directories whose changes are steps.
        trace: a file that gets a line for each step, written before the process ends there.
        journal: a directory for what became durable, or None.
    """

    def __init__(
        self, plan: Plan, watched: tuple[Path, ...], trace: Path, journal: Path | None
    ) -> None:
        self._plan = plan
        self._watched = watched
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._journal = journal
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._real = {name: getattr(os, name) for name in CALLS}
        self._serial = itertools.count(1)

    def install(self) -> None:
        """Wrap the calls of this process, for good."""
        for name in CALLS:
            setattr(os, name, self._wrapped(name, self._real[name]))
        kernel.attach_read_only = self._mounting("bind", kernel.attach_read_only, 1)
        kernel.unmount = self._mounting("unmount", kernel.unmount, 0)
        signal.setitimer(signal.ITIMER_REAL, self._plan.seconds)  # its signal kills, unhandled

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(first: Any, *others: Any, **named: Any) -> Any:
            path = _path_of(first, named.get("dir_fd") or named.get("src_dir_fd"))
            if name in {"rename", "replace"}:
                path = _path_of(others[0], None)
            kind = self._kind(path)
            if not kind:
                return real(first, *others, **named)
            self._step(f"before {name} {kind}")
            if name == "fsync" and self._journal is not None:
                durable = self._snapshot(path)
                real(first)
                self._keep(*durable)
                result = None
            else:
                result = real(first, *others, **named)
            self._step(f"after {name} {kind}")
            return result

        return call

    def _mounting(self, name: str, real: Callable[..., Any], place: int) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*paths: Path, **named: Any) -> None:
            kind = self._kind(paths[place])
            self._step(f"before {name} {kind}")
            real(*paths, **named)
            self._step(f"after {name} {kind}")

        return call

    def _kind(self, path: Path) -> str:
        """Return the kind of a watched place, "" for one that is not watched."""
        for directory in self._watched:
            if path.is_relative_to(directory):
                kind = str(path.relative_to(directory))
                for pattern, word in _KINDS:
                    kind = pattern.sub(word, kind)
                return kind
        return ""

    def _step(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
            os.write(self._trace, f"{name}\n".encode())
            if (name, self._counts[name]) == (self._plan.step, self._plan.occurrence):
                os.kill(os.getpid(), signal.SIGKILL)

    def _snapshot(self, path: Path) -> tuple[int, Any]:
        """Return what a sync that begins now is sure to make durable."""
        facts = path.lstat()
        if stat.S_ISDIR(facts.st_mode):
            with os.scandir(path) as entries:
                content: Any = {entry.name: entry.inode() for entry in entries}
        else:
            content = path.read_bytes()
        return facts.st_ino, (stat.S_IMODE(facts.st_mode), content)

    def _keep(self, inode: int, durable: tuple[int, Any]) -> None:
        assert self._journal is not None
        with self._lock:
            keep(self._journal, inode, durable, next(self._serial), self._real["replace"])


def keep(
    journal: Path,
    inode: int,
    durable: tuple[int, Any],
    serial: int,
    replace: Callable[[Path, Path], None] = os.replace,
) -> None:
    """Write down a file's or a directory's durable form, in one step."""
    mode, content = durable
    fresh = journal / "fresh"
    if isinstance(content, bytes):
        fresh.write_bytes(mode.to_bytes(4, "big") + content)
        replace(fresh, journal / f"f{inode}")
    else:
        fresh.write_text(json.dumps({"mode": mode, "entries": content, "serial": serial}))
        replace(fresh, journal / f"d{inode}")


def _path_of(first: Any, directory: int | None) -> Path:
    """Return the path that a call is about: a name, a descriptor, or a name in a directory."""
    if isinstance(first, int):
        return Path(f"/proc/self/fd/{first}").readlink()
    path = Path(os.fsdecode(first))
    if directory is not None and not path.is_absolute():
        path = Path(f"/proc/self/fd/{directory}").readlink() / path
    return path
