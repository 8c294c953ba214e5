"""Programs under test as the processes target handles them: on a served clock, and at rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.clock import ManualClock
from emulator.clock_service import ClockService
from spec_tests.targets import Unsupported
from spec_tests.targets.pace import RealTime
from spec_tests.targets.programs import Program
from spec_tests.waiting import eventually
from tests.house.tree import ROOT

SPIN = (
    "import pathlib, sys\nwhile not pathlib.Path(sys.argv[1]).exists(): pass\nopen(sys.argv[2])\n"
)


def clocked(*words: str) -> tuple[int, str]:
    """Run `conformance/clocked.py` to its end and return its status and the last line it wrote."""
    command = [sys.executable, str(ROOT / "conformance" / "clocked.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - ours
    return done.returncode, done.stderr.splitlines()[-1]


def test_without_a_clock_our_programs_do_not_start(tmp_path: Path) -> None:
    """The socket is named, and nothing falls back to the machine's clock."""
    status, said = clocked(str(tmp_path / "none"), "model-manager")
    assert status == 2
    assert str(tmp_path / "none") in said


def test_a_program_that_cannot_start_leaves_the_clock(tmp_path: Path) -> None:
    """A flag that cannot be used is named as always, and the clock goes on without the program."""
    clock = ManualClock()
    service = ClockService(clock, tmp_path / "clock").start()
    try:
        status, said = clocked(str(tmp_path / "clock"), "model-manager", "--log-level", "loud")
        assert (status, "--log-level" in said) == (2, True)
        clock.advance(1)
        assert clock.monotonic() == 1
        eventually(lambda: not clock.guests, "the program is no guest of the clock any more")
    finally:
        service.stop()


def test_a_program_that_works_is_told_from_one_that_waits(tmp_path: Path) -> None:
    """What the kernel says of its threads is what counts."""
    ready, read = tmp_path / "ready", tmp_path / "read"
    os.mkfifo(read)
    program = Program(
        "spin", [sys.executable, "-c", SPIN, str(ready), str(read)], tmp_path / "log", {}
    )
    try:
        eventually(program.runs, "it works")
        assert program.cpu_nanoseconds() is None
        ready.touch()
        eventually(lambda: not program.runs(), "it waits")
        program.check()
    finally:
        program.kill()


def test_a_long_wait_on_real_time_is_unsupported() -> None:
    """Nobody sits through an hour because a rule speaks of one."""
    with pytest.raises(Unsupported, match=r"3600 s at once"):
        RealTime(10).advance(3600)
