"""A cache whose filesystem does not answer: Pods still end, the rest waits and is told of once."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc
from gpustack_delivery.errors import DeliveryError, HostFault
from gpustack_delivery.node.cache import CacheRoot
from tests.unit.fakes import FakeDisk, eventually
from tests.unit.node.apart import run_apart
from tests.unit.node.stage import Stage

_CALLS = ("open", "stat", "lstat", "statvfs", "scandir", "mkdir", "rename", "replace", "unlink")


@contextmanager
def dead(stage: Stage, number: int) -> Iterator[list[str]]:
    """Let every call on the cache's filesystem fail; yield the names of those that were tried."""
    tried: list[str] = []

    def refuse(name: str, path: object) -> None:
        if isinstance(path, str | Path) and Path(path).is_relative_to(stage.cache):
            tried.append(name)
            raise OSError(number, os.strerror(number), str(path))

    def failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any = ".", *args: Any, **named: Any) -> Any:
            refuse(name, path)
            return call(path, *args, **named)

        return called

    def port(path: Path) -> Any:
        try:
            refuse("disk", path)
        except OSError as error:
            raise HostFault("the disk failed") from error

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, failing(name, getattr(os, name)))
        patch.setattr(io, "open", failing("io.open", io.open))
        for name in ("usage", "sync_file", "sync_directory"):
            patch.setattr(stage.disk, name, port)
        yield tried


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said at the level of errors."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.ECONNABORTED]
)
def test_a_plugin_on_a_dead_cache_unmounts_and_takes_it_when_it_answers(
    stage: Stage, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Everything else waits and says why, in the log once, and nothing is downloaded again."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.mounted(digest, "u2")
    stage.stop()
    listed = len(stage.hub.listed)
    words = f"does not answer ({errno.errorcode[number]})"
    with dead(stage, number) as tried:
        stage.start(synced=False)
        eventually(lambda: stage.condition("Ready").get("status") == "False", "the report")
        ready = stage.condition("Ready")
        assert ready["reason"] == "InvalidConfiguration"
        assert ready["message"].startswith("nothing new is mounted or downloaded: the filesystem")
        assert words in ready["message"]
        assert "collection skipped" in ready["message"]
        assert not stage.ask(csi_pb2_grpc.IdentityStub, "Probe", csi_pb2.ProbeRequest()).ready.value
        eventually(lambda: words in stage.publish(digest, "u3")[1], "the refusal")
        assert stage.publish(digest, "u3")[0] == "UNAVAILABLE"
        assert words.encode() in stage.https("/readyz")[1]
        assert stage.metric("gpustack_model_manager_capacity_bytes") == 0
        assert stage.unpublish() == ("OK", "")
        assert [mount.target for mount in stage.mounts.mounts] == [stage.target("u2")]
        looks = len(tried)
        stage.in_time(lambda: len(tried) >= looks + 3, "more looks")
        assert len(told(caplog)) == 1
    stage.in_time(lambda: stage.https("/readyz")[0] == 200, "the cache")
    stage.in_time(lambda: stage.condition("Ready").get("status") == "True", "the report")
    assert stage.model(digest)["referenced"]
    assert stage.publish(digest, "u3") == ("OK", "")
    assert stage.unpublish("u2") == ("OK", "")
    assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 1
    assert len(stage.hub.listed) == listed
    assert len(told(caplog)) == 1


def test_a_tree_on_a_cache_that_died_at_work_is_not_called_damaged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it could be read, and the Pod hears that of the filesystem."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    with dead(stage, errno.EIO):
        code, message = stage.publish(digest, "u2")
        assert code == "INTERNAL"
        assert "does not answer (EIO)" in message
    assert "damaged" not in caplog.text
    assert stage.publish(digest, "u2") == ("OK", "")


def test_a_disk_that_only_syncs_no_more_is_waited_for_too(stage: Stage) -> None:
    """What cannot be made durable is not begun with; the kernel answers reads from its memory."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    stage.disk.fail_sync = lambda path: path.is_relative_to(stage.cache)
    stage.start(synced=False)
    eventually(lambda: "(EIO)" in stage.publish(digest, "u2")[1], "the refusal")
    assert stage.unpublish() == ("OK", "")
    stage.disk.fail_sync = lambda path: False
    stage.in_time(lambda: stage.https("/readyz")[0] == 200, "the cache")
    assert stage.publish(digest, "u2") == ("OK", "")
    assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EPERM])
def test_what_a_person_must_mend_still_ends_the_start(stage: Stage, number: int) -> None:
    """A wrong flag or a missing right does not go away by waiting."""
    stage.start()
    stage.stop()
    with dead(stage, number), pytest.raises(DeliveryError, match="cannot be used"):
        stage.start()
    stage.plugin = None


def test_a_tree_is_no_stray_because_the_disk_died_while_markers_were_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker that cannot be read counts as none, so the root is looked at once more."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    assert stage.unpublish() == ("OK", "")
    stage.stop()
    read: list[str] = []

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any, *args: Any, **named: Any) -> Any:
            name = Path(path).name if isinstance(path, str | Path) else ""
            read.append(name)
            if name == "marker" or (name == "layout" and "marker" in read):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(path, *args, **named)

        return called

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", dying(os.open))
        patch.setattr(io, "open", dying(io.open))
        stage.start(synced=False)
        assert "marker" in read
    stage.in_time(lambda: stage.https("/readyz")[0] == 200, "the cache")
    assert stage.publish(digest) == ("OK", "")


def test_a_pod_that_ends_while_the_references_are_learnt_leaves_none(stage: Stage) -> None:
    """The table was read before its unmount, and the references are known only after it."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    stage.mounts.fail = "table"
    stage.start(synced=False)
    stage.mounts.fail = ""
    assert stage.plugin is not None
    references = stage.plugin._store.references
    table = stage.mounts.table()
    assert stage.unpublish() == ("OK", "")
    references.rebuild(table)
    assert references.digests() == frozenset()
    assert list((stage.cache / "ledger" / "refs").iterdir()) == []


def test_a_cache_that_has_become_read_only_is_told_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the node's condition and once in the log, until it can be written again.

    Nothing is tried to be removed meanwhile: it would fail again and again, and be said each time.
    """
    stage.start()
    eventually(lambda: stage.condition("Ready").get("status") == "True", "the first report")
    looked: list[Path] = []

    def read_only(path: Path) -> os.statvfs_result:
        looked.append(path)
        return os.statvfs_result((*range(8), os.ST_RDONLY, 255))

    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", read_only)
        removed = stage.cache / "trash" / "removed"
        removed.mkdir()
        stage.clock.advance(300)
        stage.in_time(lambda: stage.condition("Ready").get("status") == "False", "the report")
        ready = stage.condition("Ready")
        assert ready["reason"] == "InvalidConfiguration"
        assert "has become read-only" in ready["message"]
        assert ready["message"].endswith("; collection skipped: the filesystem failed")
        stage.in_time(lambda: len(looked) >= 4, "more looks")
        assert len(told(caplog)) == 1
        assert removed.exists()
    stage.in_time(lambda: stage.condition("Ready").get("status") == "True", "the report")
    assert not removed.exists()


def test_a_root_that_is_not_there_any_more_is_no_silent_filesystem(tmp_path: Path) -> None:
    """Somebody's rm -rf is damage, and mounts find it; only what does not answer is away."""
    CacheRoot(tmp_path / "gone", FakeDisk()).probe()


_ON_A_REAL_ONE = """
import fcntl, os, struct, subprocess
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage

def mount():
    subprocess.run(["mount", "-o", "loop", image, stage.cache], check=True)

def kill():
    root = os.open(stage.cache, os.O_RDONLY)
    fcntl.ioctl(root, 0x8004587D, struct.pack("I", 2))  # EXT4_IOC_SHUTDOWN, without the log
    os.close(root)

def answered(digest, words, *pod):
    eventually(lambda: words in stage.publish(digest, *pod)[1], words)

stage = Stage()
stage.configure()
stage.cache.mkdir()
image = stage.root / "image"
with image.open("wb") as file:
    file.truncate(32 << 20)
subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
mount()
digest = stage.artifact()
stage.start()
stage.mounted(digest)
stage.mounted(digest, "u2")
os.sync()
kill()
stage.in_time(lambda: "does not answer (EIO)" in stage.condition("Ready").get("message", ""))
code, message = stage.publish(digest, "u3")
assert code == "INTERNAL"
assert "does not answer (EIO)" in message
assert stage.unpublish() == ("OK", "")
stage.stop()
stage.start(synced=False)
eventually(lambda: "does not answer (EIO)" in stage.condition("Ready").get("message", ""))
answered(digest, "does not answer (EIO)", "u3")
assert stage.unpublish("u2") == ("OK", "")
subprocess.run(["umount", stage.cache], check=True)
mount()
stage.in_time(lambda: stage.https("/readyz")[0] == 200)
assert stage.publish(digest, "u3") == ("OK", "")
stage.in_time(lambda: stage.condition("Ready")["status"] == "True")
assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 1
assert len(stage.hub.listed) == 1
stage.stop()
subprocess.run(["umount", stage.cache], check=True)
stage.close()
"""


@pytest.mark.needs("kernel-mounts", "loop-mounts")
def test_a_filesystem_that_really_died() -> None:
    """An ext4 that was shut down, under a plugin and at its start, and mounted anew."""
    run_apart(_ON_A_REAL_ONE)
