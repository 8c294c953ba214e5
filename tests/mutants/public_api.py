"""Broken public APIs: each breaks one seam, in the way its name says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions.progress import measure
from gpustack_delivery.worker.public_api import models, progress, settings_store, targets
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


@breaks("VW-PRG-01")
def remembers_its_answers(patch: Patch) -> None:
    """Compute an artifact's progress once."""
    compute = Deliveries.progress

    def remembered(self: Any, *key: str) -> Any:
        answers = self.__dict__.setdefault("answers", {})
        return answers[key] if key in answers else answers.setdefault(key, compute(self, *key))

    patch.setattr(Deliveries, "progress", remembered)


@breaks("VW-PRG-02")
def counts_the_silent_as_live(patch: Patch) -> None:
    """Take a plugin that does not answer for one that has received nothing."""
    received = Deliveries._received
    patch.setattr(Deliveries, "_received", lambda *given: received(*given) or 0)


@breaks("VW-PRG-02")
def waits_for_the_silent(patch: Patch) -> None:
    """Give a plugin a minute to answer."""
    patch.setattr(progress, "LIVE_SECONDS", 60.0)


@breaks("VW-PRG-03")
def says_where_it_failed(patch: Patch) -> None:
    """Add the nodes to the reasons of failures."""

    def measured(artifact: Any, entries: Any, live: Any) -> Any:
        failures = {
            f"{entry.reason} on {node}": 1 for node, entry in entries.items() if entry.reason
        }
        return replace(measure(artifact, entries, live), failures=failures)

    patch.setattr(progress, "measure", measured)


@breaks("VW-PRG-03")
def answers_zeros_alone(patch: Patch) -> None:
    """Say nothing of why there is nothing to count."""
    patch.setattr(progress, "measure", lambda *given: replace(measure(*given), reason=""))


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
