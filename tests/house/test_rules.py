"""Every rule has a test and a home, and the list of rules without a test only shrinks."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest

from spec_tests.registry import load, read_pending
from tests.house.tree import ROOT, Source, sources

REGISTRY: Final = load()
_PARAGRAPH: Final = re.compile(r"^[# ]*Rules?:(.*?)(?:\n[# ]*\n|\Z)", re.DOTALL | re.MULTILINE)
_RANGE: Final = re.compile(r"([A-Z]{2}-[A-Z]{2,3}-)(\d{2})(?:\.\.(\d{2}))?")


def claimed(text: str) -> Iterator[str]:
    """Yield the rules of a docstring's `Rules:` paragraphs; `NS-AUT-01..14` is a range."""
    for paragraph in _PARAGRAPH.findall(text):
        for prefix, first, last in _RANGE.findall(paragraph):
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:02}"


def cited(source: Source) -> Iterator[str]:
    """Yield the rules that a test file's `rule` markers name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.rule":
            yield from (ast.literal_eval(argument) for argument in node.args)


def homes() -> dict[str, set[str]]:
    """Return the rules that modules and chart templates claim, each with where."""
    texts = {
        str(source.path.relative_to(ROOT)): ast.get_docstring(source.tree) or ""
        for source in sources("gpustack_delivery")
    }
    for path in [*(ROOT / "chart").rglob("*.yaml"), *(ROOT / "chart").rglob("*.tpl")]:
        lines = path.read_text(encoding="utf-8").splitlines()
        texts[str(path.relative_to(ROOT))] = "\n".join(
            line.replace("{{- /*", "").replace("*/}}", "") for line in lines[:20]
        )
    found: dict[str, set[str]] = {}
    for where, text in texts.items():
        for identifier in claimed(text):
            found.setdefault(identifier, set()).add(where)
    return found


def test_every_rule_has_a_test_or_is_pending() -> None:
    """A rule outside pending.txt is named by a test of the suite, and a pending one by none."""
    named = {identifier for source in sources("spec_tests") for identifier in cited(source)}
    assert named - REGISTRY.rules.keys() == set()
    assert REGISTRY.rules.keys() - REGISTRY.pending - named == set(), "no test and not pending"
    assert REGISTRY.pending & named == set(), "tested: remove from spec_tests/pending.txt"


def test_every_tested_rule_has_a_home() -> None:
    """A rule outside pending.txt is claimed by the module, or the chart template, that keeps it."""
    assert REGISTRY.rules.keys() - REGISTRY.pending - homes().keys() == set()


def test_every_claim_is_a_rule() -> None:
    """No module claims a rule that does not exist."""
    strays = {rule: where for rule, where in homes().items() if rule not in REGISTRY.rules}
    assert strays == {}


def test_claims_are_read_as_written() -> None:
    """A paragraph ends at a blank line, a range counts both its ends, prose does not count."""
    text = "Story of NS-GC-01.\n\nRules: NS-AUT-01..03,\nNS-MNT-05.\n\nSee NS-GC-02."
    assert list(claimed(text)) == ["NS-AUT-01", "NS-AUT-02", "NS-AUT-03", "NS-MNT-05"]


@pytest.mark.needs("git")
def test_the_pending_list_only_shrinks() -> None:
    """No version of pending.txt names a rule that the version before it did not name."""
    versions = [(ROOT / "spec_tests/pending.txt").read_text(encoding="utf-8")]
    git = shutil.which("git")
    assert git is not None
    for commit in _git(git, "log", "--format=%H", "--", "spec_tests/pending.txt").split():
        versions.append(_git(git, "show", f"{commit}:spec_tests/pending.txt"))
    lists = [read_pending(version) for version in versions]
    for newer, older in pairwise(lists):
        assert newer <= older, f"new in pending.txt: {sorted(newer - older)}"


def _git(git: str, *arguments: str) -> str:
    command = [git, "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - fixed
    return done.stdout


def test_every_test_says_what_it_proves() -> None:
    """Each test function carries a docstring of one sentence or more."""
    silent = [
        f"{source.path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for source in sources("tests", "spec_tests")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
