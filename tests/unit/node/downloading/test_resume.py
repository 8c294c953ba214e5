"""Going on where a download stopped, however it stopped, without asking for a byte too many."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.downloading import Target
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import CHECKPOINT, SEGMENT, Site, pattern
from tests.unit.origin import HANG_UP, Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
CONTENT = pattern(CHECKPOINT * 4 + 1000)


class Source:
    """An origin's handler that serves one file up to a byte, and then fails until it is mended."""

    def __init__(self, content: bytes, until: int) -> None:
        self.content = content
        self.until = until
        self.asked: list[tuple[int, int]] = []

    def mend(self) -> None:
        """Serve everything, and forget what was asked."""
        self.until = len(self.content)
        self.asked = []

    def __call__(self, seen: Seen, wire: Wire) -> object:
        first, last = seen.byte_range
        self.asked.append((first, last))
        if last < self.until:
            wire.respond_range(seen, self.content)
            return None
        span = f"bytes {first}-{last}/{len(self.content)}"
        part = self.content[first : self.until]
        wire.respond(206, part, Content_Range=span, Content_Length=str(last - first + 1))
        return HANG_UP


def interrupted(serve: Serve, until: int) -> tuple[Site, Source, Target]:
    """Return a site whose download broke off at a byte, and its source, mended."""
    source = Source(CONTENT, until)
    site, _ = serve(source)
    target = site.target("f", CONTENT)
    with pytest.raises(AttemptFault) as caught:
        site.fetch(target)
    assert caught.value.reason is Reason.SOURCE_UNAVAILABLE
    source.mend()
    return site, source, target


@pytest.mark.parametrize("until", [1, SEGMENT, SEGMENT * 3 + 5, CHECKPOINT * 2 + SEGMENT + 1])
def test_stopped_file_goes_on_at_its_last_byte(serve: Serve, until: int) -> None:
    """A stop saves a checkpoint at the last byte in order; the resume asks for what follows it."""
    site, source, target = interrupted(serve, until)
    assert site.resumable(target) == until
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert min(first for first, _ in source.asked) == until
    assert site.received == len(CONTENT) - until


def test_cancelled_file_goes_on(serve: Serve) -> None:
    """A cancellation ends blocked reads at once, keeps what came, and the next fetch goes on."""
    half = SEGMENT * 3 + 100
    held: list[Seen] = []

    def handler(seen: Seen, wire: Wire) -> object:
        first, last = seen.byte_range
        if held or last < half:
            wire.respond_range(seen, CONTENT)
            return None
        span = f"bytes {first}-{last}/{len(CONTENT)}"
        wire.respond(206, CONTENT[first:half], Content_Range=span, Content_Length="99999")
        wire.wait_for_hangup()
        return HANG_UP

    site, _ = serve(handler)
    target = site.target("f", CONTENT)
    running = site.start(target)
    eventually(lambda: site.received == half, "the bytes before the stop")
    running.cancellation.cancel()
    with pytest.raises(AttemptFault) as caught:
        running.finish()
    assert caught.value.reason is Reason.CANCELED
    assert site.resumable(target) == half
    held.append(Seen("", "", {}))
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT) - half


def test_cancelled_before_it_began(serve: Serve) -> None:
    """A fetch under a cancelled attempt makes no request."""
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    running = site.start()
    running.finish()
    running.cancellation.cancel()
    with pytest.raises(AttemptFault) as caught:
        site.downloader.fetch(
            [site.target("f", CONTENT)],
            site.workspace,
            credential=lambda: None,
            cancellation=running.cancellation,
            received=lambda count: None,
        )
    assert caught.value.reason is Reason.CANCELED
    assert origin.seen == []


def test_checkpoints_come_along_the_way_and_never_run_ahead(serve: Serve) -> None:
    """Each checkpoint is written after a sync, and speaks of bytes that were there at that sync."""
    synced: list[bytes] = []
    seen_offsets: list[int] = []

    class Watching(KernelDisk):
        def sync_file(self, path: Path) -> None:
            if path.suffix == ".tmp":
                record = json.loads(path.read_text())
                seen_offsets.append(record["offset"])
                assert synced[-1][: record["offset"]] == CONTENT[: record["offset"]]
            elif path.name == "f":
                synced.append(path.read_bytes())
            super().sync_file(path)

    site, _ = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    site.use(Watching())
    site.fetch(site.target("f", CONTENT))
    assert seen_offsets == [CHECKPOINT, CHECKPOINT * 2, CHECKPOINT * 3, CHECKPOINT * 4]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        pytest.param("[" * 100_000, id="nested"),
        '{"offset": 5}',
        {"offset": -1},
        {"offset": 0},
        {"offset": len(CONTENT) + 1},
        {"offset": 100},
        {"offset": True},
        {"size": 5},
        {"digest": "sha256:" + "0" * 64},
        {"path": "g"},
        {"state": None},
        {"state": {"algorithm": "sha1", "words": "00" * 20, "byteCount": 0, "tail": ""}},
    ],
    ids=str,
)
def test_damaged_checkpoint_starts_the_file_over(
    serve: Serve, damage: str | dict[str, object]
) -> None:
    """A checkpoint that cannot be believed costs a download, never a crash or a wrong file."""
    site, source, target = interrupted(serve, CHECKPOINT * 2)
    (record,) = site.state.glob("*.json")
    if isinstance(damage, str):
        record.write_text(damage)
    else:
        record.write_text(json.dumps({**json.loads(record.read_text()), **damage}))
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert min(first for first, _ in source.asked) == 0
    assert site.received == len(CONTENT)


def test_state_of_other_bytes_is_found_at_the_end(serve: Serve) -> None:
    """A well-formed checkpoint that lies about its hash ends in a mismatch, and is removed."""
    site, source, target = interrupted(serve, CHECKPOINT * 2)
    (path,) = site.state.glob("*.json")
    record = json.loads(path.read_text())
    record["state"]["words"] = "00" * 32
    path.write_text(json.dumps(record))
    with pytest.raises(AttemptFault) as caught:
        site.fetch(target)
    assert caught.value.reason is Reason.INTEGRITY_MISMATCH
    assert site.resumable(target) == 0
    source.mend()
    site.fetch(target)
    assert site.content("f") == CONTENT


@pytest.mark.parametrize("loss", ["gone", "short", "a directory"])
def test_content_lost_under_its_checkpoint_starts_over(serve: Serve, loss: str) -> None:
    """A file shorter than its checkpoint, or gone, is fetched from its beginning."""
    site, _, target = interrupted(serve, CHECKPOINT * 2)
    target.destination.unlink()
    if loss == "short":
        target.destination.write_bytes(CONTENT[: CHECKPOINT * 2 - 1])
    elif loss == "a directory":
        target.destination.mkdir()
        assert site.resumable(target) == 0
        target.destination.rmdir()
    assert site.resumable(target) == 0
    site.fetch(target)
    assert site.content("f") == CONTENT


def test_bytes_past_the_checkpoint_are_not_trusted(serve: Serve) -> None:
    """What lies on disk behind the checkpoint is cut off and asked for again."""
    site, source, target = interrupted(serve, CHECKPOINT * 2)
    with target.destination.open("r+b") as file:
        file.seek(CHECKPOINT * 2)
        file.write(b"rubbish" * 1000)
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert min(first for first, _ in source.asked) == CHECKPOINT * 2


@pytest.mark.parametrize(
    "torn",
    [
        "",
        "[",
        '["f", 1',
        "\x00\xff",
        "[1,2,3]\nnull\n7\n{}",
        pytest.param("[" * 100_000, id="nested"),
    ],
)
def test_torn_list_of_finished_files(serve: Serve, torn: str) -> None:
    """A list torn or damaged by a crash forgets files, but invents none and loses no later line."""
    files = {f"f{i}": pattern(50, i) for i in range(3)}
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, files[seen.target[1:]]))
    targets = [site.target(path, content) for path, content in files.items()]
    site.state.mkdir()
    (site.state / "finished").write_bytes(torn.encode("latin-1"))
    site.fetch(targets[0])
    assert len(origin.seen) == 1
    site.fetch(*targets)
    assert len(origin.seen) == 3
    assert {path: site.content(path) for path in files} == files


def test_finished_file_that_changed_size_is_fetched_again(serve: Serve) -> None:
    """A finished file must still be there with its size to be passed over."""
    content = pattern(500)
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, content))
    target = site.target("f", content)
    site.fetch(target)
    target.destination.write_bytes(content[:-1])
    assert site.resumable(target) == 0
    site.fetch(target)
    assert site.content("f") == content
    assert len(origin.seen) == 2


@pytest.mark.parametrize("sizes", [(CHECKPOINT * 4,), (50, 60), (CHECKPOINT * 4, 50)])
def test_note_about_lost_content_is_not_believed_after_a_second_crash(
    serve: Serve, sizes: tuple[int, ...]
) -> None:
    """A file that starts over soon has its full size again; what was noted of the one before it is
    withdrawn first, or a kill in this very moment would pass holes for content."""
    files = {f"f{n}": pattern(size, n) for n, size in enumerate(sizes)}
    broken: list[int] = []

    def handler(seen: Seen, wire: Wire) -> object:
        if broken:
            return HANG_UP
        wire.respond_range(seen, files[seen.target[1:]])
        return None

    site, _ = serve(handler)
    targets = [site.target(path, content) for path, content in files.items()]
    site.fetch(*targets)
    targets[0].destination.unlink()
    broken.append(1)
    with pytest.raises(AttemptFault):
        site.fetch(*targets)
    targets[0].destination.write_bytes(bytes(sizes[0]))  # what a kill leaves of a file just begun
    assert site.resumable(*targets) == sum(sizes[1:])
    broken.clear()
    site.fetch(*targets)
    assert {path: site.content(path) for path in files} == files


def test_checkpoint_of_lost_content_is_not_believed_after_a_second_crash(serve: Serve) -> None:
    """The same for a file that was begun."""
    site, source, target = interrupted(serve, CHECKPOINT * 2)
    target.destination.unlink()
    source.until = 0
    with pytest.raises(AttemptFault):
        site.fetch(target)
    target.destination.write_bytes(bytes(len(CONTENT)))
    assert site.resumable(target) == 0
    source.mend()
    site.fetch(target)
    assert site.content("f") == CONTENT


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_note_that_cannot_be_withdrawn_ends_the_attempt(serve: Serve, number: int) -> None:
    """Nothing is begun under a note that would speak of it."""
    site, source, target = interrupted(serve, CHECKPOINT * 2)
    target.destination.unlink()

    class Disk(KernelDisk):
        def sync_directory(self, path: Path) -> None:
            raise HostFault("sync failed") from OSError(number, "failed")

    site.use(Disk())
    with pytest.raises(AttemptFault, match=errno.errorcode[number]):
        site.fetch(target)
    assert not target.destination.exists()
    assert not source.asked


def test_other_manifest_does_not_take_over_a_finished_file(serve: Serve) -> None:
    """The same path with another digest is another file."""
    one, two = pattern(500, 1), pattern(500, 2)
    contents = [one, two]
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, contents.pop(0)))
    site.fetch(site.target("f", one))
    site.fetch(site.target("f", two))
    assert site.content("f") == two


def test_without_saved_states_a_file_starts_over(serve: Serve) -> None:
    """Where hashes cannot be saved there is no checkpoint, and the file is verified anyway."""

    def no_library(name: str) -> object:
        raise OSError(name)

    source = Source(CONTENT, CHECKPOINT * 2)
    site, _ = serve(source)
    site.use(KernelDisk(), hashing=Hashing(open_library=no_library))  # type: ignore[arg-type]  # never returns
    target = site.target("f", CONTENT)
    with pytest.raises(AttemptFault):
        site.fetch(target)
    assert site.resumable(target) == 0
    source.mend()
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert min(first for first, _ in source.asked) == 0
