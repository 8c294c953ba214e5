"""A pytest plugin that breaks the implementation and keeps the tests of the rules in question.

Loaded by `python -m tests.mutants` with `-p`; nothing else loads it.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.mutants import MUTANTS

_PATCH: Final = pytest.StashKey[pytest.MonkeyPatch]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that the launcher uses."""
    group = parser.getgroup("mutants")
    group.addoption("--mutant", choices=sorted(MUTANTS), help="break the implementation so")
    group.addoption("--rules", default="", help="keep the tests that cite one of these")


def pytest_configure(config: pytest.Config) -> None:
    """Break what the mutant breaks, before anything runs."""
    patch = config.stash[_PATCH] = pytest.MonkeyPatch()
    if name := config.getoption("--mutant"):
        MUTANTS[name].apply(patch)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Mend it again."""
    config.stash[_PATCH].undo()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other rules."""
    wanted = set(config.getoption("--rules").split(","))
    left = [item for item in items if not wanted & _cited(item)]
    items[:] = [item for item in items if wanted & _cited(item)]
    config.hook.pytest_deselected(items=left)


def _cited(item: pytest.Item) -> set[str]:
    return {str(rule) for mark in item.iter_markers("rule") for rule in mark.args}
