"""What a test may need that a fresh machine may lack, and whether it is here.

A test says `@pytest.mark.needs("kubectl")`; where the thing is missing `plugin` does not run the
test and names it in the summary, so that a missing tool never looks like a pass.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_LOOPS: Final = Path("/dev/loop-control")


@functools.cache
def _kernel_mounts() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        return False
    # Root inside a container may still lack CAP_SYS_ADMIN; only trying tells.
    command = [unshare, "--mount", "true"]
    tried = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed words
    return tried.returncode == 0


@functools.cache
def _helm_version() -> str:
    """Return the major version of the Helm binary on PATH, "" when there is none."""
    helm = shutil.which("helm")
    if helm is None:
        return ""
    command = [helm, "version", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the same
    return done.stdout.removeprefix("v").partition(".")[0]


def _ipv6() -> bool:
    """Say whether the machine has a loopback of both families."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return socket.has_dualstack_ipv6()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@functools.cache
def _direct_writes() -> bool:
    """Say whether the filesystem of temporary files takes writes past the page cache."""
    with tempfile.NamedTemporaryFile() as file, mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            descriptor = os.open(file.name, os.O_WRONLY | os.O_DIRECT)
        except OSError:
            return False
        try:
            return os.pwrite(descriptor, page, 0) == mmap.PAGESIZE
        except OSError:
            return False
        finally:
            os.close(descriptor)


PROBES: Final[Mapping[str, Callable[[], bool]]] = {
    "kubectl": lambda: shutil.which("kubectl") is not None,
    "helm-3": lambda: shutil.which("helm3") is not None or _helm_version() == "3",
    "helm-4": lambda: shutil.which("helm4") is not None or _helm_version() == "4",
    "ipv6": _ipv6,
    "git": lambda: shutil.which("git") is not None and (_ROOT / ".git").exists(),
    "root": lambda: os.geteuid() == 0,
    "kernel-mounts": _kernel_mounts,
    "loop-mounts": lambda: shutil.which("mkfs.ext4") is not None and _LOOPS.exists(),
    "direct-writes": _direct_writes,
    "libnettle": lambda: _loads("libnettle.so.8"),
    "aria2c": lambda: shutil.which("aria2c") is not None,
}
"""Each need by the name a test gives it, and the question whether it is met."""


def missing(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those needs that are not met here.

    Raises:
        KeyError: a name that no probe answers for.
    """
    return tuple(name for name in names if not PROBES[name]())
