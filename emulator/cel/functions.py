"""What operators, functions and macros of the expression language do to plain JSON values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Scope = Mapping[str, Any]
Eval = Callable[[Scope], Any]


class EvaluationError(Exception):
    """An expression met a value that it cannot work with: no such key, no such overload."""


def truth(value: Any) -> bool:
    """Return a boolean, or fail: nothing else is true or false."""
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


def field_of(held: Any, name: str) -> Any:
    """Return a field that must be there."""
    if isinstance(held, dict) and name in held:
        return held[name]
    raise EvaluationError(f"no such key: {name}")


def indexed(operand: Eval, index: Eval) -> Eval:
    """Return the evaluation of operand[index]."""

    def evaluate(scope: Scope) -> Any:
        held, key = operand(scope), index(scope)
        try:
            if isinstance(held, list) and isinstance(key, int) and key < 0:
                raise EvaluationError(f"index out of bounds: {key}")
            return held[key]
        except (LookupError, TypeError):
            raise EvaluationError(f"no such key: {key}") from None

    return evaluate


def _shortcut(left: Eval, right: Eval, decides: bool) -> Eval:  # noqa: FBT001 - true for ||, false for &&
    def evaluate(scope: Scope) -> bool:
        try:
            first = truth(left(scope))
        except EvaluationError:
            # The other side may decide alone, whatever the order.
            if truth(right(scope)) == decides:
                return decides
            raise
        return first if first == decides else truth(right(scope))

    return evaluate


def combine(operator: str, left: Eval, right: Eval) -> Eval:
    """Return the evaluation of a binary operator."""
    if operator in ("||", "&&"):
        return _shortcut(left, right, operator == "||")
    function = _OPERATORS[operator]

    def evaluate(scope: Scope) -> Any:
        first, second = left(scope), right(scope)
        try:
            return function(first, second)
        except (TypeError, ValueError, ZeroDivisionError):
            raise EvaluationError("no such overload") from None

    return evaluate


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, bool) != isinstance(second, bool):
        return False
    return bool(first == second)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def check(first: Any, second: Any) -> bool:
        if isinstance(first, dict | list) or first is None:
            raise TypeError
        return compare(first, second)

    return check


def _divide(first: Any, second: Any) -> Any:
    if isinstance(first, int) and isinstance(second, int):
        quotient = abs(first) // abs(second)
        return quotient if (first < 0) == (second < 0) else -quotient
    return first / second


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": _equal,
    "!=": lambda first, second: not _equal(first, second),
    "<": _ordered(lambda first, second: bool(first < second)),
    "<=": _ordered(lambda first, second: bool(first <= second)),
    ">": _ordered(lambda first, second: bool(first > second)),
    ">=": _ordered(lambda first, second: bool(first >= second)),
    "in": lambda first, second: first in second,
    "+": lambda first, second: first + second,
    "-": lambda first, second: first - second,
    "*": lambda first, second: first * second,
    "/": _divide,
    "%": lambda first, second: first - second * _divide(first, second),
}


def call(name: str, function: Callable[..., Any], arguments: list[Eval]) -> Eval:
    """Return the evaluation of a function call."""

    def evaluate(scope: Scope) -> Any:
        try:
            return function(*(one(scope) for one in arguments))
        except (TypeError, ValueError, AttributeError, re.error):
            raise EvaluationError(f"no such overload: {name}") from None

    return evaluate


def _walk(operand: Eval, variable: str, body: Eval) -> Callable[[Scope], list[tuple[Any, Any]]]:
    def pairs(scope: Scope) -> list[tuple[Any, Any]]:
        held = operand(scope)
        if not isinstance(held, list | dict):
            raise EvaluationError("expression of this type cannot be range of a comprehension")
        return [(element, body({**scope, variable: element})) for element in held]

    return pairs


MACROS: Mapping[str, Callable[[Eval, str, Eval], Eval]] = {
    "all": lambda o, v, b: lambda scope: all(truth(held) for _, held in _walk(o, v, b)(scope)),
    "exists": lambda o, v, b: lambda scope: any(truth(held) for _, held in _walk(o, v, b)(scope)),
    "exists_one": lambda o, v, b: (
        lambda scope: sum(truth(held) for _, held in _walk(o, v, b)(scope)) == 1
    ),
    "filter": lambda o, v, b: (
        lambda scope: [one for one, held in _walk(o, v, b)(scope) if truth(held)]
    ),
    "map": lambda o, v, b: lambda scope: [held for _, held in _walk(o, v, b)(scope)],
}

METHODS: Mapping[str, Callable[..., Any]] = {
    "size": len,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "split": lambda text, separator: text.split(separator),
    "join": lambda parts, separator="": separator.join(parts),
    "replace": lambda text, old, new: text.replace(old, new),
    "substring": lambda text, low, high=None: text[low:high],
    "indexOf": lambda text, part: text.find(part),
}


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "size": len,
    "string": _string,
    "int": int,
    "double": float,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
}
