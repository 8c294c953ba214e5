"""Which files of a repository an artifact wants.

Patterns match as `fnmatch.fnmatchcase` does: case-sensitive, `*` and `?` cross `/`. A pattern that
ends in `/` means everything below. An empty allow list keeps every file; ignore wins.

Rule: AR-RES-05.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpustack_delivery.vocabulary.manifest import Entry


@dataclass(frozen=True, slots=True)
class Patterns:
    """An artifact's allowPatterns and ignorePatterns."""

    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def keeps(self, path: str) -> bool:
        """Say whether a path passes."""
        if any(_matches(pattern, path) for pattern in self.ignore):
            return False
        return not self.allow or any(_matches(pattern, path) for pattern in self.allow)

    def filter(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """Return the entries that pass, in their order."""
        return tuple(entry for entry in entries if self.keeps(entry.path))


def _matches(pattern: str, path: str) -> bool:
    return fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern)
