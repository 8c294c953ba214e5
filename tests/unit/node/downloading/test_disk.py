"""A disk that is full or broken ends the attempt with its reason and leaves what is safe."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.errors import AttemptFault, DiskFault, HostFault, Reason
from gpustack_delivery.node.downloading import writing
from tests.unit.node.downloading.site import CHECKPOINT, SEGMENT, Site, pattern
from tests.unit.origin import Handler, Origin

Serve = Callable[[Handler], tuple[Site, Origin]]
CONTENT = pattern(CHECKPOINT * 3 + SEGMENT)
FULL = (Reason.INSUFFICIENT_CAPACITY, "the disk is full, in bytes or in inodes: ENOSPC")
BROKEN = (Reason.SOURCE_UNAVAILABLE, "the node's disk failed: EIO")


class FailingDisk(KernelDisk):
    """Real syncs until one is to fail."""

    def __init__(self, number: int, fails: Callable[[Path], bool]) -> None:
        self._number = number
        self._fails = fails

    def sync_file(self, path: Path) -> None:
        """Sync, or fail as the kernel would."""
        if self._fails(path):
            error = OSError(self._number, os.strerror(self._number))
            raise HostFault("the node could not sync to disk") from error
        super().sync_file(path)


def site_of(serve: Serve) -> Site:
    """Return a site whose origin serves the content under any name."""
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    return site


def ended(site: Site) -> tuple[Reason, str]:
    """Fetch a file that cannot be stored and return why, which is no source's fault."""
    with pytest.raises(DiskFault) as caught:
        site.fetch(site.target("f", CONTENT))
    return caught.value.reason, str(caught.value)


@pytest.mark.parametrize(("number", "outcome"), [(errno.ENOSPC, FULL), (errno.EIO, BROKEN)])
def test_failed_write(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int, outcome: tuple[Reason, str]
) -> None:
    """A write that fails ends the attempt; what was hashed before it is kept for the resume."""
    site = site_of(serve)
    write = os.pwrite

    def failing(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= SEGMENT * 6:
            raise OSError(number, os.strerror(number))
        return write(descriptor, data, offset)

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", failing)
        assert ended(site) == outcome
    target = site.target("f", CONTENT)
    held = site.resumable(target)
    assert 0 < held <= SEGMENT * 6
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT) - held


@pytest.mark.parametrize(("number", "outcome"), [(errno.ENOSPC, FULL), (errno.EIO, BROKEN)])
def test_failed_rename_of_a_checkpoint(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int, outcome: tuple[Reason, str]
) -> None:
    """A checkpoint that cannot take its place ends the attempt; the one before it stands."""
    site, renames, replace = site_of(serve), [], os.replace

    def failing(source: Path, target: Path) -> None:
        renames.append(target)
        if len(renames) > 1:
            raise OSError(number, os.strerror(number))
        replace(source, target)

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", failing)
        assert ended(site) == outcome
    target = site.target("f", CONTENT)
    held = site.resumable(target)
    assert held >= CHECKPOINT
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT) - held


def test_short_writes_are_continued(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take less than it was given; the rest is written too."""
    site = site_of(serve)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:1000], at))
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT


@pytest.mark.parametrize(("number", "outcome"), [(errno.ENOSPC, FULL), (errno.EIO, BROKEN)])
def test_failed_reservation_of_blocks(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int, outcome: tuple[Reason, str]
) -> None:
    """A disk without room for the file is known before anything is asked for."""
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))

    def failing(descriptor: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", failing)
    assert ended(site) == outcome
    assert origin.seen == []


def test_disk_that_fills_up_midway(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are reserved stretch by stretch; when one is refused, nothing before it is lost."""
    site, stretches = site_of(serve), set[tuple[int, int]]()
    monkeypatch.setattr(writing, "RESERVED_BYTES", 2 * SEGMENT)
    reserve = os.posix_fallocate

    def filling(descriptor: int, offset: int, size: int) -> None:
        stretches.add((offset, size))
        if offset >= 2 * CHECKPOINT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", filling)
    assert ended(site) == FULL
    assert stretches == {(at, 2 * SEGMENT) for at in range(0, 2 * CHECKPOINT + 1, 2 * SEGMENT)}
    target = site.target("f", CONTENT)
    assert 0 < site.resumable(target) == target.destination.stat().st_size <= 2 * CHECKPOINT
    monkeypatch.setattr(os, "posix_fallocate", reserve)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_filesystem_without_reservations(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A filesystem that cannot reserve blocks is written to all the same."""
    site = site_of(serve)

    def refusing(descriptor: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refusing)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT


@pytest.mark.parametrize(("number", "outcome"), [(errno.ENOSPC, FULL), (errno.EIO, BROKEN)])
@pytest.mark.parametrize("what", ["content", "checkpoint", "last sync", "list"])
def test_failed_sync(serve: Serve, number: int, outcome: tuple[Reason, str], what: str) -> None:
    """A sync that fails ends the attempt; of content it did not secure nothing more is believed.

    The kernel reports a lost page once: a later sync that succeeds proves nothing.
    """
    site = site_of(serve)
    target = site.target("f", CONTENT)
    syncs: list[Path] = []

    def fails(path: Path) -> bool:
        syncs.append(path)
        nth = sum(one == path for one in syncs)
        match what:
            case "content":
                return path == target.destination and nth == 2
            case "checkpoint":
                return path.suffix == ".tmp" and nth == 2
            case "last sync":
                return path == target.destination and nth == 4
            case _:
                return path.name == "finished"

    site.use(FailingDisk(number, fails))
    assert ended(site) == outcome
    held = site.resumable(target)
    if what == "content":
        assert held == CHECKPOINT
    elif what == "last sync":
        assert held == CHECKPOINT * 3
    site.use(KernelDisk())
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT) - held


def test_failed_sync_of_small_files(serve: Serve) -> None:
    """Small files whose sync failed are not noted as finished."""
    content = pattern(100)
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, content))
    targets = [site.target(f"f{i}", content) for i in range(5)]
    site.use(FailingDisk(errno.EIO, lambda path: path.name == "f3"))
    with pytest.raises(AttemptFault, match="EIO"):
        site.fetch(*targets)
    assert site.resumable(*targets) == 0
    site.use(KernelDisk())
    site.fetch(*targets)
    assert site.resumable(*targets) == 500


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "a link": lambda path, outside: path.symlink_to(outside),
    "a link to nothing": lambda path, outside: path.symlink_to(outside.with_name("nothing")),
    "a second name": lambda path, outside: path.hardlink_to(outside),
    "a pipe": lambda path, _: os.mkfifo(path),
}


@pytest.mark.parametrize("note", ["checkpoint", "finished"])
@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_where_a_note_is_written_is_replaced(
    serve: Serve, tmp_path: Path, what: str, note: str
) -> None:
    """Nothing outside is written or made, nobody waits at a pipe, and the file comes whole."""
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    outside = tmp_path / "outside"
    outside.write_text("precious")
    target = site.target("f", CONTENT)
    site.fetch(target, site.target("g", CONTENT))
    target.destination.unlink()  # so that what was noted of it is withdrawn
    name = hashlib.sha256(b"f").hexdigest() if note == "checkpoint" else note
    PLANTED[what](site.state / f"{name}.tmp", outside)
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert outside.read_text() == "precious"
    assert {path.name for path in site.state.iterdir()} <= {"finished", f"{name}.tmp"}
    assert not outside.with_name("nothing").exists()


def test_a_link_in_place_of_the_list_of_finished_files_ends_the_attempt(
    serve: Serve, tmp_path: Path
) -> None:
    """It is neither believed nor added to."""
    site = site_of(serve)
    target = site.target("f", CONTENT)
    site.fetch(target)
    finished, outside = site.state / "finished", tmp_path / "outside"
    finished.rename(outside)
    noted = outside.read_bytes()
    finished.symlink_to(outside)
    assert site.resumable(target) == 0
    assert ended(site) == (Reason.SOURCE_UNAVAILABLE, "the node's disk failed: ELOOP")
    assert outside.read_bytes() == noted


def test_place_that_cannot_be_written(serve: Serve) -> None:
    """A file in the way of a directory is the disk's refusal, told by its error."""
    site = site_of(serve)
    (site.tree / "d").write_text("in the way")
    with pytest.raises(AttemptFault, match=r"the node's disk failed: (ENOTDIR|EEXIST)"):
        site.fetch(site.target("d/f", CONTENT))


_ON_A_SMALL_DISK = """
import sys
from pathlib import Path
from gpustack_delivery.errors import AttemptFault
from tests.unit.node.downloading.site import *
from tests.unit.origin import Origin

content = pattern(CHECKPOINT * 40)
more = pattern(CHECKPOINT * 8, 1)
files = {"/a": content, "/b": more}
with Origin(lambda seen, wire: wire.respond_range(seen, files[seen.target])) as origin:
    site = Site(Path(sys.argv[1]), origin.url)
    site.fetch(site.target("b", more))
    try:
        site.fetch(site.target("b", more), site.target("a", content))
    except AttemptFault as fault:
        print(fault.reason.value, fault)
    else:
        print("it fitted")
    print(site.resumable(site.target("b", more)) == len(more))
    site.close()
"""


@pytest.mark.needs("kernel-mounts")
def test_disk_that_is_really_full(tmp_path: Path) -> None:
    """On a filesystem too small for all files the attempt ends, and what fitted can be resumed."""
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(  # noqa: S603 - our own script
        [*command, _ON_A_SMALL_DISK],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[4],
    )
    assert (
        done.stdout
        == "InsufficientCapacity the disk is full, in bytes or in inodes: ENOSPC\nTrue\n"
    ), done.stderr
