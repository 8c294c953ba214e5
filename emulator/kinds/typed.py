"""Decoding of built-in kinds: what Go's decoder does to a body before anyone judges it.

Unknown fields are dropped and complained about, values of a wrong type refuse the whole body,
times, bytes and quantities are checked and brought to their canonical form, null and empty lists
vanish. The table of classes, `types.json`, holds the field names and types of the official
client's models; `tests/emulator` compares the two.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from emulator.contracts import Json

_SIMPLE = {
    "str": (str, "string"),
    "bool": (bool, "bool"),
    "int": (int, "int32"),
    "float": (float, "float64"),
}
_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_LAYOUT = "2006-01-02T15:04:05"


class UndecodableError(Exception):
    """A body has a value of a type that its field cannot take; the text is the decoder's."""


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(
        (resources.files(__package__) / "types.json").read_text("utf-8")
    )
    return table


@cache
def fields(class_name: str) -> Mapping[str, str]:
    """Return the fields of a class and their types, without the mark of required ones."""
    return {name: type_.rstrip("!") for name, type_ in _table()["types"][class_name].items()}


@cache
def required(class_name: str) -> frozenset[str]:
    """Return the fields that every value of a class has."""
    return frozenset(
        name for name, type_ in _table()["types"][class_name].items() if type_.endswith("!")
    )


def class_of(api_version: str, kind: str) -> str | None:
    """Return the class of a built-in kind, None when the table has none."""
    found: str | None = _table()["kinds"].get(f"{api_version}/{kind}")
    return found


def decode(class_name: str, value: Json) -> tuple[Json, list[str]]:
    """Return a cleaned copy of a body and what strict decoding complains of.

    Raises:
        UndecodableError: a value has a type that its field cannot take.
    """
    complaints: list[str] = []
    return _object(class_name, value, "", complaints), complaints


def _object(class_name: str, value: Json, path: str, complaints: list[str]) -> Json:
    types, needed = fields(class_name), required(class_name)
    cleaned: Json = {}
    for name, given in value.items():
        where = f"{path}.{name}" if path else name
        type_ = types.get(name)
        if type_ is None:
            complaints.append(f'unknown field "{where}"')
            continue
        if given is None:
            continue
        result = _value(type_, given, (class_name, where), complaints)
        if name in needed or not _vanishes(class_name, type_, result):
            cleaned[name] = result
    return cleaned


def _vanishes(class_name: str, type_: str, value: Any) -> bool:
    if type_.startswith(("list:", "map:")):
        return not value
    return value == "" and (class_name == "V1ObjectMeta" or type_ in ("time", "micro"))


def _value(type_: str, value: Any, at: tuple[str, str], complaints: list[str]) -> Any:
    """Return a checked value; `at` is the class that holds the field, and its path."""
    family, _, element = type_.partition(":")
    match family:
        case "list":
            if not isinstance(value, list):
                raise _mismatch(value, at, f"[]{_go(element)}")
            return [
                _value(element, one, (at[0], f"{at[1]}[{index}]"), complaints)
                for index, one in enumerate(value)
            ]
        case "map":
            if not isinstance(value, dict):
                raise _mismatch(value, at, f"map[string]{_go(element)}")
            return {
                key: _value(
                    element,
                    one,
                    (at[0], f"{at[1]}.{key}" if element[0].isupper() else at[1]),
                    complaints,
                )
                for key, one in value.items()
            }
        case "any":
            return value
        case "time" | "micro" | "bytes" | "quantity":
            return _special(family, value, at)
        case "str" | "bool" | "int" | "float":
            return _scalar(family, value, at)
        case _:
            if not isinstance(value, dict):
                raise _mismatch(value, at, _go(type_))
            return _object(type_, value, at[1], complaints)


def _scalar(family: str, value: Any, at: tuple[str, str]) -> Any:
    python, go = _SIMPLE[family]
    if family == "float" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if value is None and family == "str":
        return ""
    if isinstance(value, python) and (python is bool or not isinstance(value, bool)):
        return value
    raise _mismatch(value, at, go)


def _special(family: str, value: Any, at: tuple[str, str]) -> Any:
    if family == "quantity":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not _QUANTITY.match(value):
            raise UndecodableError(
                f"quantities must match the regular expression '{_QUANTITY.pattern}'"
            )
        return value
    if not isinstance(value, str):
        raise _mismatch(value, at, "string")
    if family == "bytes":
        return _checked_base64(value)
    return moment(value, micro=family == "micro") if value else ""


def _checked_base64(value: str) -> str:
    raw = value.encode()
    try:
        base64.b64decode(raw, validate=True)
    except binascii.Error:
        body = raw.rstrip(b"=")
        wrong = next((index for index, byte in enumerate(body) if byte not in _BASE64), len(body))
        raise UndecodableError(f"illegal base64 data at input byte {wrong}") from None
    return value


def moment(value: str, *, micro: bool = False) -> str:
    """Return an RFC 3339 time in UTC, to the second or the microsecond.

    Raises:
        UndecodableError: in Go's words, naming the first piece that cannot be read.
    """
    layout = f"{_LAYOUT}.000000Z07:00" if micro else f"{_LAYOUT}Z07:00"
    found = re.match(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)$", value)
    if found is None:
        rest, piece = (value, "2006") if not re.match(r"\d{4}", value) else (value[4:], "-")
        raise _bad_time(value, layout, rest, piece)
    if micro and not re.fullmatch(r"\.\d{6}", found[2] or ""):
        raise _bad_time(value, layout, (found[2] or "") + found[3], ".000000")
    try:
        parsed = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except ValueError:
        raise _bad_time(value, layout, value, "2006") from None
    return parsed.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _bad_time(value: str, layout: str, rest: str, piece: str) -> UndecodableError:
    return UndecodableError(
        f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as "{piece}"'
    )


def _go(type_: str) -> str:
    if type_ in _SIMPLE:
        return _SIMPLE[type_][1]
    return f"v1.{_bare(type_)}" if type_[0].isupper() else "string"


def _bare(class_name: str) -> str:
    return re.sub(r"^(Core|Events|Rbac|Storage|Authentication|Discovery)?V\d+", "", class_name)


def _mismatch(value: Any, at: tuple[str, str], go_type: str) -> UndecodableError:
    match value:
        case bool():
            found = "bool"
        case int():
            found = "number"
        case float():
            found = f"number {value}"
        case str():
            found = "string"
        case list():
            found = "array"
        case _:
            found = "object"
    field = re.sub(r"\[\d+\]", "", at[1])
    return UndecodableError(
        f"json: cannot unmarshal {found} into Go struct field {_bare(at[0])}.{field} of type "
        f"{go_type}"
    )
