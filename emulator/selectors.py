"""Label and field selectors: read once, matched often.

The errors are the server's, word for word: people recognise them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emulator.contracts import Json
from emulator.errors import bad_request
from emulator.kinds.kind import Kind
from emulator.objects import EVERYTHING, SELECTED_BY, Interest

Test = Callable[[Mapping[str, str]], bool]
_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|>|<|[^\s=!,()<>]+)")
_SYMBOLS = frozenset(("==", "!=", "=", "!", ",", "(", ")", ">", "<"))
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


@dataclass(frozen=True, slots=True)
class Selection:
    """A compiled pair of selectors over the objects of one kind."""

    labels: tuple[Test, ...]
    fields: tuple[tuple[str, str, bool], ...]  # name, value, whether it must be equal
    kind: Kind

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, object_: Json, fields: Mapping[str, str] | None = None) -> bool:
        """Say whether an object is selected; `fields`, if known, are its selectable ones."""
        labels = object_["metadata"].get("labels") or {}
        if not all(test(labels) for test in self.labels):
            return False
        if not self.fields:
            return True
        if fields is None:
            fields = selectable_fields(self.kind, self.kind.convert(object_))
        return all((fields.get(name, "") == value) is equal for name, value, equal in self.fields)

    @property
    def interest(self) -> Interest:
        """Return the one field value without which nothing is selected, if it is a common one."""
        wanted = ((name, value) for name, value, equal in self.fields if equal)
        return next((one for one in wanted if one[0] in SELECTED_BY), EVERYTHING)


def selectable_fields(kind: Kind, object_: Json) -> Mapping[str, str]:
    """Return every field of an object that a field selector may name."""
    metadata = object_["metadata"]
    return {
        "metadata.name": metadata.get("name", ""),
        "metadata.namespace": metadata.get("namespace", ""),
        **kind.selectable(object_),
    }


def selection(kind: Kind, label_selector: str, field_selector: str) -> Selection:
    """Compile both selectors for a kind. Raises ApiError 400."""
    return Selection(
        tuple(label_tests(label_selector)), tuple(_field_terms(kind, field_selector)), kind
    )


def _field_terms(kind: Kind, text: str) -> list[tuple[str, str, bool]]:
    allowed = {"metadata.name", "metadata.namespace", *kind.selectable_names}
    terms: list[tuple[str, str, bool]] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        found = re.fullmatch(r"((?:[^=!\\]|\\.)*)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = found[1], found[2], re.sub(r"\\(.)", r"\1", found[3])
        if name not in allowed:
            raise bad_request(f"field label not supported: {name}")
        terms.append((name, value, operator != "!="))
    return terms


def label_tests(text: str) -> list[Test]:
    """Compile a label selector. Raises ApiError 400."""
    return _Labels(text).requirements()


class _Labels:
    """Reads requirements off a row of words and symbols."""

    def __init__(self, text: str) -> None:
        self._words = _TOKEN.findall(text)
        self._index = 0

    def _peek(self) -> str:
        return self._words[self._index] if self._index < len(self._words) else ""

    def _next(self) -> str:
        word = self._peek()
        self._index += 1
        return word

    def requirements(self) -> list[Test]:
        """Return one test for each requirement."""
        tests: list[Test] = []
        if not self._words:
            return tests
        while True:
            word = self._peek()
            if word != "!" and word in _SYMBOLS:
                raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
            tests.append(self._requirement())
            word = self._next()
            if not word:
                return tests
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            following = self._peek()
            if following != "!" and (not following or following in _SYMBOLS):
                raise bad_request(f"found '{following}', expected: identifier after ','")

    def _requirement(self) -> Test:
        if self._peek() == "!":
            self._next()
            key = self._next()
            return lambda labels: key not in labels
        key = self._next()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._next()
        return self._comparison(key, operator)

    def _comparison(self, key: str, operator: str) -> Test:
        match operator:
            case "=" | "==":
                value = self._value()
                return lambda labels: labels.get(key) == value
            case "!=":
                value = self._value()
                return lambda labels: labels.get(key) != value
            case ">" | "<":
                return _compared(key, operator, self._value())
            case "in":
                values = self._values()
                return lambda labels: labels.get(key) in values
            case "notin":
                values = self._values()
                return lambda labels: labels.get(key) not in values
        raise bad_request(
            f"unable to parse requirement: found '{operator}', expected: {_OPERATORS}"
        )

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        return self._next()

    def _values(self) -> frozenset[str]:
        word = self._next()
        if word != "(":
            raise bad_request(f"unable to parse requirement: found '{word}' expected: '('")
        values: list[str] = []
        while (word := self._next()) != ")":
            if not word:
                text = "unable to parse requirement: found '', expected: ',' or ')'"
                raise bad_request(text)
            if word != ",":
                values.append(word)
        return frozenset(values)


def _compared(key: str, operator: str, value: str) -> Test:
    if not re.fullmatch(r"[+-]?\d+", value):
        text = f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}"'
        raise bad_request(f"{text}: for 'Gt', 'Lt' operators, the value must be an integer")
    bound = int(value)

    def test(labels: Mapping[str, str]) -> bool:
        held = labels.get(key, "")
        if not re.fullmatch(r"[+-]?\d+", held):
            return False
        return int(held) > bound if operator == ">" else int(held) < bound

    return test
