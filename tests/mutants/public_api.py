"""Broken public APIs: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.worker.public_api import models, settings_store, targets
from gpustack_delivery.worker.public_api.access import Action
from gpustack_delivery.worker.public_api.progress import Deliveries
from tests.mutants.seams import Patch, breaks


@breaks("VW-AUT-01")
def takes_progress_for_the_artifact(patch: Patch) -> None:
    """Ask for the right to read the artifact in place of the subresource's own."""

    def action(self: targets.Target) -> Any:
        resource = self.served.resource
        place = {"namespace": self.namespace, "name": self.name}
        return Action(self.verb, resource.group, resource.plural, "", **place)

    patch.setattr(targets.Target, "action", property(action))


@breaks("NS-OWN-09")
def lets_node_stores_be_written(patch: Patch) -> None:
    """Serve every verb of every kind."""
    plain = targets.Served

    def opened(group: tuple[targets.Served, ...]) -> tuple[targets.Served, ...]:
        verbs = group[0].verbs
        return tuple(plain(one.resource, verbs, one.short_name) for one in group)

    served = {group: opened(kinds) for group, kinds in targets.SERVED.items()}
    patch.setattr(targets, "SERVED", served)


@breaks("VW-RES-01")
def shows_the_stored_version(patch: Patch) -> None:
    """Pass answers back as they are."""
    patch.setattr(models, "published", lambda body: body)


@breaks("VW-RES-02")
def forgets_its_tables(patch: Patch) -> None:
    """Print the columns of the stored kinds."""
    patch.setattr(models, "LAYOUTS", {})


@breaks("NS-MET-09")
def hears_no_plugin(patch: Patch) -> None:
    """Count stored bytes alone."""
    patch.setattr(Deliveries, "_live", lambda *_: {})


@breaks("OP-SET-01")
def accepts_every_setting(patch: Patch) -> None:
    """Store whatever is asked."""
    patch.setattr(settings_store, "edit_fault", lambda *_: "")


@breaks("OP-SET-01")
def needs_no_driver(patch: Patch) -> None:
    """Deliver by node where no plugin is installed."""
    patch.setattr(settings_store.SettingsStore, "_lacks_driver", lambda *_: False)
