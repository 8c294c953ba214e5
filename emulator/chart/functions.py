"""The functions that templates may call, as Helm defines them.

Each takes Python values (None, bool, int, float, str, list, dict) and returns one. What Helm offers
beyond them is refused by name when a template is rendered.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from emulator.chart.errors import ChartError

Value = Any
"""A template value: what YAML can hold."""


def printed(value: Value) -> str:
    """Return a value as a template prints it; nothing for nil."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{printed(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(printed(item) for item in value) + "]"
    return str(value)


def holds(value: Value) -> bool:
    """Say whether a value counts as something: not nil, false, zero or empty."""
    return bool(value)


def _to_yaml(value: Value) -> str:
    text = yaml.safe_dump(value, default_flow_style=False, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _indent(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _quote(*values: Value) -> str:
    return " ".join(json.dumps(printed(v), ensure_ascii=False) for v in values if v is not None)


def _squote(*values: Value) -> str:
    return " ".join(f"'{printed(value)}'" for value in values if value is not None)


def _printf(pattern: str, *values: Value) -> str:
    """Format the verbs %s, %v, %d, %q and %%; Go's other verbs are refused."""
    pieces, rest = [], list(values)
    head, *tails = pattern.split("%")
    pieces.append(head)
    escaped = False
    for tail in tails:
        if escaped:
            pieces.append("%" + tail)
            escaped = False
        elif not tail:
            escaped = True
        elif tail[0] in "svdq":
            if not rest:
                raise ChartError(f"printf {pattern!r} has more verbs than values")
            value = rest.pop(0)
            pieces.append((_quote(value) if tail[0] == "q" else printed(value)) + tail[1:])
        else:
            raise ChartError(f"printf {pattern!r}: only %s, %v, %d, %q and %% are supported")
    if rest:
        raise ChartError(f"printf {pattern!r} has more values than verbs")
    return "".join(pieces)


def _equal(first: Value, *others: Value) -> bool:
    return any(type(first) is type(other) and first == other for other in others)


def _required(message: str, value: Value) -> Value:
    if value is None or value == "":
        raise ChartError(message)
    return value


def _fail(message: str) -> Value:
    raise ChartError(message)


def _dictionary(*pairs: Value) -> dict[str, Value]:
    if len(pairs) % 2:
        raise ChartError("dict takes keys and values in pairs")
    return dict(zip(map(printed, pairs[::2]), pairs[1::2], strict=True))


def _index(value: Value, *keys: Value) -> Value:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else value[key]
    return value


def _integer(value: Value) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        return 0


def _trunc(length: int, text: str) -> str:
    return text[:length] if length >= 0 else text[length:]


def _merged(into: dict[str, Value], *others: Mapping[str, Value]) -> dict[str, Value]:
    """Give a map what others have and it lacks, at any depth; earlier ones win."""
    for other in others:
        for key, value in other.items():
            if isinstance(into.get(key), dict) and isinstance(value, Mapping):
                _merged(into[key], value)
            elif not holds(into.get(key)):
                into[key] = value
    return into


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "quote": _quote,
    "squote": _squote,
    "default": lambda preset, value=None: value if holds(value) else preset,
    "coalesce": lambda *values: next((value for value in values if holds(value)), None),
    "empty": lambda value: not holds(value),
    "not": lambda value: not holds(value),
    "ternary": lambda yes, no, chosen: yes if chosen else no,
    "required": _required,
    "fail": _fail,
    "eq": _equal,
    "ne": lambda first, second: not _equal(first, second),
    "lt": lambda first, second: first < second,
    "le": lambda first, second: first <= second,
    "gt": lambda first, second: first > second,
    "ge": lambda first, second: first >= second,
    "toYaml": _to_yaml,
    "toJson": lambda value: json.dumps(
        value, separators=(",", ":"), sort_keys=True, ensure_ascii=False
    ),
    "toString": printed,
    "indent": _indent,
    "nindent": lambda width, text: "\n" + _indent(width, text),
    "printf": _printf,
    "print": lambda *values: "".join(printed(value) for value in values),
    "lower": str.lower,
    "upper": str.upper,
    "trim": str.strip,
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trimPrefix": lambda prefix, text: text.removeprefix(prefix),
    "trunc": _trunc,
    "replace": lambda old, new, text: text.replace(old, new),
    "contains": lambda part, text: part in text,
    "hasPrefix": lambda prefix, text: text.startswith(prefix),
    "hasSuffix": lambda suffix, text: text.endswith(suffix),
    "regexMatch": lambda pattern, text: re.search(pattern, text) is not None,
    "join": lambda separator, items: separator.join(printed(item) for item in items),
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "int": _integer,
    "add": lambda *numbers: sum(_integer(number) for number in numbers),
    "sub": lambda first, second: _integer(first) - _integer(second),
    "mul": lambda first, second: _integer(first) * _integer(second),
    "len": len,
    "index": _index,
    "list": lambda *items: list(items),
    "dict": _dictionary,
    "get": lambda value, key: value.get(key, ""),
    "hasKey": lambda value, key: key in value,
    "has": lambda item, items: item in items,
    "keys": lambda *maps: [key for value in maps for key in sorted(value)],
    "merge": _merged,
    "kindIs": lambda kind, value: _kind(value) == kind,
}


def _kind(value: Value) -> str:
    kinds = {
        bool: "bool",
        int: "int64",
        float: "float64",
        str: "string",
        dict: "map",
        list: "slice",
    }
    return "invalid" if value is None else kinds.get(type(value), type(value).__name__)
