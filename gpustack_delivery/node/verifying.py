"""Published trees read back, byte by byte: the check that no mount has the time for.

A mount compares names, kinds, sizes and modes. What a disk changed silently, or a hand on the node
changed without changing the size, only a second hashing finds. Everything here reads and nothing
writes, takes no lock and stops nobody: a plugin may serve the same cache meanwhile. What it
collects while it is being read is no damage.

`verify_command` prints what is found. Rules: NS-DL-16, NS-DL-19, NS-RES-11.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.errors import ConfigurationFault, HostFault
from gpustack_delivery.node.cache import LAYOUT, digest_of, hex_of
from gpustack_delivery.node.inspection import DIRECTORY_MODE, FILE_MODE
from gpustack_delivery.node.markers import read_listing, read_marker
from gpustack_delivery.node.trees import directories
from gpustack_delivery.vocabulary.manifest import Entry, Folders, Manifest

READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a published tree; `path` is relative to it, "" for the tree itself."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One published tree: what it holds by its own listing, and what is wrong with it."""

    digest: str
    file_count: int
    size_bytes: int
    damages: tuple[Damage, ...]


def published_digests(cache_root: Path) -> tuple[str, ...]:
    """Return the digests that stand among a cache's published trees, marked or not.

    Raises:
        ConfigurationFault: the directory is no model cache, or cannot be read.
    """
    try:
        cache_root.lstat()
    except FileNotFoundError:
        raise ConfigurationFault(f"the folder {cache_root} does not exist") from None
    except OSError as error:
        raise ConfigurationFault(f"{cache_root} cannot be read: {error.strerror}") from error
    try:
        if (cache_root / "layout").read_bytes() != LAYOUT:
            raise ConfigurationFault(f"{cache_root} has another layout than this version's")
        found = directories(cache_root / "published")
    except HostFault as fault:
        raise ConfigurationFault(f"{cache_root} cannot be read: {fault}") from fault
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ConfigurationFault(f"{cache_root} is no model cache: it has no layout file") from None
    except OSError as error:
        raise ConfigurationFault(f"{cache_root} cannot be read: {error.strerror}") from error
    return tuple(digest for path in found if (digest := digest_of(path.name)))


def examine(cache_root: Path, digest: str, hashing: Hashing) -> Finding | None:
    """Hash a published tree; None when it is not published, or no more at the end.

    Raises:
        ConfigurationFault: what belongs to the plugin alone may not be read by this user.
    """
    directory = cache_root / "published" / hex_of(digest)
    before = _identity(directory)
    if before is None:
        return None
    _check_access(directory)
    finding = _examine(directory, digest, hashing)
    return finding if _identity(directory) == before else None


def _examine(directory: Path, digest: str, hashing: Hashing) -> Finding:
    damages = []
    if read_marker(directory, digest) is None:
        damages.append(Damage("", "its marker is missing or names another digest"))
    manifest = read_listing(directory, digest)
    if manifest is None:
        damages.append(Damage("", "its listing is missing or makes another digest"))
        return Finding(digest, 0, 0, tuple(damages))
    tree = directory / "tree"
    try:
        damages += _foreign(tree, manifest)
    except OSError as error:
        damages.append(Damage("", f"a directory cannot be read: {error.strerror}"))
    for entry in manifest.entries:
        if what := _difference(tree / entry.path, entry, hashing):
            damages.append(Damage(entry.path, what))
    return Finding(digest, manifest.file_count, manifest.size_bytes, tuple(damages))


def _check_access(directory: Path) -> None:
    """Take nothing for damaged that the plugin can read and we cannot."""
    ways = {directory: os.R_OK | os.X_OK}
    ways |= dict.fromkeys((directory / "marker", directory / "manifest.json"), os.R_OK)
    for path, way in ways.items():
        if os.path.lexists(path) and not os.access(path, way, effective_ids=True):
            raise ConfigurationFault(f"{path} may not be read: run this as root, as the plugin is")


def _identity(directory: Path) -> int | None:
    try:
        return directory.lstat().st_ino
    except FileNotFoundError:
        return None


def _foreign(tree: Path, manifest: Manifest) -> Iterator[Damage]:
    """Yield what stands in a tree and not in its listing, and directories with another mode."""
    listed = {entry.path for entry in manifest.entries}
    folders = Folders(manifest.entries)
    for folder, names, files in os.walk(tree, onerror=_raise):
        here = Path(folder)
        shown = str(here.relative_to(tree))
        if here != tree and shown not in folders:
            yield Damage(shown, "the directory is not listed")
        elif stat.S_IMODE(here.lstat().st_mode) != DIRECTORY_MODE:
            yield Damage(shown, "the directory's mode has changed")
        links = [name for name in names if (here / name).is_symlink()]
        for path in (str((here / name).relative_to(tree)) for name in [*files, *links]):
            if path not in listed:
                yield Damage(path, "the file is not listed")


def _raise(error: OSError) -> NoReturn:
    raise error


def _difference(path: Path, entry: Entry, hashing: Hashing) -> str:
    """Return what is wrong with one file, "" if nothing is."""
    try:
        return _compare(path, entry, hashing)
    except FileNotFoundError:
        return "the file is missing"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"


def _compare(path: Path, entry: Entry, hashing: Hashing) -> str:
    # Not following and not blocking: a link or a pipe in place of the file is damage, no trap.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            return "it is no regular file"
        if facts.st_size != entry.size_bytes:
            return f"it has {facts.st_size} bytes in place of {entry.size_bytes}"
        hasher = hashing.start(entry.algorithm, entry.size_bytes)
        buffer = memoryview(bytearray(READ_BYTES))
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
    if hasher.hexdigest() != entry.hex:
        return f"its content does not have its {entry.algorithm} digest"
    return "" if stat.S_IMODE(facts.st_mode) == FILE_MODE else "its mode has changed"
