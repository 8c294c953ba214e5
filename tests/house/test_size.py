"""Small on purpose: a file that fits a reader's head, a function that fits a screen."""

from __future__ import annotations

import ast
from typing import Final

from tests.house.tree import PACKAGES, ROOT, parse, sources

FILE_LINES: Final = 350
FUNCTION_LINES: Final = 60


def test_files_stay_small() -> None:
    """No hand-written module is longer than the ceiling; a longer one has two subjects."""
    found = {
        str(source.path.relative_to(ROOT)): lines
        for source in [*sources(*PACKAGES), parse(ROOT / "conftest.py")]
        if (lines := source.text.count("\n")) > FILE_LINES
    }
    assert found == {}


def test_functions_stay_small() -> None:
    """No function is longer than a screen, its docstring included."""
    found = {
        f"{source.path.relative_to(ROOT)}:{node.lineno} {node.name}": lines
        for source in sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    }
    assert found == {}
