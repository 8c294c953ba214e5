"""The programs of an implementation as child processes: started, watched, stopped and killed.

What a program writes to standard output and error goes to one file of its own, which the suite
reads as its log. Nothing is known of a program but what the kernel says of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from emulator.stillness import runnable
from spec_tests.targets import Ended

STOP_SECONDS: Final = 30.0
"""How long SIGTERM may take; a DaemonSet's Pod is given as much."""

_DIE_WITH_THE_SUITE: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""A suite that is killed leaves no program behind."""

_STILL_NANOSECONDS: Final = 1_000_000
"""CPU time that counts as none: a thread that woke, looked and went back to wait."""


class ProgramError(Ended):
    """A program did not do what every program must; the message ends with its last words."""


def search_path() -> str:
    """Return where programs are looked for: beside this interpreter first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


class Program:
    """One running child process."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        """Start it in the mount namespace of the calling thread.

        Raises:
            ProgramError: it cannot be started.
        """
        self.name = name
        self.log = log
        with log.open("ab") as output:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the manifest's own command
                    [*_DIE_WITH_THE_SUITE, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={"PATH": search_path(), "PYTHONUNBUFFERED": "1", **environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise ProgramError(f"{name} does not start: {error}") from error

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            ProgramError: it has ended.
        """
        if (status := self._process.poll()) is not None:
            raise ProgramError(f"{self.name} ended with status {status}:\n{self._last_words()}")

    def stop(self) -> None:
        """Send SIGTERM and wait until it has ended; one that has ended already is no error.

        Raises:
            ProgramError: it does not end in time; it is killed then.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProgramError(
                f"{self.name} ignored SIGTERM for {STOP_SECONDS:g} s:\n{self._last_words()}"
            ) from None

    def kill(self) -> None:
        """Send SIGKILL to it and to everything it started, and wait until it has ended."""
        with contextlib.suppress(ProcessLookupError):  # it and its group may have ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def runs(self) -> bool:
        """Say whether one of its threads runs or wants to."""
        return runnable(f"/proc/{self._process.pid}/task")

    def cpu_nanoseconds(self) -> int | None:
        """Return the CPU time of its threads so far; None while one of them runs or wants to."""
        total = 0
        for task in Path(f"/proc/{self._process.pid}/task").glob("*"):
            try:
                total += int((task / "schedstat").read_text("ascii").split()[0])
            except (OSError, IndexError):
                continue  # the thread has ended meanwhile
        return None if self.runs() else total

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-20:])


def spent(before: Sequence[int | None], after: Sequence[int | None]) -> bool:
    """Say whether some program did something between two looks at its CPU time."""
    return any(
        first is None or second is None or abs(second - first) > _STILL_NANOSECONDS
        for first, second in zip(before, after, strict=True)
    )


class ProgramLogs:
    """What all programs of a world have written so far."""

    def __init__(self, folder: Path) -> None:
        """Read the files of a folder, whenever somebody looks."""
        self._folder = folder

    @property
    def lines(self) -> list[str]:
        """Return all lines, program by program."""
        return self.text.splitlines()

    @property
    def text(self) -> str:
        """Return all of it."""
        files = sorted(self._folder.glob("*.log"))
        return "\n".join(file.read_text("utf-8", "replace") for file in files)
