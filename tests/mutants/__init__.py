"""Proof of the specification: broken versions of ours, and the rules that must catch each.

A mutant patches one seam of the implementation before the in-process target starts it. Its rules
pass for us as we are, and each must be `failed` for the mutant: a mutant that survives means that
the tests of that rule cannot fail. `make mutants` runs them all.

Every function under `@breaks` in one of the modules below is a mutant; there is no other list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.mutants import (
    admitting,
    artifacts,
    authorizing,
    collecting,
    configuring,
    consuming,
    counting,
    downloading,
    failing,
    granting,
    listing,
    mounting,
    ownership,
    peers,
    public_api,
    rendered,
    reporting,
    warming,
)
from tests.mutants.seams import Mutant

_MODULES: Final = (
    admitting,
    artifacts,
    authorizing,
    collecting,
    configuring,
    consuming,
    counting,
    downloading,
    failing,
    granting,
    listing,
    mounting,
    ownership,
    peers,
    public_api,
    rendered,
    reporting,
    warming,
)

MUTANTS: Final[Mapping[str, Mutant]] = {
    found.name: found
    for module in _MODULES
    for found in vars(module).values()
    if isinstance(found, Mutant)
}
"""Every mutant by its name."""
