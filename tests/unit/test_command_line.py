"""The command line itself: what is listed, what is refused, and which status says so."""

from __future__ import annotations

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
def test_every_command_refuses_unknown_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that no command has ends with status 2 and is named."""
    with pytest.raises(SystemExit) as end:
        main([name, "--no-such-flag"])
    assert end.value.code == 2
    assert capsys.readouterr().err != ""
