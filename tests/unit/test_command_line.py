"""The command line itself: what is listed, what is refused, and which status says so."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gpustack_delivery.__main__ import COMMANDS, main


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_overview_lists_every_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a command, or asked for help, it lists all of them."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in COMMANDS)


def test_unknown_commands_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that is none gets a complaint that names those that are."""
    with pytest.raises(SystemExit) as end:
        main(["materialise"])
    assert end.value.code == 2
    assert "model-manager" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command can be loaded and lists its flags."""
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"gpustack-delivery {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_flag_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the command and the flag and says where the flags are listed; status 2."""
    required = {
        "manifest": ["x"],
        "volume": ["x"],
        "worker": ["--namespace=n", "--model-manager-service-account=a"],
    }.get(name, [])
    with pytest.raises(SystemExit) as end:
        main([name, "--no-such\nflag", *required])
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        f"gpustack-delivery {name}: unrecognized arguments: --no-such\\nflag; see --help\n"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the package's own."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"gpustack-delivery {version('gpustack-delivery')}\n"


def run(*arguments: str, encoding: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own whose streams have an encoding."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "gpustack_delivery", *arguments],
        capture_output=True,
        encoding=encoding,
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"},
        timeout=60,
        check=False,
    )


def test_names_keep_their_letters_and_lose_their_commands(tmp_path: Path) -> None:
    """A person reads a name in its own script; what a terminal would obey is escaped."""
    folder = tmp_path / "模型\x1b[2J"
    folder.mkdir()
    shown = f"{tmp_path}/模型\\x1b[2J"
    said = run("manifest", str(folder), encoding="utf-8")
    assert said.returncode == 2
    assert said.stderr.startswith(f"gpustack-delivery manifest: '{shown}' holds no file")
    said = run("verify", "--cache-root", str(folder), encoding="utf-8")
    assert said.stderr.startswith(f"gpustack-delivery verify: {shown} is no model cache")


def test_a_terminal_without_the_letters_gets_them_escaped(tmp_path: Path) -> None:
    """Its encoding is no reason to fail."""
    (tmp_path / "模").write_text("x")
    said = run("manifest", str(tmp_path), "--lines", encoding="ascii")
    assert (said.returncode, said.stderr) == (0, "")
    assert " 1 \\u6a21\n" in said.stdout


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """`manifest --lines | head -1` ends in silence."""
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "gpustack_delivery", "manifest", "--lines", str(tmp_path)]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141
