"""The room that a download takes is counted as it is taken, and given back when it is not used."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.errors import AttemptFault
from gpustack_delivery.node.downloading import writing
from gpustack_delivery.node.workspace import Workspace
from tests.unit.node.downloading.site import CHECKPOINT, SEGMENT, Site, pattern
from tests.unit.origin import Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
FILES = {
    "empty": b"",
    "d/small": pattern(100),
    "d/e/large": pattern(CHECKPOINT * 3 + 17),
    "large": pattern(CHECKPOINT * 5, 1),
}


def found_bytes(site: Site) -> int:
    """Return what somebody finds who looks at the files now."""
    return Workspace(site.workspace.path, 1).size_bytes()


@pytest.fixture(params=["reserved", "not reserved"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocks reserved in small stretches, or on no account."""

    def refusing(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(writing, "RESERVED_BYTES", 2 * SEGMENT)
    if request.param == "not reserved":
        monkeypatch.setattr(os, "posix_fallocate", refusing)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Give a way to break calls until the test mends them."""
    with monkeypatch.context() as patch:
        yield patch


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize(
    "disk", [KernelDisk(), KernelDisk(direct_writes=True)], ids=["cached", "direct"]
)
@pytest.mark.parametrize("end", ["whole", "wrong content", "disk full", "source gone"])
def test_what_is_counted_is_what_is_there(
    serve: Serve, broken: pytest.MonkeyPatch, end: str, disk: KernelDisk
) -> None:
    """After an end of any kind, and after the attempt that goes on from there."""
    write, answers = os.pwrite, itertools.count(1)

    def handler(seen: Seen, wire: Wire) -> None:
        number, content = next(answers), FILES[seen.target[1:]]
        if end == "wrong content" and number == 12:
            content = bytes(len(content))
        if end == "source gone" and number >= 12:
            wire.respond(404)
        else:
            wire.respond_range(seen, content)

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= 4 * SEGMENT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    site, _ = serve(handler)
    site.use(disk)
    targets = [site.target(path, content) for path, content in FILES.items()]
    site.workspace.keep([target.entry for target in targets])
    if end == "disk full":
        broken.setattr(os, "pwrite", full)
    if end == "whole":
        site.fetch(*targets)
    else:
        with pytest.raises(AttemptFault):
            site.fetch(*targets)
    assert site.workspace.size_bytes() == found_bytes(site)
    broken.undo()
    end = "whole"
    site.fetch(*targets)
    assert site.workspace.size_bytes() == found_bytes(site) == sum(map(len, FILES.values()))


def test_room_that_a_failed_download_does_not_use_goes_back(
    serve: Serve, broken: pytest.MonkeyPatch
) -> None:
    """Before the last checkpoint is written: on a full disk it needs that room."""
    content = FILES["large"]
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, content))
    target = site.target("large", content)
    write, replace = os.pwrite, os.replace

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= CHECKPOINT // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    def as_long_as_there_is_room(source: Path, place: Path) -> None:
        if target.destination.stat().st_size == len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, place)

    broken.setattr(os, "pwrite", full)
    broken.setattr(os, "replace", as_long_as_there_is_room)
    with pytest.raises(AttemptFault, match="ENOSPC"):
        site.fetch(target)
    assert 0 < site.resumable(target) == target.destination.stat().st_size <= CHECKPOINT // 2
    broken.undo()
    site.fetch(target)
    assert site.content("large") == content


def test_links_on_the_way_are_not_followed(serve: Serve, tmp_path: Path) -> None:
    """A folder that becomes a link while the download runs leads nowhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, FILES["d/small"]))
    (site.tree / "d").symlink_to(outside)
    with pytest.raises(AttemptFault, match=r"ENOTDIR|ELOOP"):
        site.fetch(site.target("d/small", FILES["d/small"]))
    assert list(outside.iterdir()) == []


def test_a_pipe_in_a_files_place_holds_nothing_up(serve: Serve) -> None:
    """It is refused at once; opening it for writing would wait for a reader for ever."""
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, FILES["d/small"]))
    os.mkfifo(site.tree / "f")
    with pytest.raises(AttemptFault, match="ENXIO"):
        site.fetch(site.target("f", FILES["d/small"]))
