"""Mount tables: the emulated one, and the kernel's where there is the right to mount."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.disk import Disk
from emulator.mounts import Mount, MountTable, _unescape


@pytest.fixture
def table(tmp_path: Path) -> MountTable:
    """Return an empty table over two folders, source and target."""
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    return MountTable(Disk(tmp_path, tmp_path))


def test_a_bind_is_a_line(table: MountTable, tmp_path: Path) -> None:
    """A bind shows its target, the path it shows, the source's device and that it is read-only."""
    table.bind_read_only(tmp_path / "source", tmp_path / "target")
    line = Mount(tmp_path / "target", str(tmp_path / "source"), "259:1", read_only=True)
    assert table.table() == (line,)
    assert table.seen_at(tmp_path / "target") == line
    assert table.seen_at(tmp_path / "source") is None


def test_binds_stack_and_unmount_takes_the_topmost(table: MountTable, tmp_path: Path) -> None:
    """A second bind hides the first; unmounting goes back one by one; too often is no error."""
    table.bind(tmp_path / "source", tmp_path / "target", read_only=False)
    table.bind_read_only(tmp_path / "source", tmp_path / "target")
    assert [mount.read_only for mount in table.table()] == [False, True]
    table.unmount(tmp_path / "target")
    assert [mount.read_only for mount in table.table()] == [False]
    table.unmount(tmp_path / "target")
    table.unmount(tmp_path / "target")
    assert table.table() == ()


def test_both_ends_must_be_folders(table: MountTable, tmp_path: Path) -> None:
    """A missing source or target, or a file, is refused as the kernel refuses it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileNotFoundError):
        table.bind_read_only(tmp_path / "missing", tmp_path / "target")
    with pytest.raises(FileNotFoundError):
        table.bind_read_only(tmp_path / "source", tmp_path / "missing")
    with pytest.raises(NotADirectoryError):
        table.bind_read_only(tmp_path / "source", tmp_path / "file")
    assert table.table() == ()


def test_a_failure_on_request_hits_once(table: MountTable, tmp_path: Path) -> None:
    """The next operation fails, the one after works."""
    table.fail_next(errno.EBUSY)
    with pytest.raises(OSError, match="busy"):
        table.bind_read_only(tmp_path / "source", tmp_path / "target")
    table.bind_read_only(tmp_path / "source", tmp_path / "target")
    table.fail_next(errno.EBUSY)
    with pytest.raises(OSError, match="busy"):
        table.unmount(tmp_path / "target")
    assert len(table.table()) == 1


def test_octal_escapes_are_decoded() -> None:
    """Blanks, tabs, newlines and backslashes in mountinfo are what they were."""
    assert _unescape(r"/a\040b\011c\012d\134e") == "/a b\tc\nd\\e"


_IN_A_CHILD = """
import errno, sys
from pathlib import Path
from emulator.mounts import KernelMounts, enter_private_namespace

root = Path(sys.argv[1])
before = Path("/proc/self/ns/mnt").readlink()
mounts = KernelMounts(root)
assert Path("/proc/thread-self/ns/mnt").readlink() != before
enter_private_namespace()
source, target = root / "source", root / "tar get"
source.mkdir(); target.mkdir()
(source / "file").write_text("hi")
mounts.bind_read_only(source, target)
mounts.bind_read_only(source, target)
assert [m.target for m in mounts.table()] == [target, target]
seen = mounts.seen_at(target)
assert seen.read_only and seen.root.endswith("/source"), seen
assert (target / "file").read_text() == "hi"
try:
    (target / "new").write_text("x")
except OSError as error:
    assert error.errno == errno.EROFS
else:
    raise AssertionError("the bind can be written to")
for place in (target, target, target, root / "missing"):
    mounts.unmount(place)
assert mounts.table() == ()
try:
    mounts.bind_read_only(root / "missing", target)
except FileNotFoundError:
    pass
else:
    raise AssertionError("a missing source was bound")
mounts.bind_read_only(source, target)
"""


@pytest.mark.needs("kernel-mounts")
def test_the_kernels_mounts_stay_in_a_namespace_of_their_own(tmp_path: Path) -> None:
    """Binds are real, read-only and stacked for the process that made them, and only for it."""
    subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-c", _IN_A_CHILD, str(tmp_path)], check=True, timeout=60
    )
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert list((tmp_path / "tar get").iterdir()) == []
