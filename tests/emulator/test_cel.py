"""The expression language of validation rules: what it computes, and what it refuses to compile."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.cel.functions import EvaluationError
from emulator.cel.parser import CompileError, compile_expression

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "x-y": {"type": "string"},
    },
}
SELF = {"size": 7, "name": "abc", "tags": ["a", "bb"], "labels": {"k": "v"}, "x-y": "z"}


def evaluate(text: str) -> Any:
    """Return what an expression over SELF comes to."""
    return compile_expression(text, {"self": SCHEMA}).eval({"self": SELF})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7.0 / 2.0", 3.5),
        ("self.size > 6 && self.size <= 7", True),
        ("self.size == 8 || self.name == 'abc'", True),
        ("!(self.size != 7)", True),
        ("self.size > 5 ? 'big' : \"small\"", "big"),
        ("self.name + '-' + string(self.size)", "abc-7"),
        ("'a' in self.tags && !('z' in self.tags)", True),
        ("'k' in self.labels", True),
        ("self.labels['k']", "v"),
        ("self.tags[1].size()", 2),
        ("size(self.tags)", 2),
        ("has(self.name) && !has(self.free)", True),
        ("self.tags.all(t, size(t) < 3)", True),
        ("self.tags.exists(t, t == 'bb')", True),
        ("self.tags.exists_one(t, t.startsWith('a'))", True),
        ("self.tags.filter(t, t.endsWith('b'))", ["bb"]),
        ("self.tags.map(t, t.upperAscii())", ["A", "BB"]),
        ("self.labels.all(k, self.labels[k] == 'v')", True),
        ("self.name.matches('^[a-c]+$')", True),
        ("self.name.contains('b') && 'x,y'.split(',') == ['x', 'y']", True),
        (r"'a\'b' == r'a' + \"'b\"".replace('\\"', '"'), True),
        ("{'a': 1}['a'] == 0x1", True),
        ("self.x__dash__y == 'z'", True),
        ("true != null", True),
        ("1 == true", False),
    ],
)
def test_evaluates(text: str, value: object) -> None:
    """An expression comes to what the language says."""
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text", ["self.size == 7 || self.labels['none'] == 'x'", "self.labels['none'] == 'x' || true"]
)
def test_one_side_may_decide_alone(text: str) -> None:
    """A side that fails does not matter when the other one decides, whichever comes first."""
    assert evaluate(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "self.labels['none']",
        "self.tags[5]",
        "self.size + 'a'",
        "self.name > 3",
        "1 / 0",
        "!self.size",
    ],
)
def test_fails_by_evaluation_error(text: str) -> None:
    """What cannot be computed fails as such, and never as a Python error."""
    with pytest.raises(EvaluationError):
        evaluate(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("self.nope == 1", "undefined field 'nope'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("self.name.reverse()", "undeclared reference to 'reverse', or not emulated"),
        ("duration('1s') == 1", "undeclared reference to 'duration', or not emulated"),
        ("self.size ==", "Syntax error: mismatched input '<EOF>'"),
        ("self.size == 7)", "Syntax error: mismatched input ')'"),
        ("self.size # 7", "token recognition error at: '#'"),
        ("has(self)", "invalid argument to has() macro"),
    ],
)
def test_refuses_to_compile(text: str, said: str) -> None:
    """What the language, or this part of it, does not know is refused with the place."""
    with pytest.raises(CompileError, match=r"<input>:1:\d+") as refused:
        compile_expression(text, {"self": SCHEMA})
    assert said in str(refused.value)
