"""Proof of the specification: broken versions of ours, and the rules that must catch each.

A mutant patches one seam of the implementation before the in-process target starts it. Its rules
pass for us as we are, and each must be `failed` for the mutant: a mutant that survives means that
the tests of that rule cannot fail. `make mutants` runs them all.

Every function under `@breaks` in a module of this package is a mutant; there is no other list.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from tests.mutants.seams import Mutant

_USERS: Final = {"__main__", "breaking"}
"""Modules that read the list, and so cannot be part of it."""

MUTANTS: Final[Mapping[str, Mutant]] = {
    found.name: found
    for module in iter_modules(__path__)
    if module.name not in _USERS
    for found in vars(import_module(f"{__name__}.{module.name}")).values()
    if isinstance(found, Mutant)
}
"""Every mutant by its name."""
