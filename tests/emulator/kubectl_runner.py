"""Runs the real kubectl, and compares the objects it prints."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from emulator.contracts import Json

PATIENCE_SECONDS = 60


def client_version() -> str:
    """Return kubectl's own version up to the minor one, such as 1.32."""
    command = ["kubectl", "version", "--client", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - fixed words
    version = json.loads(done.stdout)["clientVersion"]
    return f"{version['major']}.{version['minor'].rstrip('+')}"


class Kubectl:
    """Runs kubectl with a kubeconfig and a home directory of its own."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self.home = home
        self._command = ["kubectl", "--kubeconfig", str(kubeconfig)]
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def run(self, command: str, *, sent: str = "", code: int = 0) -> str:
        """Run one command, words apart by spaces; return what it printed.

        Fails when it exits otherwise, or prints anything to stderr while it should succeed.
        """
        done = self._done(command, sent)
        assert done.returncode == code, done.stderr
        if code == 0:
            assert done.stderr == ""
        return done.stdout

    def refused(self, command: str, *, sent: str = "") -> str:
        """Run one command that has to fail; return what it says."""
        done = self._done(command, sent)
        assert done.returncode != 0
        return done.stderr

    def object(self, command: str) -> Json:
        """Run one get; return the object."""
        found: Json = json.loads(self.run(f"{command} -o json"))
        return found

    def begin(self, command: str) -> subprocess.Popen[str]:
        """Start a command that goes on until its own time limit."""
        return subprocess.Popen(  # noqa: S603 - the test's own command
            [*self._command, *command.split()],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _done(self, command: str, sent: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - the test's own command
            [*self._command, *command.split()],
            env=self._environment,
            input=sent,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )


def plain(value: Json) -> Json:
    """Return an object without what stands for nothing: nulls, empty maps and the status."""
    cleaned = {}
    for key, held in value.items():
        kept = plain(held) if isinstance(held, dict) else held
        if kept not in (None, {}) and key != "status":
            cleaned[key] = kept
    return cleaned


def covered(wanted: object, found: object) -> bool:
    """Say whether everything wanted is in what was found, which has defaults beside it."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(covered(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(covered, wanted, found))
    return wanted in (found, {})
