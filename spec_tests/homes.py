"""Where each rule is kept and where it is tested, read from the sources without importing them.

A module, or a chart template, says in its head which rules it is the home of: `Rules:
NS-AUT-01..14, NS-MNT-05.` A test says with its `rule` marker which rules it proves. Used by the
documentation and by the house tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PARAGRAPH: Final = re.compile(r"\bRules?:(.*?)(?:\n[# ]*\n|\Z)", re.DOTALL)
_RANGE: Final = re.compile(r"([A-Z]{2}-[A-Z]{2,3}-)(\d{2})(?:\.\.(\d{2}))?")


def claimed(text: str) -> Iterator[str]:
    """Yield the rules of a head's `Rules:` paragraphs; `NS-AUT-01..14` is a range."""
    for paragraph in _PARAGRAPH.findall(text):
        for prefix, first, last in _RANGE.findall(paragraph):
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:02}"


def cited(tree: ast.Module) -> Iterator[str]:
    """Yield the rules that the `rule` markers of a test file name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.rule":
            yield from (ast.literal_eval(argument) for argument in node.args)


def homes(root: Path) -> dict[str, list[str]]:
    """Return for each claimed rule the files under a repository's root that claim it."""
    heads: dict[str, str] = {}
    for path in sorted((root / "gpustack_delivery").rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        heads[path.relative_to(root).as_posix()] = docstring or ""
    for path in sorted((root / "chart").rglob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        comment = [line for line in lines if line.startswith("#")]
        heads[path.relative_to(root).as_posix()] = "\n".join(comment)
    return _inverted((where, claimed(head)) for where, head in heads.items())


def tests(root: Path) -> dict[str, list[str]]:
    """Return for each cited rule the files of the suite that test it."""
    files = sorted((root / "spec_tests").rglob("test_*.py"))
    return _inverted(
        (path.relative_to(root).as_posix(), cited(ast.parse(path.read_text(encoding="utf-8"))))
        for path in files
    )


def _inverted(pairs: Iterator[tuple[str, Iterator[str]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for where, identifiers in pairs:
        for identifier in dict.fromkeys(identifiers):
            found.setdefault(identifier, []).append(where)
    return found
