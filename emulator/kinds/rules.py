"""Validation rules of a CRD schema (x-kubernetes-validations), compiled once and judged on every
write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emulator.cel.functions import EvaluationError
from emulator.cel.parser import CompileError, Expression, compile_expression
from emulator.contracts import Json
from emulator.errors import Cause, invalid_value

_SAYS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    expression: Expression
    message_expression: Expression | None
    message: str
    reason: str
    field_path: str
    transition: bool


@dataclass(frozen=True, slots=True)
class _Level:
    """The rules on one schema node, and the nodes below that have some."""

    rules: tuple[_Rule, ...]
    properties: dict[str, _Level]
    items: _Level | None
    map_keys: tuple[str, ...]
    additional: _Level | None


class Rules:
    """All rules of a schema; false when there are none. Raises CompileError."""

    def __init__(self, schema: Json) -> None:
        self._root = _level(schema)

    def __bool__(self) -> bool:
        return self._root is not None

    def broken(self, object_: Json, old: Json | None) -> Iterator[Cause]:
        """Yield a cause for every rule that an object breaks."""
        if self._root is not None:
            yield from _judge(self._root, object_, old, "")


def compile_faults(schema: Json, field: str) -> Iterator[Cause]:
    """Yield a cause for every rule of a schema that does not compile."""
    for index, declared in enumerate(schema.get("x-kubernetes-validations", ())):
        try:
            _rule(declared, schema)
        except CompileError as error:
            shown = {
                "Rule": declared.get("rule", ""),
                "Message": declared.get("message", ""),
                "MessageExpression": declared.get("messageExpression", ""),
                "Reason": declared.get("reason"),
                "FieldPath": declared.get("fieldPath", ""),
                "OptionalOldSelf": declared.get("optionalOldSelf"),
            }
            where = f"{field}.x-kubernetes-validations[{index}].rule"
            yield invalid_value(where, shown, f"compilation failed: {error}")
    for name, below in schema.get("properties", {}).items():
        yield from compile_faults(below, f"{field}.properties[{name}]")
    for part in ("items", "additionalProperties"):
        if isinstance(below := schema.get(part), dict):
            yield from compile_faults(below, f"{field}.{part}")


def _rule(declared: Json, schema: Json) -> _Rule:
    variables = {"self": schema, "oldSelf": schema}
    expression = compile_expression(declared["rule"], variables)
    text = declared.get("messageExpression")
    return _Rule(
        expression=expression,
        message_expression=compile_expression(text, variables) if text else None,
        message=declared.get("message") or f"failed rule: {declared['rule']}",
        reason=declared.get("reason") or "FieldValueInvalid",
        field_path=declared.get("fieldPath", ""),
        transition="oldSelf" in expression.names and not declared.get("optionalOldSelf"),
    )


def _level(schema: Json) -> _Level | None:
    rules = tuple(
        _rule(declared, schema) for declared in schema.get("x-kubernetes-validations", ())
    )
    below = {name: _level(part) for name, part in schema.get("properties", {}).items()}
    properties = {name: level for name, level in below.items() if level is not None}
    items, additional = schema.get("items"), schema.get("additionalProperties")
    item_level = _level(items) if isinstance(items, dict) else None
    additional_level = _level(additional) if isinstance(additional, dict) else None
    if not (rules or properties or item_level or additional_level):
        return None
    keys = (
        schema.get("x-kubernetes-list-map-keys", ())
        if schema.get("x-kubernetes-list-type") == "map"
        else ()
    )
    return _Level(rules, properties, item_level, tuple(keys), additional_level)


def _judge(level: _Level, value: Any, old: Any, field: str) -> Iterator[Cause]:
    for rule in level.rules:
        if rule.transition and old is None:
            continue
        cause = _verdict(rule, value, old, field)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, held in value.items():
            below = level.properties.get(name) or level.additional
            if below is not None:
                yield from _judge(
                    below, held, before.get(name), f"{field}.{name}" if field else name
                )
    elif isinstance(value, list) and level.items is not None:
        for index, element in enumerate(value):
            yield from _judge(
                level.items, element, _correlated(level, element, old), f"{field}[{index}]"
            )


def _correlated(level: _Level, element: Any, old: Any) -> Any:
    """Return the old element with the same map keys; other lists have no history."""
    if not level.map_keys or not isinstance(old, list):
        return None
    key = [element.get(name) for name in level.map_keys]
    return next((one for one in old if [one.get(name) for name in level.map_keys] == key), None)


def _verdict(rule: _Rule, value: Any, old: Any, field: str) -> Cause | None:
    scope = {"self": value, "oldSelf": old}
    where = f"{field}{rule.field_path}" if field else rule.field_path.removeprefix(".")
    try:
        if rule.expression.eval(scope) is True:
            return None
    except EvaluationError as error:
        return Cause(
            where, "FieldValueInvalid", f"Invalid value: {error} evaluating rule: {rule.message}"
        )
    message = rule.message
    if rule.message_expression is not None:
        try:
            message = str(rule.message_expression.eval(scope))
        except EvaluationError:
            message = rule.message
    return Cause(where, rule.reason, f"{_SAYS.get(rule.reason, 'Invalid value')}: {message}")
