"""The real clock, disk and mount table, on the machine the tests run on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpustack_delivery.adapters import host, kernel
from gpustack_delivery.adapters.host import KernelDisk, KernelMounts, SystemClock
from gpustack_delivery.errors import HostFault
from gpustack_delivery.ports import Clock, Disk, Mount, Mounts
from tests.unit.fakes import eventually


def test_classes_satisfy_their_ports() -> None:
    """The real world fits where the emulated one fits."""
    clock: Clock = SystemClock()
    disk: Disk = KernelDisk()
    mounts: Mounts = KernelMounts()
    assert clock.now() > 1_600_000_000
    assert clock.monotonic() <= clock.monotonic()
    assert disk.usage(Path("/")).total_bytes > 0
    assert mounts.table()


def test_wait_ends_by_notification_and_by_time() -> None:
    """A wait returns when it is notified, and without a notification when its time is over."""
    clock = SystemClock()
    condition = threading.Condition()
    told: list[bool] = []

    def tell() -> None:
        with condition:
            told.append(True)
            condition.notify_all()

    teller = threading.Thread(target=tell)
    with condition:
        clock.wait(condition, 0.001)
        assert not told
        teller.start()
        while not told:
            clock.wait(condition, None)
    teller.join()


def test_usage_counts_roots_reserve_as_used(tmp_path: Path) -> None:
    """What is used is the size less what any user may still take."""
    usage = KernelDisk().usage(tmp_path)
    facts = os.statvfs(tmp_path)
    assert usage.total_bytes == facts.f_blocks * facts.f_frsize
    assert 0 < usage.used_bytes <= usage.total_bytes
    reserve = (facts.f_bfree - facts.f_bavail) * facts.f_frsize
    plainly_used = usage.total_bytes - facts.f_bfree * facts.f_frsize
    # Other processes write meanwhile: half of this disk's size would be a wrong formula, not noise.
    assert abs(usage.used_bytes - plainly_used - reserve) < usage.total_bytes // 2


def test_device_is_written_as_the_mount_table_writes_it(tmp_path: Path) -> None:
    """The device of a mount's own directory is the one its line in the table shows."""
    mount = KernelMounts().table()[-1]
    assert ":" in KernelDisk().device(tmp_path)
    root = next(
        mount for mount in reversed(KernelMounts().table()) if mount.target == Path("/proc")
    )
    assert KernelDisk().device(Path("/proc")) == root.device
    assert mount.device.count(":") == 1


def test_sync_takes_files_and_directories(tmp_path: Path) -> None:
    """Files and directories are synced; a link in a file's place is refused, not followed."""
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    link = tmp_path / "link"
    link.symlink_to(file)
    disk = KernelDisk()
    disk.sync_file(file)
    disk.sync_directory(tmp_path)
    with pytest.raises(HostFault, match="ELOOP"):
        disk.sync_file(link)
    with pytest.raises(HostFault, match="ENOENT") as caught:
        disk.sync_file(tmp_path / "missing")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOENT
    assert str(tmp_path) not in str(caught.value)


def test_table_undoes_octal_escapes(tmp_path: Path) -> None:
    """Spaces, tabs, newlines and backslashes in paths come back, and options tell read-only."""
    table = tmp_path / "mountinfo"
    table.write_bytes(
        b"1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        b"22 1 0:5 /sub\\040tree /mnt/a\\040b\\011c\\012d\\134e ro,nosuid - tmpfs none rw\n"
        b"23 1 0:6 / /mnt/rowdy rw,errors=ro_ - tmpfs none ro\n"
    )
    assert KernelMounts(table).table() == (
        Mount(Path("/"), "/", "8:1", read_only=False),
        Mount(Path("/mnt/a b\tc\nd\\e"), "/sub tree", "0:5", read_only=True),
        Mount(Path("/mnt/rowdy"), "/", "0:6", read_only=False),
    )


def test_table_that_cannot_be_read_is_a_host_fault(tmp_path: Path) -> None:
    """A missing table is a fault of the host, not an empty table."""
    with pytest.raises(HostFault, match="mount table"):
        KernelMounts(tmp_path / "missing").table()


@pytest.mark.parametrize("call", ["attach_read_only", "unmount"])
def test_a_call_that_hangs_in_the_kernel_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """On a filesystem that does not answer; other targets, and the table, are not on it."""
    mounts, answering, entered = KernelMounts(), threading.Event(), threading.Event()
    seen: list[Path] = []

    def hanging(*paths: Path) -> None:
        if tmp_path / "dead" in paths:
            entered.set()
            answering.wait()
        seen.append(paths[-1])

    monkeypatch.setattr(host, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(kernel, "attach_read_only", hanging)
    monkeypatch.setattr(kernel, "unmount", hanging)
    monkeypatch.setattr(host, "_is_harmless", lambda target: True)

    def use(target: Path) -> None:
        if call == "unmount":
            mounts.unmount(target)
        else:
            mounts.bind_read_only(tmp_path, target)

    first = threading.Thread(target=use, args=(tmp_path / "dead",))
    others = [
        threading.Thread(target=use, args=(tmp_path / "well",), daemon=True),
        threading.Thread(target=mounts.table, daemon=True),
    ]
    first.start()
    entered.wait()
    try:
        for thread in others:
            thread.start()
        eventually(lambda: not any(thread.is_alive() for thread in others), "the others' calls")
        assert seen == [tmp_path / "well"]
    finally:
        answering.set()
        first.join()
    assert seen == [tmp_path / "well", tmp_path / "dead"]


_IN_A_NAMESPACE = """
import os, sys
from pathlib import Path
from gpustack_delivery.adapters import kernel
from gpustack_delivery.adapters.host import KernelMounts
from gpustack_delivery.errors import HostFault

base, way = Path(sys.argv[1]), sys.argv[2]
source, target = base / "source", base / "tar get"
mounts = KernelMounts()
if way == "old kernel":
    def absent(source, target):
        raise OSError(38, "ENOSYS")
    kernel.attach_read_only = absent

def here():
    return [mount for mount in mounts.table() if mount.target == target]

mounts.bind_read_only(source, target)
(only,) = here()
assert only.read_only, only
line = next(l for l in open("/proc/self/mountinfo") if "tar\\\\040get" in l)
assert {"ro", "nosuid", "nodev"} <= set(line.split()[5].split(",")), line
assert (target / "file").read_text() == "content"
try:
    (target / "more").write_text("x")
except OSError as error:
    assert error.errno == 30, error
else:
    raise AssertionError("root wrote through a read-only mount")
(source / "more").write_text("x")
mounts.bind_read_only(source, target)
assert len(here()) == 2, here()
mounts.unmount(target)
assert len(here()) == 1
mounts.unmount(target)
assert not here()
mounts.unmount(target)
mounts.unmount(base / "missing")
try:
    mounts.bind_read_only(base / "missing", target)
except HostFault as fault:
    assert "ENOENT" in str(fault), fault
else:
    raise AssertionError("a missing source was mounted")
assert not here()
"""


def run_in_namespace(script: str, *arguments: str) -> None:
    """Run a script in a mount namespace of its own, so that no mount of a test outlives it."""
    command = ["unshare", "--mount", sys.executable, "-c", script, *arguments]
    done = subprocess.run(  # noqa: S603 - our own script, no shell
        command, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("kernel-mounts")
@pytest.mark.parametrize("way", ["this kernel", "old kernel"])
def test_kernel_mounts_are_read_only(tmp_path: Path, way: str) -> None:
    """A bind is read-only, nosuid and nodev even for root; unmounting is idempotent."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("content")
    (tmp_path / "tar get").mkdir()
    run_in_namespace(_IN_A_NAMESPACE, str(tmp_path), way)


_WRITABLE = """
import os, subprocess, sys
from pathlib import Path
from gpustack_delivery.adapters import kernel
from gpustack_delivery.adapters.host import KernelMounts
from gpustack_delivery.errors import HostFault

source, target, attach = Path(sys.argv[1]) / "source", Path(sys.argv[1]) / "target", sys.argv[2]
if attach:
    command = [*attach.split(), source, target]
    kernel.attach_read_only = lambda *_: subprocess.run(command, check=True)
else:
    def broken(path):
        raise OSError(5, "EIO")
    os.statvfs = broken
try:
    KernelMounts().bind_read_only(source, target)
except HostFault as fault:
    assert "did not keep the mount read-only" in str(fault), fault
else:
    raise AssertionError("a mount that can be written was accepted")
assert not [mount for mount in KernelMounts().table() if mount.target == target]
"""


@pytest.mark.needs("kernel-mounts")
@pytest.mark.parametrize("attach", ["mount --bind", "mount --bind -o ro", "true", ""])
def test_mount_that_is_not_as_asked_is_taken_off(tmp_path: Path, attach: str) -> None:
    """What the mount says decides, not that a call returned; one that says nothing is taken off."""
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    run_in_namespace(_WRITABLE, str(tmp_path), attach)


_PROPAGATION = """
import os, subprocess, sys
from pathlib import Path
from gpustack_delivery.adapters import kernel
from gpustack_delivery.adapters.host import KernelMounts

base, way = Path(sys.argv[1]), sys.argv[2]
if way == "old kernel":
    def absent(source, target):
        raise OSError(38, "ENOSYS")
    kernel.attach_read_only = absent
subprocess.run(["mount", "--bind", base, base], check=True)
subprocess.run(["mount", "--make-shared", base], check=True)
listen = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", "echo here; cat"]
with subprocess.Popen(listen, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
    other.stdout.readline()
    table = KernelMounts(Path(f"/proc/{other.pid}/mountinfo")).table
    def seen():
        return [mount for mount in table() if mount.target == base / "target"]
    KernelMounts().bind_read_only(base / "source", base / "target")
    (copy,) = seen()
    assert copy.read_only, copy
    line = next(l for l in open(f"/proc/{other.pid}/mountinfo") if f"{base}/target" in l)
    assert {"ro", "nosuid", "nodev"} <= set(line.split()[5].split(",")), line
    KernelMounts().unmount(base / "target")
    assert not seen()
    mine = Path("/proc/self/mountinfo").read_text()
    assert mine.count(f"{base}/source") == 0, mine
"""


@pytest.mark.needs("kernel-mounts")
@pytest.mark.parametrize("way", ["this kernel", "old kernel"])
def test_propagated_copy_is_read_only_too(tmp_path: Path, way: str) -> None:
    """What another mount namespace, as kubelet's, receives of our mount is as read-only as ours."""
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    run_in_namespace(_PROPAGATION, str(tmp_path), way)


_BUSY_NODE = """
import subprocess, sys, threading
from pathlib import Path
from gpustack_delivery.adapters.host import KernelMounts

base = Path(sys.argv[1])
mounts = KernelMounts()
stays = {base / f"stays-{number}" for number in range(100)}
for target in stays:
    target.mkdir()
    mounts.bind_read_only(base, target)
other = "while mount --bind $0 $0/other && umount $0/other; do :; done"
failed, over = [], threading.Event()

def mount_and_unmount(number):
    try:
        (target := base / f"own-{number}").mkdir()
        while not over.is_set():
            mounts.bind_read_only(base, target)
            mounts.unmount(target)
    except Exception as error:
        failed.append(error)

(base / "other").mkdir()
own = [threading.Thread(target=mount_and_unmount, args=(number,)) for number in range(8)]
with subprocess.Popen(["sh", "-c", other, base]) as churn:
    for thread in own:
        thread.start()
    try:
        for _ in range(200):
            seen = [mount.target for mount in mounts.table()]
            assert stays <= set(seen), seen
    finally:
        over.set()
        for thread in own:
            thread.join()
        churn.kill()
assert not failed, failed
"""


@pytest.mark.needs("kernel-mounts")
def test_table_is_whole_while_it_changes(tmp_path: Path) -> None:
    """Mounts that come and go meanwhile, ours and others', neither fail a reading nor tear it."""
    run_in_namespace(_BUSY_NODE, str(tmp_path))
