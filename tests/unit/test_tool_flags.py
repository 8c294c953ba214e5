"""The tools beside the product complain as its commands do: bench, soak and mutants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import tests.mutants.__main__ as mutants
import tests.performance.__main__ as performance
import tests.performance.scale.__main__ as scale
import tests.soak.__main__ as soak
import tests.writers.__main__ as writers
from spec_tests.report import pages
from tests.performance import emulated

HUGE: Final = "9" * 5000
ODD: Final = "模\n\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\udcff"
NUMBER: Final = ("", "x", "-3", "0", "1.5", "1e3", "٥", HUGE, ODD)

TOOLS: Final[dict[str, tuple[Callable[[list[str]], int], dict[str, tuple[str, ...]]]]] = {
    "performance": (
        performance.main,
        {
            "--rounds": NUMBER,
            "--scale": ("", "x", "0", "-1", "1.1", "nan", "inf", ODD),
            "--only": ("no such scenario", ODD),
            "--directory": ("{tmp}/missing", "{tmp}/file", "{tmp}/loop", "", "/" + HUGE, ODD),
            "--no-such-flag": ("x",),
        },
    ),
    "emulated": (
        emulated.main,
        {
            "--nodes": NUMBER,
            "--watches": NUMBER,
            "--requests": (*NUMBER, "1"),
            "--no-such-flag": ("x",),
        },
    ),
    "soak": (
        soak.main,
        {
            "--seconds": (*NUMBER, "nan", "inf"),
            "--seed": ("", "x", "-1", HUGE, ODD),
            "--only": ("", "x", ODD),
            "--no-such-flag": ("x",),
        },
    ),
    "writers": (
        writers.main,
        {
            "--hours": ("", "x", "0", "-1", "1001", "nan", "inf", ODD),
            "--seed": ("", "x", "-1", HUGE, ODD),
            "--mutant": ("", "x", ODD),
            "--no-such-flag": ("x",),
        },
    ),
    "scale": (
        scale.main,
        {"--nodes": NUMBER, "--against": (*NUMBER, "1"), "--no-such-flag": ("x",)},
    ),
    "mutants": (mutants.main, {"--no-such-flag": ("x",)}),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_wrong_value_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    """One line with the flag in it, status 2, and nothing is begun."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    main, rows = TOOLS[tool]
    for flag, values in rows.items():
        for value in values:
            given = f"{flag}={value.replace('{tmp}', str(tmp_path))}"
            with pytest.raises(SystemExit) as end:
                main([given])
            assert end.value.code == 2, given
            out, err = capsys.readouterr()
            assert out == "", given
            assert flag in err, given
            assert err.removesuffix("\n").isprintable(), given


@pytest.mark.parametrize("folder", ["{tmp}", "{tmp}/missing", "", "/" + HUGE, ODD])
def test_pages_are_written_where_pages_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    """A mistyped folder is not made."""
    with pytest.raises(SystemExit) as end:
        pages.main([folder.replace("{tmp}", str(tmp_path))])
    assert end.value.code == 2
    assert "is no documentation folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_mutant_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """It is named before anything runs."""
    with pytest.raises(SystemExit) as end:
        mutants.main([ODD])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("python -m tests.mutants: no mutant '模")
