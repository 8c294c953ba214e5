"""The values of a chart: what a command line lays over them, and whether they fit its schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from emulator.chart.errors import ChartError
from emulator.chart.functions import Value

Json = dict[str, Any]


def given(files: Iterable[Path], settings: Iterable[str]) -> Json:
    """Return the values of YAML files, each laid over the one before, and of KEY=VALUE over them.

    Args:
        settings: such as `worker.replicas=2`; the value is YAML, so `a.b=[1, 2]` is a list.

    Raises:
        ChartError: which file or setting cannot be read, and why.
    """
    values: Json = {}
    for file in files:
        values = laid_over(values, mapping(file))
    for text in settings:
        values = laid_over(values, _setting(text))
    return values


def mapping(path: Path) -> Json:
    """Read a YAML file that holds a map. Raises ChartError."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ChartError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ChartError(f"{path} cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ChartError(f"{path} must hold a map")
    return content


def laid_over(base: Json, over: Mapping[str, Value]) -> Json:
    """Return a map with another laid over it, map by map; None takes a key away."""
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = laid_over(result[key], value)
        else:
            result[key] = value
    return result


def check(chart: Path, values: Mapping[str, Value]) -> None:
    """Hold values against the chart's values.schema.json, if it has one, as Helm does.

    Raises:
        ChartError: the first place that does not fit, and why.
    """
    path = chart / "values.schema.json"
    if not path.exists():
        return
    schema = json.loads(path.read_text("utf-8"))
    fault = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(values))
    if fault is not None:
        place = ".".join(map(str, fault.absolute_path)) or "the values"
        raise ChartError(f"{place} does not fit {path.name}: {fault.message}")


def _setting(text: str) -> Json:
    """Read KEY=VALUE, its key a path with dots."""
    key, equals, value = text.partition("=")
    words = key.split(".")
    if not equals or not all(words):
        raise ChartError(f"{text!r}: write it as KEY=VALUE, such as worker.replicas=2")
    try:
        content: Any = yaml.safe_load(value) if value else ""
    except (ValueError, yaml.YAMLError, RecursionError):
        raise ChartError(f"{text!r}: the value is no YAML: quote it") from None
    for word in reversed(words):
        content = {word: content}
    result: Json = content
    return result
