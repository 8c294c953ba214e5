"""Structural schemas as judges: everything that is wrong with an object, in the server's own
sentences.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from emulator.contracts import Json
from emulator.errors import Cause, duplicate, invalid_value, not_supported, required, type_invalid
from emulator.kinds.typed import UndecodableError, moment

Path = tuple[
    str, str
]  # the field as causes name it, and as sentences name it: relative to what is validated


def validate(schema: Json, value: Any, field: str = "") -> list[Cause]:
    """Return what is wrong; `field` prefixes causes, but not their sentences."""
    return list(_value(schema, value, (field, "")))


def _below(path: Path, name: str) -> Path:
    return (f"{path[0]}.{name}" if path[0] else name, f"{path[1]}.{name}" if path[1] else name)


def _at(path: Path, index: int) -> Path:
    return (f"{path[0]}[{index}]", f"{path[1]}[{index}]")


_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def json_type(value: Any) -> str:
    """Return the JSON schema type of a value."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return next(name for type_, name in _TYPES if isinstance(value, type_))


def _value(schema: Json, value: Any, path: Path) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    wrong = list(_wrong_type(schema, value, path))
    if wrong:
        yield from wrong
        return
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path[0], value, schema["enum"])
    match value:
        case str():
            yield from _string(schema, value, path)
        case bool():
            pass
        case int() | float():
            yield from _number(schema, value, path)
        case list():
            yield from _array(schema, value, path)
        case dict():
            yield from _object(schema, value, path)
    yield from _combined(schema, value, path)


def _wrong_type(schema: Json, value: Any, path: Path) -> Iterator[Cause]:
    found = json_type(value)
    if schema.get("x-kubernetes-int-or-string"):
        if found not in ("integer", "string"):
            yield type_invalid(
                path[0], found, f'{path[1]} in body must be of type integer,string: "{found}"'
            )
        return
    expected = schema.get("type")
    if not expected or expected == found or (expected == "number" and found == "integer"):
        return
    format_ = schema.get("format", "")
    if expected == "integer" and isinstance(value, float) and format_ in ("int32", "int64"):
        yield type_invalid(
            path[0], "float64", f'{path[1]} in body must be of type {format_}: "float64"'
        )
        text = f"Checked value must be of type integer with format {format_} in {path[1]}"
        yield Cause("<nil>", "FieldValueInvalid", f'Invalid value: "": {text}')
        return
    yield type_invalid(path[0], found, f'{path[1]} in body must be of type {expected}: "{found}"')


def _string(schema: Json, value: str, path: Path) -> Iterator[Cause]:
    if (longest := schema.get("maxLength")) is not None and len(value) > longest:
        yield Cause(path[0], "FieldValueTooLong", f"Too long: may not be more than {longest} bytes")
    if (shortest := schema.get("minLength")) is not None and len(value) < shortest:
        yield invalid_value(
            path[0], value, f"{path[1]} in body should be at least {shortest} chars long"
        )
    if (pattern := schema.get("pattern")) and not re.search(pattern, value):
        yield invalid_value(path[0], value, f"{path[1]} in body should match '{pattern}'")
    check = FORMATS.get(schema.get("format", ""))
    if check and not check(value):
        yield type_invalid(
            path[0], value, f'{path[1]} in body must be of type {schema["format"]}: "{value}"'
        )


def _number(schema: Json, value: float, path: Path) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        how = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid_value(path[0], value, f"{path[1]} in body should be {how} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        how = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid_value(path[0], value, f"{path[1]} in body should be {how} {high}")
    if (step := schema.get("multipleOf")) and value % step:
        yield invalid_value(path[0], value, f"{path[1]} in body should be a multiple of {step}")
    bound = {"int32": 2**31, "int64": 2**63}.get(schema.get("format", ""))
    if bound and not -bound <= value < bound:
        text = f"Checked value must be of type integer with format {schema['format']} in {path[1]}"
        yield Cause("<nil>", "FieldValueInvalid", f'Invalid value: "": {text}')


def _array(schema: Json, value: list[Any], path: Path) -> Iterator[Cause]:
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield Cause(
            path[0], "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"
        )
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield invalid_value(
            path[0], len(value), f"{path[1]} in body should have at least {least} items"
        )
    items = schema.get("items")
    if isinstance(items, dict):
        for index, element in enumerate(value):
            yield from _value(items, element, _at(path, index))
    yield from _repeated(schema, value, path)


def _repeated(schema: Json, value: list[Any], path: Path) -> Iterator[Cause]:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            keys: list[Any] = value
        case "map":
            names = schema.get("x-kubernetes-list-map-keys", [])
            keys = [
                {name: element[name] for name in names if name in element}
                if isinstance(element, dict)
                else element
                for element in value
            ]
        case _:
            return
    seen: list[Any] = []
    for index, key in enumerate(keys):
        if key in seen:
            yield duplicate(f"{path[0]}[{index}]", key)
        seen.append(key)


def _object(schema: Json, value: Json, path: Path) -> Iterator[Cause]:
    for name in schema.get("required", []):
        if name not in value:
            yield required(_below(path, name)[0])
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield Cause(
            path[0], "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"
        )
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield invalid_value(
            path[0], len(value), f"{path[1]} in body should have at least {least} properties"
        )
    properties = schema.get("properties", {})
    for name, declared in properties.items():
        if name in value:
            yield from _value(declared, value[name], _below(path, name))
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for name, given in value.items():
            if name not in properties:
                yield from _value(additional, given, _below(path, name))


def _combined(schema: Json, value: Any, path: Path) -> Iterator[Cause]:
    def fits(part: Json) -> bool:
        return next(_value(part, value, path), None) is None

    if "allOf" in schema and not all(map(fits, schema["allOf"])):
        for part in schema["allOf"]:
            yield from _value(part, value, path)
        yield _schema_cause(path, "must validate all the schemas (allOf)")
    if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
        yield _schema_cause(path, "must validate at least one schema (anyOf)")
    if "oneOf" in schema and (count := sum(map(fits, schema["oneOf"]))) != 1:
        found = f"Found {count} valid alternatives" if count else "Found none valid"
        yield _schema_cause(path, f"must validate one and only one schema (oneOf). {found}")
    if "not" in schema and fits(schema["not"]):
        yield _schema_cause(path, "must not validate the schema (not)")


def _schema_cause(path: Path, text: str) -> Cause:
    return Cause("<nil>", "FieldValueInvalid", f'Invalid value: "": "{path[1]}" {text}')


def _reads(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except (ValueError, UndecodableError, binascii.Error):
            return False
        return True

    return check


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date-time": _reads(moment),
    "date": _reads(date.fromisoformat),
    "byte": _reads(lambda value: base64.b64decode(value, validate=True)),
    "ipv4": _reads(ipaddress.IPv4Address),
    "ipv6": _reads(ipaddress.IPv6Address),
    "cidr": _reads(ipaddress.ip_network),
    "uuid": lambda value: bool(
        re.fullmatch(r"(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", value)
    ),
    "uri": lambda value: bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|/", value)),
}
"""Formats that are checked; `definitions` refuses a CRD that relies on another one."""

UNCHECKED_FORMATS = frozenset({"int32", "int64", "float", "double", "password", "binary", ""})
"""Formats that need no check of their own: numbers have one above, the rest says nothing."""
