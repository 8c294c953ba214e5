"""Every rule has a test and a home, and the list of rules without a test only shrinks."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from itertools import pairwise
from typing import Final

import pytest

from spec_tests import homes
from spec_tests.registry import load, read_pending
from spec_tests.report import ledger, pages
from tests.house.tree import ROOT, sources

REGISTRY: Final = load()


def test_every_rule_has_a_test_or_is_pending() -> None:
    """A rule outside pending.txt is named by a test of the suite, and a pending one by none."""
    named = homes.tests(ROOT).keys()
    assert named - REGISTRY.rules.keys() == set()
    assert REGISTRY.rules.keys() - REGISTRY.pending - named == set(), "no test and not pending"
    assert REGISTRY.pending & named == set(), "tested: remove from spec_tests/pending.txt"


def test_every_tested_rule_has_a_home() -> None:
    """A rule outside pending.txt is claimed by the module, or the chart template, that keeps it."""
    assert REGISTRY.rules.keys() - REGISTRY.pending - homes.homes(ROOT).keys() == set()


def test_every_claim_is_a_rule() -> None:
    """No module claims a rule that does not exist."""
    claims = homes.homes(ROOT)
    strays = {rule: where for rule, where in claims.items() if rule not in REGISTRY.rules}
    assert strays == {}


def test_claims_are_read_as_written() -> None:
    """A paragraph ends at a blank line, a range counts both its ends, prose does not count."""
    text = "Story of NS-GC-01.\n\nRules: NS-AUT-01..03,\nNS-MNT-05.\n\nSee NS-GC-02."
    assert list(homes.claimed(text)) == ["NS-AUT-01", "NS-AUT-02", "NS-AUT-03", "NS-MNT-05"]


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


def test_the_pages_are_current() -> None:
    """The generated pages are what `make docs` writes from rules, sources and kept verdicts."""
    folder = ROOT / "docs" / "rules"
    verdicts = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    for name, content in pages.render(ROOT, REGISTRY, verdicts).items():
        assert (folder / name).read_text(encoding="utf-8") == content, f"{name}: run make docs"
    emulator = (ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")
    assert ledger.fill(ROOT, emulator) == emulator, "emulator.md: run make docs"


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
