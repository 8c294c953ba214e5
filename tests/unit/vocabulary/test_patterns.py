"""Patterns: the semantics of fnmatchcase, against a matcher that shares nothing with it."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack_delivery.vocabulary.manifest import Entry
from gpustack_delivery.vocabulary.patterns import Patterns


def wildcard_match(pattern: str, name: str) -> bool:
    """Match `*` and `?` by dynamic programming, every other character literally."""
    reach = {0}
    for character in pattern:
        if character == "*":
            reach = set(range(min(reach), len(name) + 1)) if reach else set()
        else:
            reach = {
                place + 1
                for place in reach
                if place < len(name) and character in ("?", name[place])
            }
    return len(name) in reach


@given(st.text("ab*?/.", max_size=8), st.text("ab/.", max_size=8))
def test_wildcards_cross_slashes(pattern: str, name: str) -> None:
    """`*` and `?` match any character, a slash included."""
    expected = wildcard_match(pattern + "*" if pattern.endswith("/") else pattern, name)
    assert Patterns(allow=(pattern,)).keeps(name) is expected


@given(
    st.text("ab[]!-*?/^\\é", min_size=1, max_size=8).filter(lambda p: not p.endswith("/")),
    st.text("ab[]!-/^\\é", max_size=6),
)
def test_same_as_fnmatchcase(pattern: str, name: str) -> None:
    """Without a trailing slash a pattern means exactly what fnmatchcase makes of it."""
    assert Patterns(allow=(pattern,)).keeps(name) is fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.json", "a/b.json", True),
        ("original/*", "original/a", True),
        ("original/*", "x/original/a", False),
        ("original/", "original/a/b", True),
        ("original/", "original", False),
        ("*.JSON", "a.json", False),
        ("*", ".hidden", True),
        ("**", "a/b", True),
        ("[ab]", "b", True),
        ("[!ab]", "b", False),
        ("[!ab]", "/", True),
        ("[^a]", "^", True),
        ("[]]", "]", True),
        ("[", "[", True),
        ("[a", "[a", True),
        ("[z-a]", "m", False),
        ("\\*", "\\x", True),
        ("?", "\N{GRINNING FACE}", True),
    ],
)
def test_named_cases(pattern: str, name: str, *, matches: bool) -> None:
    """The documented corners: case, brackets, trailing slashes, dots, code points."""
    assert Patterns(allow=(pattern,)).keeps(name) is matches
    assert Patterns(ignore=(pattern,)).keeps(name) is not matches


def test_ignore_wins_and_order_stays() -> None:
    """An ignored file is out though an allow pattern keeps it; the rest keeps its order."""
    entries = [Entry(path, 0, "") for path in ("b.bin", "a.json", "b.json")]
    kept = Patterns(("*.json", "b*"), ("b.j*",)).filter(entries)
    assert [entry.path for entry in kept] == ["b.bin", "a.json"]


def test_no_patterns_keep_everything() -> None:
    """An empty allow list is no restriction."""
    assert Patterns().keeps("anything/at all")
