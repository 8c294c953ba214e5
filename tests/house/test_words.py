"""Nothing in the repository speaks of the place or the way it was written, only of what it is."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.tree import ROOT

# Rotated by thirteen letters, or this file would be the first to hold them.
_WORDS: Final = (
    r"/jbex/",
    r"/gzc/grnz",
    r"\.\./funerq",
    r"\osnez-[n-m]",
    r"\ovffhrf fubj\o",
    r"pbzcnavba.snpgf",
    r"ehyrf-pbzcnavba",
    r"\o(nv|na|bhe|bgure|pbqvat|ol) ntragf?\o",
    r"\onaguebcvp\o",
    r"\opynhqr\o",
    r"\oebbz [n-m]\q",
    r"\o(grnz|gur) yrnq\o",
    r"\o(vffhr|pybfrf|svkrf|erfbyirf) #\q+",
    r"\ofrrq (qbphzrag|cntr|svyr)",
    r"\o(guvf|nabgure|bgure|cerivbhf) frffvba\o",
)
_FORBIDDEN: Final = re.compile(
    "|".join(codecs.decode(word, "rot13") for word in _WORDS), re.IGNORECASE
)
_TREES: Final = ("gpustack_delivery", "emulator", "spec_tests", "tests", "chart", "docs", ".ci")
_LOOSE: Final = ("*.md", "*.toml", "*.py", "Makefile", "LICENSE")
# Recordings and compiled caches are data, not sentences.
_DATA: Final = frozenset({".json", ".pyc", ".gz", ".bin"})


def spoken(text: str) -> Iterator[str]:
    """Yield the forbidden words of a text."""
    yield from (match.group() for match in _FORBIDDEN.finditer(text))


def _files() -> Iterator[Path]:
    for pattern in _LOOSE:
        yield from ROOT.glob(pattern)
    for tree in _TREES:
        yield from (path for path in (ROOT / tree).rglob("*") if path.is_file())


def test_no_file_speaks_of_its_making() -> None:
    """No source, page or chart file holds a forbidden word."""
    found = {
        str(path.relative_to(ROOT)): words
        for path in _files()
        if path.suffix not in _DATA and (words := list(spoken(path.read_text("utf-8"))))
    }
    assert found == {}


def test_the_list_of_words_works() -> None:
    """The check sees its words in a sentence, in any case, and lets a header's name pass."""
    for sentence in (
        "Nf gur grnz yrnq fnvq",
        "Pybfrf #12",
        "erpbeqrq va /jbex/k",
        "na NTRAG qvq vg",
    ):
        assert list(spoken(codecs.decode(sentence, "rot13"))), sentence
    assert list(spoken("the User-Agent header of a node plugin, a session, a helper")) == []
