"""Broken downloads: each breaks one seam, in the way its name says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpustack_delivery.adapters import redirects
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.node import attempts, markers, trees
from gpustack_delivery.node.downloading import engine
from tests.mutants.seams import Around, Patch, breaks, change_world, idle


@breaks("NS-DL-16")
def skips_the_hash(patch: Patch) -> None:
    """Take every file for what its listing says."""
    settle = engine._Crew._settle

    def settled(crew: Any, file: Any, segment: Any = None) -> None:
        file.hasher = _Says(file.target.entry.hex)
        settle(crew, file, segment)

    patch.setattr(engine._Crew, "_settle", settled)


class _Says:
    """A hasher that has made up its mind."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def hexdigest(self) -> str:
        """Return it."""
        return self._answer


@breaks("NS-DL-23")
def token_follows_redirects(patch: Patch) -> None:
    """Take the credential along to wherever a redirect leads."""
    patch.setattr(redirects, "same_place", lambda before, after: True)


@breaks("NS-DL-03")
def lists_the_branch(patch: Patch) -> None:
    """List what the branch shows now, and not the commit that was resolved."""
    list_tree = HuggingFace.list_tree
    patch.setattr(
        HuggingFace,
        "list_tree",
        lambda hub, repository, commit, token: list_tree(hub, repository, "main", token),
    )


@breaks("NS-DL-19")
def never_syncs(patch: Patch) -> None:
    """Trust the page cache."""
    change_world(patch, disk=lambda disk: Around(disk, sync_file=idle, sync_directory=idle))


@breaks("NS-DL-20")
def ignores_markers(patch: Patch) -> None:
    """Take every directory among the published trees for one."""
    read_marker = markers.read_marker

    def read(directory: Path, digest: str) -> markers.Marker:
        return read_marker(directory, digest) or markers.Marker(digest, 0, 0, 0.0)

    patch.setattr(trees, "read_marker", read)


@breaks("NS-DL-26")
def never_backs_off(patch: Patch) -> None:
    """Try again at every mount."""
    patch.setattr(attempts, "holds_back", lambda *_: False)
