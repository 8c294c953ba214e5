"""Writing past the page cache: the same files as without it, wherever a filesystem takes it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.errors import AttemptFault
from tests.unit.node.downloading.site import CHECKPOINT, SEGMENT, Site, pattern
from tests.unit.origin import HANG_UP, Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
PAGE = os.sysconf("SC_PAGE_SIZE")
CONTENT = pattern(CHECKPOINT * 3 + 777)
SMALL = pattern(SEGMENT // 2)


@dataclass
class Writes:
    """What was written which way, as pairs of a place and a length."""

    direct: list[tuple[int, int]] = field(default_factory=list)
    cached: list[tuple[int, int]] = field(default_factory=list)
    refuses: bool = False


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """Watch every write, and let the kernel refuse the direct ones when told to."""
    watched, pwrite = Writes(), os.pwrite

    def written(descriptor: int, data: memoryview, offset: int) -> int:
        direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        if direct and watched.refuses:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        count = pwrite(descriptor, data, offset)
        (watched.direct if direct else watched.cached).append((offset, count))
        return count

    monkeypatch.setattr(os, "pwrite", written)
    return watched


def site_of(serve: Serve, handler: Handler) -> Site:
    """Return a site that writes past the page cache."""
    site, _ = serve(handler)
    site.use(KernelDisk(direct_writes=True))
    return site


def whole(seen: Seen, wire: Wire) -> None:
    """Serve two files well."""
    wire.respond_range(seen, SMALL if seen.target == "/small" else CONTENT)


@pytest.mark.needs("direct-writes")
def test_whole_pages_go_past_the_cache_and_tails_through_it(serve: Serve, writes: Writes) -> None:
    """Every whole page of a large file, and nothing of a small one."""
    site = site_of(serve, whole)
    site.fetch(site.target("f", CONTENT), site.target("small", SMALL))
    assert site.content("f") == CONTENT
    assert site.content("small") == SMALL
    pages = len(CONTENT) // PAGE * PAGE
    assert sum(size for _, size in writes.direct) == pages
    assert all(start % PAGE == 0 == size % PAGE for start, size in writes.direct)
    assert sorted(writes.cached) == sorted([(pages, len(CONTENT) - pages), (0, len(SMALL))])


@pytest.mark.needs("direct-writes")
@pytest.mark.parametrize("until", [CHECKPOINT + 5, CHECKPOINT * 2, CHECKPOINT * 2 + PAGE - 1])
def test_a_resume_in_the_middle_of_a_page(serve: Serve, writes: Writes, until: int) -> None:
    """The page that was cut is finished through the cache, and direct writing goes on behind it."""
    served = [until]

    def cut(seen: Seen, wire: Wire) -> object:
        first, last = seen.byte_range
        if last < served[0]:
            wire.respond_range(seen, CONTENT)
            return None
        span = f"bytes {first}-{last}/{len(CONTENT)}"
        part = CONTENT[first : served[0]]
        wire.respond(206, part, Content_Range=span, Content_Length=str(last - first + 1))
        return HANG_UP

    site = site_of(serve, cut)
    target = site.target("f", CONTENT)
    with pytest.raises(AttemptFault):
        site.fetch(target)
    held = site.resumable(target)
    assert held == until
    served[0] = len(CONTENT)
    writes.direct.clear()
    writes.cached.clear()
    site.fetch(target)
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT) - held
    assert writes.direct
    assert len(writes.cached) == (2 if until % PAGE else 1)


@pytest.mark.needs("direct-writes")
def test_a_refused_write_goes_through_the_cache(serve: Serve, writes: Writes) -> None:
    """A filesystem that opens the file and then takes no direct write costs nothing but that."""
    writes.refuses = True
    site = site_of(serve, whole)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert not writes.direct
    assert sum(size for _, size in writes.cached) == len(CONTENT)


def test_a_filesystem_without_it(
    serve: Serve, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file cannot even be opened so, as on older tmpfs, it is written as always."""
    opened = os.open

    def refusing(path: str, flags: int, *more: int, **named: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    site = site_of(serve, whole)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert sum(size for _, size in writes.cached) == len(CONTENT)


def test_off_is_the_default(serve: Serve, writes: Writes) -> None:
    """Nothing goes past the cache unless somebody asks for it."""
    site, _ = serve(whole)
    site.fetch(site.target("f", CONTENT))
    assert not writes.direct
    assert site.content("f") == CONTENT
