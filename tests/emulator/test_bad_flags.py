"""Every flag of the emulator with everything wrong for it: one line, nothing left.

`ROWS` has a row for each flag of the emulator; a flag without one fails.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import emulator.__main__ as command

HUGE: Final = "9" * 5000
ODD: Final = "模\n\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\udcff"
NUMBER: Final = ("", "x", "-3", "0", "1.5", "1e3", "٥", HUGE, ODD)
FOLDER: Final = ("{tmp}/missing", "{tmp}/file", "{tmp}/empty", "{tmp}/loop", "/" + HUGE, ODD)
NAME: Final = ("", "Big", "a b", "a/b", "x" * 300, ODD)

ROWS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("up", "--nodes"): (*NUMBER, "255"),
    ("up", "--kubernetes"): (
        *("", "1.12", "1.28", "1.37", "2.0", "1.", "1.30.x", "1.30 ", "-1.30", "1.٣٠"),
        *(HUGE, ODD, "v1", "1.30;rm"),
    ),
    ("up", "--gpu-labels"): (),
    ("up", "--chart"): FOLDER,
    ("up", "--values"): (*FOLDER, "", "{tmp}/list", "{tmp}/dead"),
    ("up", "--set"): ("", "x", "=1", "a..b=1", "a=[", "a=1", HUGE, ODD, f"{ODD}=1"),
    ("up", "--namespace"): NAME,
    ("up", "--release"): NAME,
    ("up", "--hub"): (
        *("", "x", "=a/b", "{tmp}/model=", "{tmp}/model=a", "{tmp}/model=a/b/c", HUGE, ODD),
        *(f"{folder}=a/b" for folder in FOLDER),
        *(f"{{tmp}}/model=a/{name}" for name in ("..", "a b", ODD)),
    ),
    ("up", "--route"): (
        *("", "x", "a/b", "a/b=", "a/b=h", "a/b=h:x", "a/b=h:0", "a/b=h:70000", "a/b=:1"),
        *("/b=h:1", "a/=h:1", "a/b/c=h:1", "a/b=h:-1", HUGE, ODD),
    ),
    ("up", "--fault"): (
        *("", "nope", "api.refuse code=x", "api.refuse nope=1", "'", HUGE, ODD),
        *("node.flicker", "node.flicker node=none", "hub.status status=500"),
    ),
    ("up", "--clock"): ("{tmp}", "{tmp}/file", "{tmp}/missing/s", "{tmp}/" + "x" * 200, "\udcff/s"),
    ("fault", "FILE"): (
        *FOLDER,
        "{tmp}",
        "{tmp}/dead",
        "{tmp}/list",
        "{tmp}/no-port",
        "{tmp}/token",
        "",
    ),
    ("hub serve", "DIR"): (*FOLDER, ""),
    ("hub serve", "--name"): ("a/b/c", "/", "a/..", "a/b c", "/a", "a/", HUGE, ODD),
}


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each flag below a parser, with the words of its command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from leaves(inner, f"{name} {word}".strip())
        elif action.dest not in ("help", "command"):
            yield name, action.option_strings[-1] if action.option_strings else str(action.metavar)


def test_every_flag_has_its_row() -> None:
    """The table and the parsers name the same flags."""
    assert sorted(leaves(command._parser())) == sorted(ROWS)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one of each, and let nothing stay that was started."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "file").write_bytes(b"\xff\x00")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = {"url": f"http://127.0.0.1:{unused.getsockname()[1]}", "token": "canary-4711"}
    (tmp_path / "dead").write_text(json.dumps(dead))
    (tmp_path / "list").write_text("[]")
    (tmp_path / "no-port").write_text(json.dumps({"url": "http://h:x", "token": "canary-4711"}))
    (tmp_path / "token").write_text(json.dumps(dead | {"token": "canary-4711\nX: y"}))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))

    def stays(_signals: object) -> None:
        raise AssertionError("the value was accepted, and it stays")

    monkeypatch.setattr(signal, "sigwait", stays)
    return tmp_path


def ends(main: Callable[[list[str]], int], given: list[str]) -> int:
    """Run a command; return its status, whichever way it ends."""
    try:
        return main(given)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(("words", "flag"), ROWS, ids=[" ".join(row) for row in ROWS])
def test_a_wrong_value_is_one_line(
    world: Path, capsys: pytest.CaptureFixture[str], words: str, flag: str
) -> None:
    """Status 2, a line for people, no secret in it, and no file left."""
    before = sorted(world.rglob("*"))
    for value in ROWS[words, flag]:
        text = value.replace("{tmp}", str(world))
        given = [*words.split(), f"{flag}={text}"] if flag[0] == "-" else [*words.split(), text]
        given += [str(world / "model")] if flag == "--name" else []
        assert ends(command.main, given) == 2, value
        out, err = capsys.readouterr()
        assert out == "", value
        line = err.removesuffix("\n")
        assert line.startswith(("emulator: ", "python -m emulator ")), value
        assert line.isprintable(), (value, err)
        assert "canary" not in err
        assert "Errno" not in err, value
        assert len(line) < 1200, value
        assert sorted(world.rglob("*")) == before, value
