"""Every rule is broken by a mutant, so that `make mutants` can show that its tests can fail."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Final

from spec_tests.registry import load
from tests.mutants import MUTANTS
from tests.mutants.seams import Mutant

BROKEN: Final = {rule for mutant in MUTANTS.values() for rule in mutant.rules}
UNBREAKABLE: Final[Mapping[str, str]] = {}
"""Rules that no patch of one seam breaks, and why; there should be next to none."""


def test_every_rule_has_a_mutant() -> None:
    """A rule has a mutant, or a reason to have none."""
    rules = load().rules.keys()
    assert BROKEN - rules == set(), "no such rule"
    assert rules - BROKEN - UNBREAKABLE.keys() == set(), "write a mutant that breaks it"
    assert UNBREAKABLE.keys() & BROKEN == set(), "it has one"
    assert all(UNBREAKABLE.values())


def test_no_mutant_hides_another() -> None:
    """Names are unique over all modules: of two the later would be the only one to run."""
    modules = [module for name, module in sys.modules.items() if name.startswith("tests.mutants.")]
    found = Counter(
        each.name
        for module in modules
        for each in vars(module).values()
        if isinstance(each, Mutant)
    )
    assert found.keys() == MUTANTS.keys()
    assert [name for name, count in found.items() if count > 1] == []
