"""Sets of field paths, as managedFields write them.

A path is a run of elements: `f:NAME` a member, `k:{…}` an item of a keyed list, `v:VALUE` an item
of a set. A `FieldSet` is a tree of them whose nodes know whether they are in the set themselves.
Immutable by convention: the operations return new sets, `insert` is for the one who builds a set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from emulator.contracts import Json

Path = tuple[str, ...]


class FieldSet:
    """A set of paths below one point."""

    __slots__ = ("children", "members")

    def __init__(self) -> None:
        """Start empty."""
        self.members: set[str] = set()
        self.children: dict[str, FieldSet] = {}

    def __bool__(self) -> bool:
        """Return whether anything is in the set."""
        return bool(self.members or self.children)

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return isinstance(other, FieldSet) and (self.members, self.children) == (
            other.members,
            other.children,
        )

    __hash__ = None  # type: ignore[assignment]  # grows while it is built

    @classmethod
    def from_wire(cls, fields: Json) -> FieldSet:
        """Read a FieldsV1 object."""
        result = cls()
        for element, below in fields.items():
            if element == ".":
                continue
            if not below or "." in below:
                result.members.add(element)
            child = cls.from_wire(below)
            if child:
                result.children[element] = child
        return result

    def to_wire(self) -> Json:
        """Write a FieldsV1 object, in the server's order."""
        wire: Json = {}
        for element in sorted(self.members | self.children.keys()):
            child = self.children.get(element)
            below = child.to_wire() if child else {}
            wire[element] = {".": {}, **below} if below and element in self.members else below
        return wire

    def insert(self, path: Path) -> None:
        """Add one path, not empty."""
        node = self
        for element in path[:-1]:
            node = node.children.setdefault(element, FieldSet())
        node.members.add(path[-1])

    def holds(self, element: str) -> bool:
        """Return whether this element, or anything below it, is in the set."""
        return element in self.members or element in self.children

    def below(self, element: str) -> FieldSet:
        """Return the set of what follows an element; empty when nothing does."""
        return self.children.get(element) or FieldSet()

    def paths(self, prefix: Path = ()) -> Iterator[Path]:
        """Yield every path: the members of a node before what is below it."""
        for element in sorted(self.members):
            yield (*prefix, element)
        for element in sorted(self.children):
            yield from self.children[element].paths((*prefix, element))

    def union(self, other: FieldSet) -> FieldSet:
        """Return what is in either."""
        result = FieldSet()
        result.members = self.members | other.members
        for element in self.children.keys() | other.children.keys():
            result.children[element] = self.below(element).union(other.below(element))
        return result

    def difference(self, other: FieldSet) -> FieldSet:
        """Return what is in this one alone."""
        result = FieldSet()
        result.members = self.members - other.members
        for element, child in self.children.items():
            rest = child.difference(other.below(element))
            if rest:
                result.children[element] = rest
        return result

    def intersection(self, other: FieldSet) -> FieldSet:
        """Return what is in both."""
        result = FieldSet()
        result.members = self.members & other.members
        for element in self.children.keys() & other.children.keys():
            shared = self.children[element].intersection(other.children[element])
            if shared:
                result.children[element] = shared
        return result

    def without(self, path: Path) -> FieldSet:
        """Return the set without a path and without everything below it."""
        head, rest = path[0], path[1:]
        result = FieldSet()
        result.members, result.children = set(self.members), dict(self.children)
        if not rest:
            result.members.discard(head)
        child = result.children.pop(head, None)
        if child and rest:
            kept = child.without(rest)
            if kept:
                result.children[head] = kept
        return result

    def only(self, element: str) -> FieldSet:
        """Return what is at or below one element."""
        result = FieldSet()
        if element in self.members:
            result.members.add(element)
        if element in self.children:
            result.children[element] = self.children[element]
        return result


def member(name: str) -> str:
    """Return the path element of a member."""
    return f"f:{name}"


def item(keys: Json) -> str:
    """Return the path element of an item in a keyed list."""
    return "k:" + _compact({name: keys[name] for name in sorted(keys)})


def value(content: Any) -> str:
    """Return the path element of an item in a set."""
    return "v:" + _compact(content)


def text(path: Path) -> str:
    """Return a path as conflict messages show it: `.spec.items[key="k1"].value`."""
    return "".join(map(_element_text, path))


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _element_text(element: str) -> str:
    kind, content = element[0], element[2:]
    if kind == "f":
        return f".{content}"
    if kind == "k":
        keys = json.loads(content)
        return "[" + ",".join(f"{name}={_compact(keys[name])}" for name in sorted(keys)) + "]"
    return f"[={content}]"
