"""Broken workers: each breaks one seam of ours, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.vocabulary import manifest
from gpustack_delivery.worker import webhooks
from tests.mutants.seams import Patch, breaks


@breaks("AR-DIG-01")
def sorts_paths_without_case(patch: Patch) -> None:
    """Sort a manifest as a person would."""
    sort_key = manifest._sort_key
    patch.setattr(manifest, "_sort_key", lambda entry: (entry.path.lower(), sort_key(entry)))


@breaks("NS-OWN-13")
def lets_anybody_write_a_status(patch: Patch) -> None:
    """Guard a node's status against nobody."""
    patch.setattr(webhooks, "judge_store_status", lambda *_: ())


@breaks("NS-OWN-15")
def looks_up_no_pod(patch: Patch) -> None:
    """Believe what a token says of its Pod."""
    patch.setattr(webhooks, "judge_bound_pod", lambda *_: ())


@breaks("NS-OWN-18")
def lets_anybody_resolve(patch: Patch) -> None:
    """Guard an artifact's status against nobody."""

    def open_door(*_: Any) -> tuple[()]:
        return ()

    patch.setattr(webhooks, "judge_artifact_status", open_door)
