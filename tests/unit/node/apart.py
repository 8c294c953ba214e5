"""Scenes that mount and unmount for real, each in a process and a mount namespace of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_apart(script: str) -> None:
    """Run a scene; its failure is this test's.

    Raises:
        AssertionError: it failed; the message is what it said.
    """
    done = subprocess.run(  # noqa: S603 - our own script
        ["unshare", "--mount", sys.executable, "-c", script],  # noqa: S607 - on PATH
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
