"""Workers that lose updates, each by one seam: what proves that the walk can end badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from gpustack_delivery.mirror import Mirror
from gpustack_delivery.worker.controller import Controller
from gpustack_delivery.worker.pins import Pins

Patch = pytest.MonkeyPatch


def gives_up_at_a_failure(patch: Patch) -> None:
    """Do nothing about a pass that failed, or that met another version than its copy's."""
    run = Controller._pass

    def once(controller: Any, key: Any) -> tuple[float | None, bool]:
        again, failed = run(controller, key)
        return (None if key in controller._failures else again), failed

    patch.setattr(Controller, "_pass", once)


def trusts_its_last_list(patch: Patch) -> None:
    """Tell nobody what a new list shows to have happened meanwhile."""
    read = Mirror._list

    def quietly(mirror: Any) -> None:
        told, mirror._listeners = mirror._listeners, [] if mirror.synced else mirror._listeners
        read(mirror)
        mirror._listeners = told

    patch.setattr(Mirror, "_list", quietly)


def pins_for_one_prefetch(patch: Patch) -> None:
    """Let what one prefetch asks of a node replace what the others do."""
    wish = Pins.wish

    def alone(pins: Any, prefetch: Any, digest: str, nodes: frozenset[str]) -> None:
        for other in set(pins._wishes) - {prefetch} if nodes else ():
            pins.withdraw(other)
        wish(pins, prefetch, digest, nodes)

    patch.setattr(Pins, "wish", alone)


MUTANTS: Final[Mapping[str, Callable[[Patch], None]]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (gives_up_at_a_failure, trusts_its_last_list, pins_for_one_prefetch)
}
"""Every mutant by its name on the command line."""
