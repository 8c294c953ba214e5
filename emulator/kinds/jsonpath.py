"""The part of JSONPath that printer columns, selectable fields and scale paths use.

Fields, indexes, wildcards, quoted fields and filters that compare one field with a literal.
Anything else is refused when a CRD is created, by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Step = Callable[[Any], Iterator[Any]]
_TOKEN = re.compile(
    r"\.(?P<field>[A-Za-z_$][\w$-]*)"
    r"|\[(?P<index>-?\d+)\]"
    r"|(?P<all>\.\*|\[\*\])"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[\?\(@\.(?P<key>[\w.-]+)\s*(?P<operator>==|!=)\s*(?P<literal>'[^']*'|\"[^\"]*\"|true|false|-?\d+)\)\]"
)


class UnsupportedPathError(ValueError):
    """A path outside the part that is read here."""


class Path:
    """A compiled path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps: list[Step] = []
        position = 0
        escaped = text.replace("\\.", "\0")
        while position < len(escaped):
            found = _TOKEN.match(escaped, position)
            if found is None:
                raise UnsupportedPathError(
                    f"the JSONPath {text} is not emulated from position {position} on"
                )
            self._steps.append(_step(found))
            position = found.end()

    def find(self, value: Any) -> list[Any]:
        """Return everything the path finds in a value, in order."""
        found = [value]
        for step in self._steps:
            found = [below for one in found for below in step(one)]
        return found

    def first(self, value: Any) -> Any:
        """Return the first thing the path finds, None when it finds nothing."""
        found = self.find(value)
        return found[0] if found else None


def _step(found: re.Match[str]) -> Step:
    if found["field"] is not None:
        return _field(found["field"])
    if found["quoted"] is not None:
        return _field(found["quoted"].replace("\0", "."))
    if found["index"] is not None:
        return _index(int(found["index"]))
    if found["all"] is not None:
        return _every
    return _filter(found["key"].split("."), found["operator"], found["literal"])


def _field(name: str) -> Step:
    name = name.replace("\0", ".")

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _filter(key: list[str], operator: str, literal: str) -> Step:
    wanted: Any = (
        literal[1:-1]
        if literal[0] in "'\""
        else {"true": True, "false": False}.get(literal, literal)
    )

    def step(value: Any) -> Iterator[Any]:
        for element in value if isinstance(value, list) else ():
            held = element
            for part in key:
                held = held.get(part) if isinstance(held, dict) else None
            shown = (
                str(held) if isinstance(held, int | float) and not isinstance(held, bool) else held
            )
            if (shown == wanted) == (operator == "=="):
                yield element

    return step
