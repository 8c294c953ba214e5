"""What lies in a partial and is none of the download's: never followed, never mounted, mended."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpustack_delivery.errors import AttemptFault, HostFault, Reason
from gpustack_delivery.node.cache import CacheRoot, delete_tree, walk
from gpustack_delivery.node.partials import Partials
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.vocabulary.manifest import Entry
from tests.unit.fakes import FakeDisk, eventually
from tests.unit.node.stage import Stage

PRECIOUS = b"precious"


def replaced(path: Path, make: Callable[[Path], None]) -> None:
    """Put something else in the place of what a download has made."""
    path.rename(path.with_name("aside"))
    make(path)


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "a link for a file": lambda attempt, outside: replaced(
        attempt / "tree/config.json", lambda path: path.symlink_to(outside / "config.json")
    ),
    "a link for a folder": lambda attempt, outside: replaced(
        attempt / "tree/weights", lambda path: path.symlink_to(outside)
    ),
    "a link for the tree": lambda attempt, outside: replaced(
        attempt / "tree", lambda path: path.symlink_to(outside)
    ),
    "a link for the engine's state": lambda attempt, outside: replaced(
        attempt / "state", lambda path: path.symlink_to(outside)
    ),
    "a link for the next attempt": lambda attempt, outside: attempt.with_name(
        str(int(attempt.name) + 1)
    ).symlink_to(outside),
    "a link for the digest": lambda attempt, outside: replaced(
        attempt.parent, lambda path: path.symlink_to(outside)
    ),
    "a second name of a foreign file": lambda attempt, outside: replaced(
        attempt / "tree/config.json", lambda path: path.hardlink_to(outside / "config.json")
    ),
    "a pipe": lambda attempt, _: replaced(attempt / "tree/config.json", os.mkfifo),
    "a folder for a file": lambda attempt, _: replaced(attempt / "tree/config.json", Path.mkdir),
    "a file for a folder": lambda attempt, _: replaced(attempt / "tree/weights", Path.touch),
    "a foreign file": lambda attempt, _: (attempt / "tree/weights/more").touch(),
    "a foreign folder": lambda attempt, _: (attempt / "tree/a/b").mkdir(parents=True),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_between_two_attempts_is_not_followed_and_goes(
    stage: Stage, what: str
) -> None:
    """The next attempt publishes exactly the listing, and nothing outside was touched."""
    digest = stage.artifact()
    outside = stage.root / "outside"
    outside.mkdir()
    for name in ("config.json", "model.bin"):
        (outside / name).write_bytes(PRECIOUS)
    stage.hub.fetch_fault = AttemptFault(Reason.SOURCE_UNAVAILABLE, "HTTP 503")
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    (attempt,) = stage.cache.glob("partial/*/*")
    (attempt / "tree/weights").mkdir(exist_ok=True)
    PLANTED[what](attempt, outside)
    stage.hub.fetch_fault = None
    stage.clock.advance(61)
    stage.mounted(digest)
    tree = stage.tree(digest)
    names = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    assert names == {"config.json", "weights/model.bin", "empty"}
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {
        "config.json": PRECIOUS,
        "model.bin": PRECIOUS,
    }


def test_what_is_no_file_among_the_engines_notes_goes(tmp_path: Path) -> None:
    """A link or a pipe in place of a note would end one attempt after the other."""
    partials, outside = Partials(CacheRoot(tmp_path, FakeDisk())), tmp_path / "outside"
    outside.mkdir()
    (outside / "note").write_bytes(PRECIOUS)
    (tmp_path / "partial").mkdir()
    state = partials.begin("sha256:" + "a" * 64, 0).state
    (state / "note.json").write_text("{}")
    (state / "finished").symlink_to(outside / "note")
    (state / "folder.json").mkdir()
    (state / "link.json").symlink_to(outside)
    os.mkfifo(state / "note.tmp")
    state = partials.begin("sha256:" + "a" * 64, 1).state
    assert [path.name for path in state.iterdir()] == ["note.json"]
    assert (outside / "note").read_bytes() == PRECIOUS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: (tree / "link").symlink_to("/etc"), "holds something foreign"),
        (lambda tree: (tree / "more").touch(), "holds something foreign"),
        (lambda tree: (tree / "empty").unlink(), "1 of the download's files are not on the disk"),
    ],
    ids=["a link", "a foreign file", "two names for one file"],
)
def test_a_download_that_is_not_its_listing_is_not_published(
    stage: Stage, change: Callable[[Path], None], words: str
) -> None:
    """It fails and backs off: published, it would be found damaged and come again without end."""
    digest = stage.artifact()
    fetch = stage.hub.fetch

    def changing(*args: object, **named: object) -> None:
        fetch(*args, **named)  # type: ignore[arg-type]
        change(next(stage.cache.glob("partial/*/*/tree")))

    stage.hub.fetch = changing  # type: ignore[method-assign]
    stage.start()
    eventually(lambda: words in stage.publish(digest)[1], "the failure")
    assert not stage.tree(digest).exists()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Give an attempt's directory with an empty tree."""
    workspace = Workspace(tmp_path / "1", 1)
    workspace.tree.mkdir(parents=True)
    return workspace


def entries(*paths: str) -> list[Entry]:
    """Return the entries of empty files."""
    return [Entry(path, 0, "sha256:" + "0" * 64) for path in paths]


@pytest.mark.parametrize("path", ["a" * 256, "d/" + "é" * 128, "d" * 200 + "/e" * 1950])
def test_a_name_that_the_filesystem_does_not_take_is_refused_before_a_byte_moves(
    workspace: Workspace, path: str
) -> None:
    """And in words that blame no disk."""
    with pytest.raises(HostFault, match="longer than the filesystem takes"):
        workspace.keep(entries("good", path))
    workspace.keep(entries("a" * 255, "d/" + "é" * 127, "d/" * 1700 + "f"))


@pytest.fixture
def deep(workspace: Workspace) -> Iterator[Path]:
    """Give a folder of as many levels as a path can have, deeper than Python recurses."""
    here = Path.cwd()
    os.chdir(workspace.tree)
    for _ in range(1800):
        Path("d").mkdir()
        os.chdir("d")
    Path("f").touch()
    os.chdir(here)
    yield workspace.tree
    if workspace.tree.exists():
        delete_tree(workspace.tree)


def test_a_tree_of_any_depth_is_seen_measured_and_deleted(workspace: Workspace, deep: Path) -> None:
    """A listing's author chooses the depth, and no depth of ours is in the way."""
    assert sum(1 for _ in walk(deep)) == 1801
    assert workspace.size_bytes() == 0
    workspace.keep(entries("d/" * 1800 + "f"))
    assert sum(1 for _ in walk(deep)) == 1801
    delete_tree(deep)
    assert not deep.exists()


def test_a_partial_that_was_looked_through_is_not_looked_at_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait while a reservation asks for its size, however many files it has."""
    (workspace.tree / "f").write_bytes(bytes(5000))
    workspace.keep(entries("f"))
    monkeypatch.delattr(os, "scandir")
    monkeypatch.delattr(os, "stat")
    workspace.grew(1000)
    workspace.grew(-500)
    assert workspace.size_bytes() == 5500


def test_a_hostile_depth_costs_no_memory(workspace: Workspace) -> None:
    """Paths that share no folder have thousands each; only the paths themselves are kept."""
    hostile = entries(*(f"{number}/{'d/' * 1700}f" for number in range(20)))
    tracemalloc.start()
    try:
        workspace.keep(hostile)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 10 * sum(len(entry.path) for entry in hostile)


@pytest.mark.parametrize(
    ("all_inodes", "free", "fits"), [(0, 0, True), (100, 4, True), (100, 3, False)]
)
def test_more_names_than_inodes_are_refused_before_a_byte_moves(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    *,
    all_inodes: int,
    free: int,
    fits: bool,
) -> None:
    """What is there needs none, folders need one each, and some filesystems count none at all."""
    (workspace.tree / "old").mkdir()
    (workspace.tree / "old/f").touch()
    wanted = entries("old/f", "old/g", "new/folder/f")
    facts = SimpleNamespace(f_files=all_inodes, f_favail=free)
    monkeypatch.setattr(os, "statvfs", lambda path: facts)
    if fits:
        workspace.keep(wanted)
        return
    with pytest.raises(AttemptFault, match="as many inodes, 3 are free") as caught:
        workspace.keep(wanted)
    assert str(caught.value).startswith("4 files and folders more")
    assert caught.value.reason is Reason.INSUFFICIENT_CAPACITY
