"""Broken renderings of consumers' Pods: each breaks one seam, in the way its name says."""

from __future__ import annotations

from gpustack_delivery.decisions import consuming, pods, preference
from tests.mutants.seams import Patch, breaks


@breaks("SC-PRF-01")
def names_every_holder(patch: Patch) -> None:
    """Prefer as many nodes as there are."""
    patch.setattr(preference, "MAX_NODES", 1000)


@breaks("SC-PRF-02")
def prefers_the_unfit(patch: Patch) -> None:
    """Count nodes whose configuration cannot be executed."""
    patch.setattr(preference, "holds", lambda *_: True)


@breaks("NS-REQ-04")
def prefers_nothing(patch: Patch) -> None:
    """Leave placement to chance."""
    patch.setattr(consuming, "_prefer", lambda *_: None)


@breaks("NS-REQ-02")
def mounts_claims_by_the_plugin(patch: Patch) -> None:
    """Treat every source as a hub's."""
    patch.setattr(consuming, "mounted", pods.volume)


@breaks("NS-MNT-02")
def keeps_the_secret(patch: Patch) -> None:
    """Hand no Secret over."""
    patch.setattr(pods, "_secret_name", lambda _: "")


@breaks("NS-MNT-01")
def mounts_nothing(patch: Patch) -> None:
    """Render the template as it is."""
    patch.setattr(consuming, "mounted", lambda _artifact, name: {"name": name, "emptyDir": {}})
