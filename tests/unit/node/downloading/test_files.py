"""What arrives when nothing goes wrong: files of every kind, in ranges, over few connections."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.errors import AttemptFault, Reason
from gpustack_delivery.node.downloading.limits import WINDOW_SEGMENTS
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import CHECKPOINT, SEGMENT, Site, entry, pattern
from tests.unit.origin import Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]


def library(files: dict[str, bytes]) -> Handler:
    """Return a handler that serves files by name and ranges."""
    return lambda seen, wire: wire.respond_range(seen, files[seen.target[1:]])


@pytest.mark.parametrize("algorithm", ["sha256", "gitsha1"])
@pytest.mark.parametrize(
    "size", [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 4 * SEGMENT, CHECKPOINT * 3 + 17]
)
def test_file_of_any_size_arrives(serve: Serve, algorithm: str, size: int) -> None:
    """Both digests, from nothing to several checkpoints; an empty file makes no request."""
    content = pattern(size)
    site, origin = serve(library({"x": content}))
    named = site.target("a/b c.bin", content, algorithm)
    site.fetch(replace(named, url=f"{origin.url}/x"))
    assert site.content("a/b c.bin") == content
    assert site.received == size
    assert len(origin.seen) == -(-size // SEGMENT)


def test_large_file_is_fetched_in_disjoint_ranges(serve: Serve) -> None:
    """The ranges cover the file exactly once, and several are under way at once."""
    content = pattern(SEGMENT * 12 + 5)
    together = threading.Barrier(4)

    def handler(seen: Seen, wire: Wire) -> None:
        if 0 < seen.byte_range[0] < SEGMENT * 5:
            together.wait(timeout=20)  # the second to fifth segment meet here, or the test fails
        wire.respond_range(seen, content)

    site, origin = serve(handler)
    site.fetch(site.target("big", content))
    assert site.content("big") == content
    ranges = sorted(seen.byte_range for seen in origin.seen)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(content) - 1
    assert all(one[1] + 1 == two[0] for one, two in itertools.pairwise(ranges))


def test_first_segment_goes_alone(serve: Serve) -> None:
    """Nothing more of a file is asked for before its source has answered once."""
    content = pattern(SEGMENT * 8)
    asked: list[int] = []

    def handler(seen: Seen, wire: Wire) -> None:
        asked.append(seen.byte_range[0])
        if seen.byte_range[0] == 0:
            assert len(asked) == 1
        wire.respond_range(seen, content)

    site, _ = serve(handler)
    site.fetch(site.target("big", content))
    assert asked[0] == 0
    assert len(asked) == 8


def test_window_bounds_what_is_fetched_ahead(serve: Serve) -> None:
    """While the first byte's segment is held up, only a window's worth of segments is asked for."""
    content = pattern(SEGMENT * 40)
    release = threading.Event()

    def handler(seen: Seen, wire: Wire) -> None:
        if seen.byte_range[0] == 0:
            span = f"bytes 0-{SEGMENT - 1}/{len(content)}"
            wire.respond(206, Content_Length=str(SEGMENT), Content_Range=span)
            release.wait(timeout=20)
            wire.send(content[:SEGMENT])
        else:
            wire.respond_range(seen, content)

    site, origin = serve(handler)
    running = site.start(site.target("big", content))
    eventually(lambda: len(origin.seen) >= WINDOW_SEGMENTS, "a window's worth of requests")
    site.clock.advance(1)
    assert len(origin.seen) == WINDOW_SEGMENTS
    assert not running.done
    release.set()
    running.finish()
    assert site.content("big") == content


def test_small_files_share_few_connections(serve: Serve) -> None:
    """Hundreds of small files come over as many connections as may be open at once."""
    files = {f"d{i % 7}/f{i}": pattern(i * 3, i) for i in range(1, 300)}
    site, origin = serve(library(files))
    site.fetch(*(site.target(path, content, "gitsha1") for path, content in files.items()))
    assert {path: site.content(path) for path in files} == files
    assert len(origin.seen) == len(files)
    assert origin.connections <= site.limits.concurrency


def test_many_large_files_arrive_together(serve: Serve) -> None:
    """More large files than may be open at once all arrive, each asked for exactly once."""
    files = {f"shard-{i}": pattern(SEGMENT * 3 + i + 1, i) for i in range(20)}
    site, origin = serve(library(files))
    site.fetch(*(site.target(path, content) for path, content in files.items()))
    assert {path: site.content(path) for path in files} == files
    assert len(origin.seen) == 20 * 4


def test_everything_is_synced_before_the_end(serve: Serve) -> None:
    """When a fetch returns, each file has been synced after its last byte was written."""
    files = {"large": pattern(CHECKPOINT * 2), "small": pattern(100), "empty": b""}
    synced: dict[str, int] = {}

    class Watching(KernelDisk):
        def sync_file(self, path: Path) -> None:
            synced[path.name] = path.stat().st_size
            super().sync_file(path)

    site, _ = serve(library(files))
    site.use(Watching())
    site.fetch(*(site.target(path, content) for path, content in files.items()))
    assert {name: synced[name] for name in files} == {n: len(c) for n, c in files.items()}


def test_files_are_not_followed_out_of_the_tree(serve: Serve, tmp_path: Path) -> None:
    """A link where a file belongs is not written through."""
    content = pattern(100)
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    site, _ = serve(library({"f": content}))
    (site.tree / "f").symlink_to(outside)
    with pytest.raises(AttemptFault, match="ELOOP"):
        site.fetch(site.target("f", content))
    assert outside.read_bytes() == b"precious"


def test_threads_and_files_are_gone_afterwards(serve: Serve) -> None:
    """A fetch leaves no thread and no open file behind, whether it succeeds or fails."""
    content = pattern(SEGMENT * 6)
    site, _ = serve(library({"big": content, "wrong": content[::-1]}))
    site.fetch(site.target("big", content))
    with pytest.raises(AttemptFault) as caught:
        site.fetch(site.target("wrong", content))
    assert caught.value.reason is Reason.INTEGRITY_MISMATCH
    assert not [t.name for t in threading.enumerate() if t.name.startswith("download:")]
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in links if str(site.tree) in str(link.readlink())]


def test_nothing_to_fetch_returns_at_once(serve: Serve) -> None:
    """No targets, or only finished ones, make no request."""
    content = pattern(SEGMENT * 3)
    site, origin = serve(library({"big": content}))
    site.fetch()
    site.fetch(site.target("big", content))
    before = len(origin.seen)
    site.fetch(site.target("big", content))
    assert len(origin.seen) == before
    assert site.received == 0
    assert site.resumable(site.target("big", content)) == len(content)


def test_entry_helper_agrees_with_git() -> None:
    """The tests' own oracle gives git's known id of a known blob."""
    assert entry("x", b"hello\n", "gitsha1").hex == "ce013625030ba8dba906f756967f9e9ca394464a"
