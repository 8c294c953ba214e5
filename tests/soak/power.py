"""A power cut: what was synced is there, everything else is there, gone or torn, as it happens.

The journal holds, for each inode, what its last `fsync` made durable: a file's bytes and mode, a
directory's entries and mode. What the disk holds beyond that is up to chance, for every inode on
its own:

    a name        where it durably stands, or where it stands now; one that was made since the last
                  sync of its directory may be there or not, a removed one may be back
    a file        durable bytes, present bytes, or a mixture page by page, with zeros where neither
                  has reached the disk
    a mode        the durable or the present one

Two things no filesystem does, and neither does this one: a rename never loses what had a durable
name, be it the thing renamed or the thing replaced, and nothing stands in two places.
"""

from __future__ import annotations

import json
import random
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpustack_delivery.node.cache import delete_tree
from tests.soak.steps import keep

PAGE: Final = 4096
Place = tuple[int, str]


@dataclass(slots=True)
class Inode:
    """A file or a directory, as it is now and as it durably is; None where it is not.

    A place is the inode of a directory and a name in it.
    """

    directory: bool = False
    present: Place | None = None
    durable: Place | None = None
    present_mode: int | None = None
    durable_mode: int | None = None
    present_bytes: bytes | None = None
    durable_bytes: bytes | None = None


class PowerCut:
    """Cuts the power of one cache, again and again, by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, cache: Path, journal: Path) -> None:
        """Replace a cache by what the disk holds after a cut, all of it durable from now on."""
        inodes: dict[int, Inode] = {}
        _read_present(cache, inodes)
        _read_durable(journal, inodes)
        children: dict[int, list[tuple[str, int]]] = {}
        for number, (parent, name) in self._places(inodes).items():
            children.setdefault(parent, []).append((name, number))
        top = cache.stat().st_ino
        _empty(cache)
        _empty(journal)
        self._build(cache, children.get(top, []), inodes, children)
        _remember(cache, journal)

    def _places(self, inodes: dict[int, Inode]) -> dict[int, Place]:
        """Return where each inode stands after the cut; those that are gone are left out."""
        chosen: dict[int, Place | None] = {}
        holders = {inode.durable: number for number, inode in inodes.items() if inode.durable}
        heirs = {inode.present: number for number, inode in inodes.items() if inode.present}
        for number, inode in inodes.items():
            # Mostly as it stands now: a tree of names is deep, and each level has to survive.
            chosen[number] = self._chance.choice((*[inode.present] * 11, inode.durable))
        for number, inode in inodes.items():
            before = inode.durable
            heir = heirs.get(before) if before is not None and inode.present is None else None
            if heir is not None:  # replaced: the old one is there as long as the new one is not
                chosen[number] = None if chosen[heir] == before else before
        pending = list(inodes)
        while pending:  # who stands somewhere by a durable name yields to who stands there now
            number = pending.pop()
            place = chosen[number]
            rival = holders.get(place) if place is not None else None
            if place != inodes[number].present or rival in {None, number}:
                continue
            if chosen[rival] == place:
                chosen[rival] = inodes[rival].present
                pending.append(rival)
        return {number: place for number, place in chosen.items() if place is not None}

    def _build(
        self,
        folder: Path,
        entries: list[tuple[str, int]],
        inodes: dict[int, Inode],
        children: dict[int, list[tuple[str, int]]],
    ) -> None:
        for name, number in entries:
            inode, path = inodes[number], folder / name
            if inode.directory:
                path.mkdir()
                self._build(path, children.get(number, []), inodes, children)
            else:
                path.write_bytes(self._bytes(inode))
            modes = [m for m in (inode.present_mode, inode.durable_mode) if m is not None]
            path.chmod(self._chance.choice(modes))

    def _bytes(self, inode: Inode) -> bytes:
        versions = [v for v in (inode.present_bytes, inode.durable_bytes) if v is not None]
        if inode.durable_bytes is None:
            versions.append(b"")
        length = len(self._chance.choice((*versions[:1] * 3, *versions)))
        pages = []
        for start in range(0, length, PAGE):
            page = self._chance.choice(versions)[start : min(start + PAGE, length)]
            pages.append(page.ljust(min(PAGE, length - start), b"\0"))
        return b"".join(pages)


def _read_present(folder: Path, inodes: dict[int, Inode]) -> None:
    parent = folder.stat().st_ino
    for path in folder.iterdir():
        facts = path.lstat()
        inode = inodes[facts.st_ino] = Inode(
            directory=stat.S_ISDIR(facts.st_mode),
            present=(parent, path.name),
            present_mode=stat.S_IMODE(facts.st_mode),
        )
        if inode.directory:
            _read_present(path, inodes)
        else:
            inode.present_bytes = path.read_bytes()


def _read_durable(journal: Path, inodes: dict[int, Inode]) -> None:
    listings = []
    for path in journal.iterdir():
        if path.name.startswith("f") and path.name[1:].isdigit():
            content = path.read_bytes()
            inode = inodes.setdefault(int(path.name[1:]), Inode())
            inode.durable_mode, inode.durable_bytes = (
                int.from_bytes(content[:4], "big"),
                content[4:],
            )
        elif path.name.startswith("d"):
            listings.append((json.loads(path.read_text()), int(path.name[1:])))
    for listing, number in sorted(listings, key=lambda found: found[0]["serial"]):
        inode = inodes.setdefault(number, Inode(directory=True))
        inode.directory, inode.durable_mode = True, listing["mode"]
    for listing, number in sorted(listings, key=lambda found: found[0]["serial"]):
        for name, child in listing["entries"].items():
            if child in inodes:  # or it was never synced and is gone
                inodes[child].durable = (number, name)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            delete_tree(path)
        else:
            path.unlink()


def _remember(folder: Path, journal: Path) -> None:
    """Write down that everything in a directory is durable."""
    entries = {}
    for path in folder.iterdir():
        facts = path.lstat()
        entries[path.name] = facts.st_ino
        if stat.S_ISDIR(facts.st_mode):
            _remember(path, journal)
        else:
            keep(journal, facts.st_ino, (stat.S_IMODE(facts.st_mode), path.read_bytes()), 0)
    facts = folder.stat()
    keep(journal, facts.st_ino, (stat.S_IMODE(facts.st_mode), entries), 0)
