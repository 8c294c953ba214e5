"""A disk that is full, broken or read-only: the reason is told, nothing is lost, and it goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.ledger import USED_STEP_SECONDS
from tests.unit.fakes import eventually
from tests.unit.node.apart import run_apart
from tests.unit.node.stage import Stage


@pytest.mark.parametrize(
    ("number", "reason"),
    [(28, "InsufficientCapacity"), (122, "InsufficientCapacity"), (5, "SourceUnavailable")],
)
def test_a_full_disk_and_a_broken_one_are_told_apart(
    stage: Stage, number: int, reason: str
) -> None:
    """ENOSPC and EDQUOT are no room; EIO is a failure of the node."""
    digest = stage.artifact()
    stage.start()

    def sync(path: Path) -> bool:
        if path.name == "marker.tmp":
            raise HostFault("sync failed") from OSError(number, "failed")
        return False

    stage.disk.fail_sync = sync
    eventually(lambda: reason in stage.publish(digest)[1], "the failure")


@pytest.mark.parametrize(
    ("number", "reason"), [(28, "InsufficientCapacity"), (5, "SourceUnavailable")]
)
@pytest.mark.parametrize("place", ["published", "marker", "manifest.json"])
def test_a_rename_that_fails_publishes_nothing_and_keeps_the_partial(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, place: str, number: int, reason: str
) -> None:
    """Of the tree to its place, or of what is written beside it; the next attempt publishes."""
    digest = stage.artifact()
    name = digest.removeprefix("sha256:")
    stage.start()

    def failing(call: Callable[..., None]) -> Callable[..., None]:
        def moved(source: Path, target: Path) -> None:
            if place in (Path(target).name, Path(target).parent.name):
                raise OSError(number, os.strerror(number))
            call(source, target)

        return moved

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", failing(os.rename))
        broken.setattr(os, "replace", failing(os.replace))
        eventually(lambda: reason in stage.publish(digest)[1], "the failure")
        assert list((stage.cache / "published").iterdir()) == []
        (partial,) = (stage.cache / "partial" / name).iterdir()
        assert {path.name for path in (partial / "tree").iterdir()} == {
            "config.json",
            "weights",
            "empty",
        }
    stage.clock.advance(61)
    stage.mounted(digest)
    assert not partial.exists()


def test_a_publication_that_cannot_be_synced_is_a_partial_again(stage: Stage) -> None:
    """It may be lost with the power, so nobody may mount it; its bytes need not come again."""
    digest = stage.artifact()
    name = digest.removeprefix("sha256:")
    stage.start()

    def sync(path: Path) -> bool:
        if path.name == "published" and (path / name).exists():
            raise HostFault("sync failed") from OSError(5, "failed")
        return False

    stage.disk.fail_sync = sync
    eventually(lambda: "SourceUnavailable" in stage.publish(digest)[1], "the failure")
    assert list((stage.cache / "published").iterdir()) == []
    (partial,) = (stage.cache / "partial" / name).iterdir()
    assert (partial / "tree" / "weights").exists()
    stage.disk.fail_sync = lambda path: False
    stage.clock.advance(61)
    stage.mounted(digest)
    assert not partial.exists()


def test_an_outcome_that_cannot_be_written_holds_for_this_process(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Backoff without a ledger is still backoff; the log says what is wrong."""
    digest = stage.artifact()
    stage.start()

    def fetch(*args: object, **named: object) -> None:
        stage.disk.fail_sync = lambda path: "digests" in path.parts
        raise AttemptFault(Reason.SOURCE_UNAVAILABLE, "HTTP 503")

    stage.hub.fetch = fetch  # type: ignore[method-assign]
    stage.configure(generation=2, hub={"huggingFaceEndpoint": "https://next.example"})
    eventually(lambda: stage.status().get("observedGeneration") == 2)
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    assert "outcome not recorded" in caplog.text
    stage.disk.fail_sync = lambda path: False


def test_a_ledger_that_cannot_be_written_ends_the_attempt_with_its_reason(stage: Stage) -> None:
    """What cannot be remembered asks no hub; Pod and status hear why, and then it goes on."""
    digest = stage.artifact()
    stage.start()
    stage.disk.fail_sync = lambda path: "digests" in path.parts
    assert stage.publish(digest)[0] == "ABORTED"
    eventually(lambda: "the node's disk failed: EIO" in stage.publish(digest)[1], "the failure")
    eventually(lambda: stage.model(digest).get("reason") == "SourceUnavailable", "the report")
    assert not stage.hub.listed
    stage.disk.fail_sync = lambda path: False
    stage.clock.advance(61)
    stage.mounted(digest)


def test_records_that_cannot_be_removed_hold_up_no_unmount(stage: Stage) -> None:
    """On a filesystem that has become read-only Pods still end, and the status says so."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"), "the reference")
    stage.disk.fail_sync = lambda path: "refs" in path.parts
    assert stage.unpublish() == ("OK", "")
    assert stage.mounts.mounts == []
    eventually(lambda: not stage.model(digest).get("referenced"), "a true report")
    stage.disk.fail_sync = lambda path: False


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("what", ["marker", "manifest.json", "tree"])
def test_a_tree_that_cannot_be_looked_at_for_want_of_files_is_not_damaged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str, number: int
) -> None:
    """A process that can open nothing more knows nothing of a tree, and takes none out."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    stage.start()
    read, look = os.open, os.scandir

    def unless_exhausted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any, *more: Any, **named: Any) -> Any:
            if str(path).endswith(f"/{what}"):
                raise OSError(number, os.strerror(number))
            return call(path, *more, **named)

        return called

    with monkeypatch.context() as exhausted:
        exhausted.setattr(os, "open", unless_exhausted(read))
        exhausted.setattr(os, "scandir", unless_exhausted(look))
        code, message = stage.publish(digest, "u2")
    assert (code, "no more files" in message) == ("INTERNAL", True)
    assert stage.publish(digest, "u2") == ("OK", "")


@pytest.mark.parametrize("place", ["partial", "refs", "digests"])
def test_a_folder_that_cannot_be_read_is_told_by_its_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """While the plugin runs nothing is collected, and a start waits until it can be read."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    look = os.scandir

    def failing(path: Any) -> Any:
        if str(path).endswith(f"/{place}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", failing)
        assert stage.plugin is not None
        skipped = stage.plugin._collector.collect().skipped
        assert skipped == ("the filesystem failed" if place == "partial" else "")
        stage.stop()
        stage.start(synced=False)
        words = "cannot be read: Input/output error" if place == "partial" else "(EIO)"
        eventually(lambda: words in stage.condition("Ready").get("message", ""), "the report")
    stage.in_time(lambda: stage.https("/readyz")[0] == 200, "the cache")
    assert stage.publish(digest, "u2") == ("OK", "")
    assert "mistake of ours" not in caplog.text


def test_a_last_use_that_cannot_be_written_costs_no_mount(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """An age is worth less than a running Pod."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.clock.advance(USED_STEP_SECONDS)
    stage.disk.fail_sync = lambda path: "digests" in path.parts
    assert stage.publish(digest, "u2") == ("OK", "")
    assert "last use not recorded" in caplog.text
    stage.disk.fail_sync = lambda path: False


def test_a_filesystem_that_cannot_be_measured_collects_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The report comes with the next measure that succeeds; mounts go on."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"))
    stage.disk.fail_usage = True
    assert stage.publish(digest, "u2") == ("OK", "")
    eventually(lambda: "report failed" in caplog.text)
    assert stage.plugin is not None
    assert stage.plugin._collector.collect().skipped == "the filesystem failed"
    stage.disk.fail_usage = False
    assert stage.unpublish("u1") == ("OK", "")
    assert stage.unpublish("u2") == ("OK", "")
    stage.in_time(lambda: not stage.model(digest).get("referenced"))


_ON_A_READ_ONLY_CACHE = """
import subprocess
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage

def mount(*words):
    subprocess.run(["mount", *words, stage.cache], check=True)

def answered(digest, words, *pod, **named):
    eventually(lambda: words in stage.publish(digest, *pod, **named)[1], words)

stage = Stage()
stage.configure()
stage.cache.mkdir()
mount("-t", "tmpfs", "none")
digest = stage.artifact()
other = stage.artifact("other", repository="org/o", files={"a": b"other"})
stage.start()
stage.mounted(digest)
stage.mounted(digest, "gone")
stage.stop()
stage.mounts.unmount(stage.target("gone"))
(stage.cache / "ledger" / "refs" / "a.json.tmp").touch()
(stage.cache / "partial" / ("f" * 64) / "1").mkdir(parents=True)
(stage.cache / "trash" / "old").mkdir()
mount("-o", "remount,ro")
stage.start()
assert stage.publish(digest) == ("OK", "")
answered(digest, "Read-only file system", "u2")
answered(other, "the node's disk failed: EROFS", "u3", name="other")
assert stage.unpublish() == ("OK", "")
eventually(lambda: not stage.model(digest).get("referenced"))
mount("-o", "remount,rw")
stage.clock.advance(61)
stage.mounted(other, "u3", name="other")
stage.stop()
stage.start()
assert [mount.target for mount in stage.mounts.mounts] == [stage.target("u3")]
assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 1
assert list((stage.cache / "trash").iterdir()) == []
stage.stop()
subprocess.run(["umount", stage.cache], check=True)
stage.close()
"""


@pytest.mark.needs("kernel-mounts")
def test_a_cache_that_became_read_only_is_served() -> None:
    """Whatever a kill left there: mounts stay, unmounts work, and what is new hears why not."""
    run_apart(_ON_A_READ_ONLY_CACHE)
