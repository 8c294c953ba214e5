"""Broken readings of what a hub says, and of what a set of files is: each breaks one seam."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from gpustack_delivery.adapters import huggingface, modelscope
from gpustack_delivery.decisions.resolution import Action, Listing
from gpustack_delivery.errors import HubFault, Verdict
from gpustack_delivery.vocabulary import manifest, patterns
from gpustack_delivery.vocabulary.artifact import HubKind, Status
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.worker import errands
from tests.mutants.seams import Patch, breaks


class _Agreeing(str):
    """A commit that is no other than any other."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


@breaks("AR-MS-01")
def believes_the_hub_alone(patch: Patch) -> None:
    """Let git agree with whatever the hub names."""
    patch.setattr(modelscope, "advertised_commit", lambda *_: _Agreeing())


@breaks("AR-MS-02")
def takes_a_cut_listing_for_whole(patch: Patch) -> None:
    """Never list a directory by itself."""
    patch.setattr(modelscope, "PAGE_ENTRIES", 1 << 30)


@breaks("AR-MS-03")
def knows_no_codes(patch: Patch) -> None:
    """Go by the HTTP status alone."""
    patch.setattr(modelscope, "_code", lambda answer: 200 if answer.status == 200 else 0)


@breaks("AR-HF-01")
def stops_at_the_first_page(patch: Patch) -> None:
    """Follow no link to a next page."""
    patch.setattr(huggingface.HuggingFace, "_next_page", lambda *_: "")


@breaks("AR-HF-01")
def follows_the_branch(patch: Patch) -> None:
    """Resolve the revision anew whenever the hub is asked."""
    ask = errands._ask_hub

    def asked(hub: Any, artifact: Any, source: Any, _action: Any, token: Any) -> Any:
        return ask(hub, replace(artifact, status=Status()), source, Action.RESOLVE, token)

    patch.setattr(errands, "_ask_hub", asked)


@breaks("AR-HF-02")
def takes_every_404_for_a_missing_revision(patch: Patch) -> None:
    """Believe that a repository is there which one may not see."""
    refusal = huggingface._refusal

    def refused(answer: Any) -> HubFault:
        missing = HubFault(Verdict.REVISION_NOT_FOUND, "there is no such revision")
        return missing if answer.status == 404 else refusal(answer)

    patch.setattr(huggingface, "_refusal", refused)


@breaks("AR-HF-02")
def believes_masked_digests(patch: Patch) -> None:
    """Read a digest of stars as any other."""
    patch.setattr(huggingface, "_MASKED", "")


@breaks("AR-HF-03")
def takes_every_port_for_the_hubs(patch: Patch) -> None:
    """Follow a link to the hub's host, whatever listens there."""
    patch.setattr(
        huggingface,
        "same_place",
        lambda before, after: urlsplit(before).hostname == urlsplit(after).hostname,
    )


@breaks("AR-DIG-01")
def sorts_paths_without_case(patch: Patch) -> None:
    """Sort a manifest as a person would."""
    sort_key = manifest._sort_key
    patch.setattr(manifest, "_sort_key", lambda entry: (entry.path.lower(), sort_key(entry)))


@breaks("AR-DIG-02")
def skips_bad_entries(patch: Patch) -> None:
    """Deliver what can be delivered."""

    def good(entry: Any) -> bool:
        try:
            manifest._check(entry)
        except HubFault:
            return False
        return True

    _make(patch, lambda entries: [entry for entry in entries if good(entry)])


@breaks("AR-DIG-02")
def takes_an_entry_twice(patch: Patch) -> None:
    """Forgive a listing that says the same thing again."""
    _make(patch, lambda entries: list(dict.fromkeys(entries)))


@breaks("AR-DIG-03")
def tells_hubs_apart(patch: Patch) -> None:
    """Have the digest name the hub of ModelScope's files."""
    ask = errands._ask_hub

    def asked(hub: Any, artifact: Any, source: Any, *given: Any) -> Any:
        outcome = ask(hub, artifact, source, *given)
        if source.hub is HubKind.HUGGING_FACE or not isinstance(outcome, Listing):
            return outcome
        salted = hashlib.sha256(f"{source.hub} {outcome.manifest_digest}".encode())
        return replace(outcome, manifest_digest=f"sha256:{salted.hexdigest()}")

    patch.setattr(errands, "_ask_hub", asked)


@breaks("AR-RES-05")
def stops_stars_at_slashes(patch: Patch) -> None:
    """Match a path segment by segment, as shells do."""

    def matches(pattern: str, path: str) -> bool:
        if pattern.endswith("/"):
            return path.startswith(pattern)
        wanted, segments = pattern.split("/"), path.split("/")
        return len(wanted) == len(segments) and all(map(fnmatchcase, segments, wanted))

    patch.setattr(patterns, "_matches", matches)


def _make(patch: Patch, change: Any) -> None:
    """Make manifests of other entries than were listed."""
    of = Manifest.of
    patch.setattr(Manifest, "of", lambda entries: of(change(entries)))
