"""Broken downloads and publications: each breaks one seam, in the way its name says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpustack_delivery.adapters import huggingface, redirects
from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.adapters.proxies import ProxyRule
from gpustack_delivery.decisions import capacity, reporting
from gpustack_delivery.errors import AttemptFault, Pending, Reason
from gpustack_delivery.node import attempts, collector, delivery, markers, trees
from gpustack_delivery.node.attempt import Attempt
from gpustack_delivery.node.collector import Collection, Collector
from gpustack_delivery.node.downloading import Limits, engine
from gpustack_delivery.node.downloading.engine import Downloader
from gpustack_delivery.node.downloading.fetching import Fetcher
from gpustack_delivery.node.downloading.files import File
from gpustack_delivery.node.mounting import Mounting
from gpustack_delivery.vocabulary.manifest import Manifest
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


@breaks("NS-DL-01")
def counts_in_thousands(patch: Patch) -> None:
    """Show progress in decimal units under binary names."""

    def amount(size_bytes: int) -> str:
        power = min((len(str(size_bytes)) - 1) // 3, len(reporting._UNITS))
        if not power:
            return f"{size_bytes} B"
        tenths = size_bytes * 10 // 1000**power
        return f"{tenths // 10}.{tenths % 10} {reporting._UNITS[power - 1]}"

    patch.setattr(reporting, "amount", amount)


@breaks("NS-DL-02")
def needs_one_call_more(patch: Patch) -> None:
    """Answer the first call after a publication as the one before."""
    judge_and_mount = Mounting._judge_and_mount
    told: set[str] = set()

    def mounted(self: Any, request: Any, token: Any) -> None:
        digest = request.manifest_digest
        if self._around.store.trees.has(digest) and digest not in told:
            told.add(digest)
            raise Pending(reporting.progress_message(digest, 1, 1))
        judge_and_mount(self, request, token)

    patch.setattr(Mounting, "_judge_and_mount", mounted)


@breaks("NS-DL-04")
def downloads_before_it_looks(patch: Patch) -> None:
    """Hold a listing against its digest when its files are there."""

    def listed(self: Any, hub: Any) -> Manifest:
        repository, commit = self.grant.source.repository, self.grant.resolved.revision
        found = hub.list_tree(repository, commit, self.attempt.credential(self.grant))
        return Manifest.of(self.grant.patterns.filter(found))

    marker = delivery._Delivery._marker

    def marked(self: Any, manifest: Manifest) -> Any:
        if manifest.digest != self.attempt.digest:
            raise AttemptFault(Reason.INTEGRITY_MISMATCH, "the listing makes another digest")
        return marker(self, manifest)

    patch.setattr(delivery._Delivery, "_list", listed)
    patch.setattr(delivery._Delivery, "_marker", marked)


@breaks("NS-DL-06")
def reserves_what_is_there_already(patch: Patch) -> None:
    """Reserve a resumed download's whole size."""
    reserve = Collector.reserve
    patch.setattr(
        Collector, "reserve", lambda self, digest, size, _: reserve(self, digest, size, lambda: 0)
    )


@breaks("NS-DL-07")
def refuses_before_it_collects(patch: Patch) -> None:
    """Take the room that there is for all that there can be."""
    collect = Collector._collect
    patch.setattr(
        Collector, "_collect", lambda self, need: Collection() if need else collect(self, need)
    )


@breaks("NS-DL-06", "NS-DL-08")
def forgets_what_others_have_yet_to_write(patch: Patch) -> None:
    """Look at the disk as it is, and not as running downloads will leave it."""
    patch.setattr(Collector, "_reserved", lambda _: 0)


@breaks("NS-DL-09")
def gives_room_back_after_the_first_half(patch: Patch) -> None:
    """Take a download for finished when most of it is there."""
    measure = collector._Claim.measure

    def measured(self: Any) -> capacity.Reservation:
        found = measure(self)
        over = found.written_bytes * 2 > found.size_bytes
        return replace(found, size_bytes=found.written_bytes) if over else found

    patch.setattr(collector._Claim, "measure", measured)


@breaks("NS-DL-09")
def keeps_the_room_of_the_cancelled(patch: Patch) -> None:
    """Never give back what a cancelled attempt had reserved."""
    outcome = attempts.Attempts._outcome

    def ended(self: Any, attempt: Any) -> AttemptFault | None:
        fault = outcome(self, attempt)
        claims = self._around.collector._claims
        if fault is not None and fault.reason is Reason.CANCELED and attempt.digest in claims:
            claims[f"{attempt.digest} cancelled"] = claims[attempt.digest]
        return fault

    patch.setattr(attempts.Attempts, "_outcome", ended)


@breaks("NS-DL-10")
def takes_a_percent_sign_for_escaped(patch: Patch) -> None:
    """Leave alone what looks escaped already."""
    plain = quote
    patch.setattr(huggingface, "quote", lambda text, **more: plain(text, **{**more, "safe": "%"}))


@breaks("NS-DL-11")
def sends_everything_through_the_proxy(patch: Patch) -> None:
    """Read no list of exceptions."""
    configured = ProxyRule.configured
    patch.setattr(ProxyRule, "configured", lambda proxy, _: configured(proxy, ""))


@breaks("NS-DL-12", "NS-DL-13")
def limits_each_download_by_itself(patch: Patch) -> None:
    """Give every attempt the node's whole concurrency and bandwidth."""
    fetch = Downloader.fetch

    def fetched(self: Any, *given: Any, **more: Any) -> None:
        node = self._limits
        own = Limits(
            self._clock, concurrency=node.concurrency, bytes_per_second=node.bytes_per_second
        )
        alone = Downloader(self._http, own, self._clock, self._disk, self._hashing, self._shape)
        fetch(alone, *given, **more)

    patch.setattr(Downloader, "fetch", fetched)


@breaks("NS-DL-13")
def keeps_its_first_bandwidth(patch: Patch) -> None:
    """Change the bandwidth with the next start."""
    change = Limits.change
    first: list[int] = []

    def changed(self: Any, *, concurrency: int, bytes_per_second: int) -> None:
        first.append(bytes_per_second)
        change(self, concurrency=concurrency, bytes_per_second=first[0])

    patch.setattr(Limits, "change", changed)


@breaks("NS-DL-14")
def asks_for_one_range_after_the_other(patch: Patch) -> None:
    """Begin a range when the one before it is there."""
    may_take = File.may_take
    patch.setattr(
        File, "may_take", lambda self, fetcher: self._in_flight == 0 and may_take(self, fetcher)
    )


@breaks("NS-DL-15")
def starts_a_stalled_range_over(patch: Patch) -> None:
    """Ask for a whole range again when its answer stood still."""
    ask = Fetcher._ask

    def asked(self: Any, segment: Any, _wanted: int) -> Any:
        segment.received = 0
        return ask(self, segment, segment.start)

    patch.setattr(Fetcher, "_ask", asked)


@breaks("NS-DL-17")
def hashes_from_the_disk(patch: Patch) -> None:
    """Read a file back when it is whole."""
    settle = engine._Crew._settle

    def settled(crew: Any, file: Any, segment: Any = None) -> None:
        if segment is None and file.size:
            entry = file.target.entry
            file.hasher = Hashing().start(entry.algorithm, entry.size_bytes)
            file.hasher.update(file.target.destination.read_bytes())
        settle(crew, file, segment)

    patch.setattr(engine._Crew, "_settle", settled)


@breaks("NS-DL-18")
def resumes_from_no_saved_state(patch: Patch) -> None:
    """Begin an interrupted file again."""
    patch.setattr(Hashing, "resume", idle)


@breaks("NS-DL-21")
def downloads_for_each_newcomer(patch: Patch) -> None:
    """Fetch everything once more for every artifact that joined meanwhile."""
    deliver = delivery.deliver

    def delivered(attempt: Any, around: Any, changed: Any) -> None:
        for _ in attempt.sources():
            deliver(attempt, around, changed)

    patch.setattr(attempts, "deliver", delivered)


@breaks("NS-DL-22")
def lends_credentials(patch: Patch) -> None:
    """Let an artifact without a credential have its neighbour's."""
    credential = Attempt.credential

    def lent(self: Any, grant: Any) -> Any:
        return credential(self, grant) or next(filter(None, self._tokens.values()), None)

    patch.setattr(Attempt, "credential", lent)


@breaks("NS-DL-22")
def writes_credentials_down(patch: Patch) -> None:
    """Keep the credential beside the download, for a resume after a restart."""
    run = delivery._Delivery.run

    def remembered(self: Any, changed: Any) -> None:
        token = self.attempt.credential(self.grant)
        if token:
            (self.workspace.path / "credential").write_text(token.reveal(), "utf-8")
        run(self, changed)

    patch.setattr(delivery._Delivery, "run", remembered)


@breaks("NS-DL-30")
def lets_a_tree_rest(patch: Patch) -> None:
    """Mount a tree five minutes after its publication."""
    hold = trees.Trees.hold

    def held(self: Any, digest: str) -> Any:
        marker = self._markers.get(digest)
        fresh = marker is not None and self._clock.now() - marker.published_at < 300
        return hold(self, "" if fresh else digest)

    patch.setattr(trees.Trees, "hold", held)
