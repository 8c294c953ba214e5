"""Emulated disks: sizes at will, real bytes, real syncs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from emulator.disk import Disk, Sync, Usage


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Return a disk of 1000 bytes whose cache is empty."""
    (tmp_path / "cache").mkdir()
    return Disk(tmp_path, tmp_path / "cache", total_bytes=1000)


def test_real_bytes_in_the_cache_count(disk: Disk, tmp_path: Path) -> None:
    """Bytes in the cache are taken, bytes beside it are not; removing them gives them back."""
    (tmp_path / "beside").write_bytes(b"x" * 500)
    file = tmp_path / "cache" / "tree" / "file"
    file.parent.mkdir()
    file.write_bytes(b"x" * 100)
    assert disk.usage(tmp_path) == Usage(1000, 100)
    file.unlink()
    assert disk.usage(tmp_path) == Usage(1000, 0)


def test_a_sparse_file_takes_its_blocks(disk: Disk, tmp_path: Path) -> None:
    """A file set to its final size beforehand takes nothing until bytes arrive."""
    with (tmp_path / "cache" / "sparse").open("wb") as file:
        file.truncate(10**9)
    assert disk.usage(tmp_path).used_bytes == 0


def test_fill_sets_the_usage_now(disk: Disk, tmp_path: Path) -> None:
    """Filling counts what is stored; later bytes come on top; a full disk is just full."""
    (tmp_path / "cache" / "file").write_bytes(b"x" * 100)
    disk.fill(80)
    assert disk.usage(tmp_path).used_bytes == 800
    (tmp_path / "cache" / "more").write_bytes(b"x" * 300)
    assert disk.usage(tmp_path).used_bytes == 1000


def test_fill_below_what_is_stored_is_refused(disk: Disk, tmp_path: Path) -> None:
    """A usage that the cache exceeds already cannot be set."""
    (tmp_path / "cache" / "file").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="resize"):
        disk.fill(5)
    disk.resize(10_000)
    disk.fill(5)
    assert disk.usage(tmp_path) == Usage(10_000, 500)


def test_a_second_filesystem_has_its_own_facts(disk: Disk, tmp_path: Path) -> None:
    """A filesystem placed at the cache answers for it, and the first one for all else."""
    (tmp_path / "cache" / "file").write_bytes(b"x" * 100)
    disk.place(tmp_path / "cache", "8:16", total_bytes=5000)
    assert disk.device(tmp_path / "cache" / "file") == "8:16"
    assert disk.device(tmp_path / "kubelet") != "8:16"
    assert disk.usage(tmp_path / "cache") == Usage(5000, 100)
    assert disk.usage(tmp_path / "kubelet") == Usage(1000, 0)


def test_syncs_reach_the_disk_and_are_written_down(disk: Disk, tmp_path: Path) -> None:
    """Syncs are noted in order; one of a missing file, or of a file as a folder, fails."""
    file = tmp_path / "cache" / "file"
    file.write_bytes(b"x")
    disk.sync_file(file)
    disk.sync_directory(file.parent)
    with pytest.raises(FileNotFoundError):
        disk.sync_file(tmp_path / "missing")
    with pytest.raises(NotADirectoryError):
        disk.sync_directory(file)
    assert disk.syncs == [
        Sync("sync_file", file),
        Sync("sync_directory", file.parent),
        Sync("sync_file", tmp_path / "missing", failed=True),
        Sync("sync_directory", file, failed=True),
    ]


def test_failures_on_request(disk: Disk, tmp_path: Path) -> None:
    """A failure hits its operation below its folder, as often as asked, until healed."""
    file = tmp_path / "cache" / "file"
    file.write_bytes(b"x")
    disk.fail("sync_file", errno.ENOSPC, below=tmp_path / "cache", times=1)
    with pytest.raises(OSError, match="No space left") as caught:
        disk.sync_file(file)
    assert caught.value.errno == errno.ENOSPC
    disk.sync_file(file)
    disk.fail("usage", errno.EIO)
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            disk.usage(file)
    disk.heal()
    assert disk.usage(file).used_bytes == 1
    with pytest.raises(ValueError, match="choose usage"):
        disk.fail("rename", errno.EIO)


def test_errors_can_be_translated(tmp_path: Path) -> None:
    """What a port promises to raise is raised, with the system's error as its cause."""

    class PortError(Exception):
        pass

    disk = Disk(tmp_path, tmp_path, translate=lambda error: PortError(error.strerror))
    with pytest.raises(PortError, match="No such file") as caught:
        disk.sync_file(tmp_path / "missing")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
