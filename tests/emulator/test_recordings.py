"""Each exchange that was recorded is compared with, or stands in the ledger with its reason."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.replay import FOLDER, deviations

_TESTS = sorted(FOLDER.glob("test_*.py"))


def _recordings() -> Iterator[str]:
    for path in sorted((FOLDER / "golden").glob("*.json")):
        if "exchanges" in json.loads(path.read_text("utf-8")):
            yield path.stem


def _names(recording: str) -> list[str]:
    document = json.loads((FOLDER / "golden" / f"{recording}.json").read_text("utf-8"))
    return [exchange["name"] for exchange in document["exchanges"]]


def _texts(tree: ast.AST) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _plays_all(tree: ast.AST) -> bool:
    """Say whether a test is parametrized by all cases of a recording, and not by a choice."""
    calls = {
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "cases"
    }
    chosen = {
        below
        for node in ast.walk(tree)
        if isinstance(node, ast.comprehension) and node.ifs
        for below in ast.walk(node.iter)
    }
    return bool(calls - chosen)


def _compared(recording: str, names: list[str], path: Path) -> set[str]:
    """Return the exchanges of a recording that a test file compares with."""
    tree = ast.parse(path.read_text("utf-8"))
    texts = _texts(tree)
    if not texts & {recording, f"{recording}.json"}:
        return set()
    if _plays_all(tree):
        return set(names)
    module = importlib.import_module(f"tests.emulator.{path.stem}")
    listed = {
        name
        for value in vars(module).values()
        if isinstance(value, list | tuple)
        for name in value
        if isinstance(name, str)
    }
    return {name for name in names if name in listed or any(name in text for text in texts)}


@pytest.mark.parametrize("recording", list(_recordings()))
def test_nothing_that_was_recorded_is_left_out(recording: str) -> None:
    """An exchange that no test names, and that is no known deviation, is one nobody looks at."""
    names = _names(recording)
    assert len(names) == len(set(names)), "two exchanges share a name"
    seen = set(deviations(recording))
    for path in _TESTS:
        seen |= _compared(recording, names, path)
    assert sorted(set(names) - seen) == []


def test_a_choice_of_cases_is_no_replay_of_all() -> None:
    """The check tells a test of all exchanges from a test of some."""
    assert _plays_all(ast.parse('parametrize("name", cases(RECORDING))'))
    assert not _plays_all(ast.parse("[case for case in cases(RECORDING) if case.id in PLAYED]"))
    assert not _plays_all(ast.parse("exchanges(RECORDING)"))
