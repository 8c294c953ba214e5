"""A node's disk and mounts where a program sees them: a small tmpfs and the kernel's own table.

They have the faces of the emulated ones, so that a test need not know. A condition that nobody can
make from outside a program, such as a sync that fails, is `Unsupported` and named.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from emulator.disk import Usage
from emulator.mounts import KernelMounts, Mount
from spec_tests.targets import Unsupported

SIZE_BYTES: Final = 512 * 2**20
"""The size of a cache's filesystem: room for the largest model of the suite, twice."""


class Tmpfs:
    """A filesystem of its own for the cache of one node; the cache is a folder in it."""

    def __init__(self, root: Path) -> None:
        """Mount it at a folder that does not exist yet."""
        root.mkdir()
        self.cache_root = root / "cache"
        self._root = root
        self._ballast = root / "ballast"
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES},mode=0755", "tmpfs", str(root))
        self.cache_root.mkdir()

    def close(self) -> None:
        """Take it away, with whatever is in it."""
        _run("umount", "--lazy", str(self._root))

    def usage(self, path: Path) -> Usage:
        """Return the usage of the filesystem that holds a path."""
        facts = os.statvfs(path)
        total_bytes = facts.f_blocks * facts.f_frsize
        return Usage(total_bytes, total_bytes - facts.f_bavail * facts.f_frsize)

    def device(self, path: Path) -> str:
        """Return `major:minor` of the filesystem that holds a path."""
        number = path.stat().st_dev
        return f"{os.major(number)}:{os.minor(number)}"

    def fill(self, percent: float, path: Path | None = None) -> None:
        """Let other data take so much that the usage is `percent` of the size now.

        Raises:
            ValueError: when the cache already takes more.
            Unsupported: for another filesystem than the cache's.
        """
        self._check_ours(path)
        ballast = os.open(self._ballast, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(ballast, 0)
            usage = self.usage(self._root)
            wanted_bytes = round(usage.total_bytes * percent / 100) - usage.used_bytes
            if wanted_bytes < 0:
                raise ValueError(f"the cache takes more than {percent}% already")
            if wanted_bytes:
                os.posix_fallocate(ballast, 0, wanted_bytes)
        finally:
            os.close(ballast)

    def resize(self, total_bytes: int, path: Path | None = None) -> None:
        """Give the cache's filesystem another size; other data keeps its bytes.

        Raises:
            Unsupported: for another filesystem than the cache's.
        """
        self._check_ours(path)
        _run("mount", "-o", f"remount,size={total_bytes}", str(self._root))

    def place(self, root: Path, device: str, total_bytes: int = SIZE_BYTES) -> None:
        """Let the cache have a filesystem of its own, as it has already, of this size.

        Raises:
            Unsupported: for any other folder.
        """
        if root != self.cache_root:
            raise Unsupported("the node has one filesystem for its cache and no other")
        self.resize(total_bytes)

    def fail(self, operation: str, error_number: int, **_: Any) -> NoReturn:
        """Refuse: a program's own calls cannot be made to fail from outside it."""
        raise Unsupported(f"{operation} of another process cannot be made to fail")

    def heal(self) -> None:
        """Do nothing: nothing was made to fail."""

    def _check_ours(self, path: Path | None) -> None:
        if path is not None and not path.is_relative_to(self._root):
            raise Unsupported("the machine's own filesystem is left alone")

    @property
    def syncs(self) -> NoReturn:
        """Refuse: nobody writes down what a program syncs."""
        raise Unsupported("syncs of another process are not seen")


class WatchedMounts(KernelMounts):
    """The kernel's mounts below a node's folder, without the cache's own filesystem."""

    def __init__(self, root: Path, cache: Path) -> None:
        """Look at mounts below `root`; `cache` is where the cache's filesystem is mounted."""
        super().__init__(root)
        self._cache = cache.resolve()
        device = cache.stat().st_dev
        self._device = f"{os.major(device)}:{os.minor(device)}"

    def table(self) -> tuple[Mount, ...]:
        """Return every live mount, stacked ones repeated, in mount order, with paths as roots."""
        return tuple(self._with_path(m) for m in super().table() if m.target != self._cache)

    def _with_path(self, mount: Mount) -> Mount:
        if mount.device != self._device:
            return mount
        return replace(mount, root=str(self._cache / mount.root.lstrip("/")))

    @property
    def bind_read_only(self) -> NoReturn:
        """Refuse: programs make their own mounts, and nothing comes in between."""
        raise Unsupported("a mount of another process cannot be held up")

    def fail_next(self, error_number: int) -> NoReturn:
        """Refuse: a program's own calls cannot be made to fail from outside it."""
        raise Unsupported("a mount of another process cannot be made to fail")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - mount and umount
