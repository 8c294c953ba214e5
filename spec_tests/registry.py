"""The rule catalogue: every testable statement of the contract, under a lasting identifier.

The catalogue is data, in `rules/*.yaml`, one file a page. Tests cite a rule by its identifier, the
report lists every rule with a verdict, and the documentation anchors it. `pending.txt` names the
rules that have no test yet; it may only shrink.

Called by `plugin` (markers, verdicts), by `report` (pages) and by the house tests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import yaml

BOUNDARIES: Final = frozenset({"api", "csi", "disk", "hub", "http", "log", "render"})
"""Where a rule can be observed from outside; docs/conformance.md says how each is watched."""

_ID: Final = re.compile(r"[A-Z]{2}-[A-Z]{2,3}-\d{2}")
_DOC: Final = re.compile(r"[a-z-]+#[a-z-]+")
_PACKAGE: Final = files("spec_tests")


class CatalogueError(Exception):
    """The catalogue or a citation of it is wrong; the message names the file or identifier."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One statement that must hold.

    `doc` is the page and section that state it (`node-store#metrics`), `seen` the boundaries at
    which it can be observed, and `clock` says that it depends on the passing of time.
    """

    id: str
    doc: str
    text: str
    seen: tuple[str, ...]
    clock: bool = False

    @property
    def page(self) -> str:
        """Return the documentation page that states the rule."""
        return self.doc.partition("#")[0]

    @property
    def section(self) -> str:
        """Return the section's anchor on its page."""
        return self.doc.partition("#")[2]

    @classmethod
    def from_yaml(cls, item: Mapping[str, Any], origin: str) -> Rule:
        """Check one item of a rules file.

        Raises:
            CatalogueError: a key is missing, unknown or malformed.
        """
        unknown = item.keys() - {"id", "doc", "seen", "text", "clock"}
        if unknown:
            raise CatalogueError(f"{origin}: unknown keys {sorted(unknown)}")
        rule = cls(
            id=str(item.get("id", "")),
            doc=str(item.get("doc", "")),
            text=str(item.get("text", "")).strip(),
            seen=tuple(item.get("seen", ())),
            clock=item.get("clock", False) is True,
        )
        if _ID.fullmatch(rule.id) is None:
            raise CatalogueError(f"{origin}: {rule.id!r} is not a rule identifier")
        if _DOC.fullmatch(rule.doc) is None:
            raise CatalogueError(f"{origin}: {rule.id} has no page#section in doc")
        if not rule.text or not rule.seen or not BOUNDARIES.issuperset(rule.seen):
            raise CatalogueError(f"{origin}: {rule.id} needs a text and boundaries of {BOUNDARIES}")
        return rule


@dataclass(frozen=True, slots=True)
class Registry:
    """All rules by identifier, in the order of the files, and those that have no test yet."""

    rules: Mapping[str, Rule]
    pending: frozenset[str]
    fingerprint: str

    def __iter__(self) -> Iterator[Rule]:
        """Yield the rules, page by page and section by section."""
        return iter(self.rules.values())

    def cite(self, identifier: str) -> Rule:
        """Return the rule a test or a docstring names.

        Raises:
            CatalogueError: there is no such rule.
        """
        try:
            return self.rules[identifier]
        except KeyError:
            raise CatalogueError(f"{identifier!r} is no rule of spec_tests/rules") from None

    @property
    def specification(self) -> str:
        """Return the specification's name, with a fingerprint that changes with any rule."""
        count = len(self.rules)
        return f"model-delivery worker.gpustack.ai/v1alpha1 ({count} rules, {self.fingerprint})"


def load(package: Traversable = _PACKAGE) -> Registry:
    """Read the rule files and the pending list.

    Raises:
        CatalogueError: a file is malformed, an identifier is there twice, or a pending one is not.
    """
    rules: dict[str, Rule] = {}
    digest = hashlib.sha256()
    for file in sorted((package / "rules").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".yaml"):
            continue
        content = file.read_text(encoding="utf-8")
        for item in yaml.safe_load(content):
            rule = Rule.from_yaml(item, file.name)
            if rule.id in rules:
                raise CatalogueError(f"{file.name}: {rule.id} stands twice")
            rules[rule.id] = rule
            digest.update(f"{rule.id} {rule.doc} {rule.seen} {rule.clock} {rule.text}\n".encode())
    pending = read_pending((package / "pending.txt").read_text(encoding="utf-8"))
    if unknown := pending - rules.keys():
        raise CatalogueError(f"pending.txt names rules that do not exist: {sorted(unknown)}")
    return Registry(rules, pending, digest.hexdigest()[:8])


def read_pending(text: str) -> frozenset[str]:
    """Return the identifiers of a pending list: the first word of each line; `#` begins a comment.

    Raises:
        CatalogueError: an identifier stands twice.
    """
    identifiers = [line.partition("#")[0].strip() for line in text.splitlines()]
    found = [identifier for identifier in identifiers if identifier]
    twice = {identifier for identifier in found if found.count(identifier) > 1}
    if twice:
        raise CatalogueError(f"pending.txt names twice: {sorted(twice)}")
    return frozenset(found)
