"""A tree that stood still is looked at shortly, and nothing that happened to it is overlooked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.node.inspection import (
    DIRECTORY_MODE,
    FILE_MODE,
    FRESH_SECONDS,
    Inspection,
)
from gpustack_delivery.vocabulary.manifest import Entry, Manifest

CONTENT = b"weights"


class Later(SystemClock):
    """The machine's clock some time from now."""

    def now(self) -> float:
        """Return that time."""
        return super().now() + FRESH_SECONDS + 60


def tree_of(top: Path, paths: list[str], clock: SystemClock) -> Inspection:
    """Lay files out as a publication does."""
    for path in paths:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(CONTENT)
        (top / path).chmod(FILE_MODE)
    for folder in [top, *(found for found in top.rglob("*") if found.is_dir())]:
        folder.chmod(DIRECTORY_MODE)
    digest = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
    manifest = Manifest.of(Entry(path, len(CONTENT), digest) for path in paths)
    return Inspection(top, manifest, clock)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return where a tree is to stand."""
    top = tmp_path / "tree"
    top.mkdir()
    return top


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the directories that are listed from now on."""
    names: list[str] = []
    scandir = os.scandir

    def noting(path: str) -> object:
        names.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting)
    return names


def _replace(tree: Path, with_what: Callable[[Path], None]) -> None:
    (tree / "d" / "b").unlink()
    with_what(tree / "d" / "b")


def _grow(tree: Path) -> None:
    with (tree / "d" / "b").open("ab") as file:
        file.write(b"!")


def _empty_out(tree: Path) -> None:
    (tree / "d" / "b").unlink()
    (tree / "d").rmdir()


def _move_away_and_back(tree: Path) -> None:
    (tree / "d").rename(tree / "e")
    (tree / "e" / "b").chmod(0o644)
    (tree / "e").rename(tree / "d")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a file is gone": lambda tree: (tree / "d" / "b").unlink(),
    "a file is foreign": lambda tree: (tree / "d" / "new").write_bytes(b""),
    "a folder is foreign": lambda tree: (tree / "d" / "new").mkdir(mode=0o755),
    "a file can be written": lambda tree: (tree / "d" / "b").chmod(0o644),
    "a file runs as its owner": lambda tree: (tree / "d" / "b").chmod(0o4444),
    "a folder can be written": lambda tree: (tree / "d").chmod(0o755),
    "the top can be written": lambda tree: tree.chmod(0o755),
    "a file has grown": _grow,
    "a file was cut": lambda tree: os.truncate(tree / "d" / "b", 1),
    "a link stands for a file": lambda tree: _replace(
        tree, lambda path: path.symlink_to(tree / "a")
    ),
    "a pipe stands for a file": lambda tree: _replace(tree, lambda path: os.mkfifo(path, 0o444)),
    "a folder stands for a file": lambda tree: _replace(tree, lambda path: path.mkdir(mode=0o555)),
    "a folder is gone": _empty_out,
    "a folder went and came back": _move_away_and_back,
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_happens_after_a_look_is_found_by_the_next(tree: Path, what: str) -> None:
    """Whatever it is, in whatever tick of the kernel, although that look could be a short one."""
    inspection = tree_of(tree, ["a", "d/b"], SystemClock())
    assert inspection.difference() == ""
    DAMAGE[what](tree)
    assert inspection.difference() != ""
    assert inspection.difference() != ""


def test_a_tree_that_stood_still_is_not_listed_again(tree: Path, listed: list[str]) -> None:
    """Only what changed, or was found wrong, is looked at whole."""
    inspection = tree_of(tree, ["a", "d/b"], Later())
    listed.clear()
    assert inspection.difference() == ""
    assert listed == [str(tree), str(tree / "d")]
    listed.clear()
    assert inspection.difference() == ""
    assert listed == []
    # As a second publication would; this test does not wait for the kernel's next tick.
    changed = inspection._changed_at[str(tree / "d")]
    inspection._changed_at[str(tree / "d")] = changed - 1
    assert inspection.difference() == ""
    assert listed == [str(tree), str(tree / "d")]


def test_a_fresh_change_time_hides_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str]
) -> None:
    """Two changes within one tick of the kernel have the same time: the second is found too."""
    inspection = tree_of(tree, ["a", "d/b"], SystemClock())
    assert inspection.difference() == ""
    listed.clear()
    assert inspection.difference() == ""
    assert listed == [str(tree), str(tree / "d")]
    monkeypatch.setattr(inspection, "_clock", Later())
    assert inspection.difference() == ""
    listed.clear()
    assert inspection.difference() == ""
    assert listed == []


def test_a_tree_of_very_many_folders_is_not_remembered(tree: Path, listed: list[str]) -> None:
    """Somebody's listing decides how many there are, and every one would be kept."""
    inspection = tree_of(tree, [f"{number:04}/f" for number in range(1000)], Later())
    listed.clear()
    assert inspection.difference() == ""
    assert inspection.difference() == ""
    assert len(listed) == 2 * 1001
