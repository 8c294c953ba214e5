"""`verify`: every kind of damage by name, silence about what is whole, and no harm to anything."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack_delivery.__main__ import main
from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.node import verifying
from gpustack_delivery.node.cache import LAYOUT
from gpustack_delivery.vocabulary.manifest import Entry, Manifest
from tests.unit.node.stage import Stage

FILES = {"config.json": b"{}", "w/model.bin": bytes(range(256)) * 16, "w/empty": b""}


@pytest.fixture
def digest(stage: Stage) -> str:
    """Publish one tree and leave the plugin running."""
    digest = stage.artifact(files=FILES)
    stage.start()
    stage.mounted(digest)
    return digest


def verify(stage: Stage, *digests: str) -> int:
    """Run the command in this process."""
    return main(["verify", "--cache-root", str(stage.cache), *digests])


def facts(root: Path) -> dict[str, tuple[int, int, int, float]]:
    """Return what would show that something was written."""
    return {
        str(path): ((s := path.lstat()).st_ino, s.st_mode, s.st_size, s.st_mtime_ns)
        for path in sorted(root.rglob("*"))
    }


def test_whole_trees_are_whole_while_the_plugin_runs(
    stage: Stage, digest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line of sums; by default every tree, and only those that are named."""
    other = stage.artifact("other", repository="org/o", files={"a": b"1"})
    stage.mounted(other, "u2", name="other")
    before = facts(stage.cache / "published")
    assert verify(stage) == 0
    assert capsys.readouterr().out.startswith("2 trees, 4 files, ")
    assert verify(stage, digest, digest) == 0
    assert capsys.readouterr().out.startswith("1 tree, 3 files, ")
    assert verify(stage, other) == 0
    assert capsys.readouterr().out.startswith("1 tree, 1 file, ")
    assert facts(stage.cache / "published") == before


@pytest.mark.parametrize("closed", ["marker", "manifest.json", "."])
def test_what_may_not_be_read_is_not_called_damaged(
    stage: Stage, digest: str, closed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The remedy for damage is a deletion: another user than the plugin's gets one line instead."""
    stage.stop()  # for a moment this process is somebody else
    stage.root.chmod(0o755)
    tree = stage.cache / "published" / digest.removeprefix("sha256:")
    for name in ("marker", "manifest.json"):
        (tree / name).chmod(0o644)
    (tree / closed).chmod(0)
    own = os.geteuid()
    os.seteuid(own or 65534)
    try:
        status = verify(stage)
    finally:
        os.seteuid(own)
    (tree / closed).chmod(0o755)
    assert (status, capsys.readouterr().err.count("as root")) == (2, 1)


def flip(path: Path) -> None:
    """Change a byte and nothing that a mount would look at."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else in a file's place."""
    path.unlink()
    make(path)


def modes(tree: Path, directory: int, file: int) -> None:
    """Set the modes of everything in a tree that stands there."""
    for path in [tree, *tree.rglob("*")] if tree.exists() else []:
        if not path.is_symlink():
            path.chmod(directory if path.is_dir() else file)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda d: flip(d / "tree/w/model.bin"), "'w/model.bin': its content does not have its"),
        (lambda d: (d / "tree/w/model.bin").write_bytes(b"x"), "it has 1 bytes in place of 4096"),
        (lambda d: (d / "tree/config.json").unlink(), "'config.json': the file is missing"),
        (lambda d: (d / "tree/w/new").write_text("x"), "'w/new': the file is not listed"),
        (lambda d: (d / "tree/deep").mkdir(), "'deep': the directory is not listed"),
        (lambda d: (d / "tree/a\nb").write_text("x"), "'a\\nb': the file is not listed"),
        (lambda d: (d / "tree/l").symlink_to("w"), "'l': the file is not listed"),
        (lambda d: replace(d / "tree/w/empty", os.mkfifo), "'w/empty': it is no regular file"),
        (
            lambda d: replace(d / "tree/config.json", lambda p: p.symlink_to("/etc/passwd")),
            "'config.json': the file cannot be read",
        ),
        (lambda d: (d / "tree").rename(d / "elsewhere"), "a directory cannot be read"),
        (lambda d: (d / "marker").write_text("{"), "its marker is missing"),
        (lambda d: (d / "manifest.json").unlink(), "its listing is missing"),
        (lambda d: (d / "manifest.json").write_text('{"entries": []}'), "its listing is missing"),
    ],
)
def test_every_damage_is_named(
    stage: Stage,
    digest: str,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[Path], object],
    said: str,
) -> None:
    """With the digest and the file, and status 1."""
    tree = stage.tree(digest)
    modes(tree, 0o755, 0o644)
    harm(tree.parent)
    modes(tree, 0o555, 0o444)
    assert verify(stage, digest) == 1
    *lines, sums = capsys.readouterr().out.splitlines()
    assert said in lines[0]
    assert all(line.startswith(f"{digest}: ") for line in lines)
    assert len(lines) == 1 or "a directory cannot be read" in said
    assert sums.endswith(": 1 damaged")


@pytest.mark.parametrize(
    ("place", "mode", "said"),
    [
        ("config.json", 0o644, "'config.json': its mode has changed"),
        ("w", 0o755, "'w': the directory's mode has changed"),
    ],
)
def test_a_changed_mode_is_named(
    stage: Stage,
    digest: str,
    capsys: pytest.CaptureFixture[str],
    place: str,
    mode: int,
    said: str,
) -> None:
    """A tree that somebody could have written to is no published one."""
    (stage.tree(digest) / place).chmod(mode)
    assert verify(stage) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{digest}: {said}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cache-root", "/nonexistent"], "the folder /nonexistent does not exist"),
        (["--cache-root", "/etc/passwd"], "no model cache"),
        (["--cache-root", "/etc"], "no model cache"),
        (["sha256:123"], "DIGEST must be sha256:"),
        (["sha256:" + "0" * 64], "not published"),
        (["../../etc"], "DIGEST must be sha256:"),
    ],
)
def test_bad_input_is_one_line_and_status_two(
    stage: Stage, digest: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Nothing is hashed before all of the input is good."""
    root = [] if "--cache-root" in arguments else ["--cache-root", str(stage.cache)]
    assert main(["verify", *root, *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert said in output.err
    assert output.err.count("\n") == 1


def test_another_layout_is_not_judged(
    stage: Stage, digest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What another version laid out may be whole by rules that this one does not know."""
    (stage.cache / "layout").write_text("gpustack-model-store v9\n")
    assert verify(stage) == 2
    assert "another layout" in capsys.readouterr().err


def test_what_is_collected_meanwhile_is_no_damage(
    stage: Stage, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that leaves while it is hashed is passed over, and so is one that has left."""
    directory = stage.tree(digest).parent
    examined = verifying._examine

    def taken(*arguments: object) -> verifying.Finding:
        directory.rename(stage.cache / "trash" / "gone")
        return examined(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(verifying, "_examine", taken)
    assert verifying.examine(stage.cache, digest, Hashing()) is None
    assert verifying.examine(stage.cache, digest, Hashing()) is None


def test_a_large_file_needs_little_memory(stage: Stage) -> None:
    """A file is hashed in pieces: 400 MB of holes under 300 MB of address space."""
    size = 400 << 20
    entry = Entry("big", size, "sha256:" + "0" * 64)
    manifest = Manifest.of([entry])
    tree = stage.tree(manifest.digest)
    tree.mkdir(parents=True)
    (stage.cache / "layout").write_bytes(LAYOUT)
    listing = f'{{"entries": [{{"path": "big", "size": {size}, "digest": "{entry.digest}"}}]}}'
    (tree.parent / "manifest.json").write_text(listing)
    with (tree / "big").open("wb") as file:
        file.truncate(size)
    run = subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, "-m", "gpustack_delivery", "verify", "--cache-root", str(stage.cache)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    assert run.returncode == 1
    assert "'big': its content does not have its sha256 digest" in run.stdout
