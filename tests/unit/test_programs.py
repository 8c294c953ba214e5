"""Our programs as conformance starts them: an artifact the whole way, on either kind of time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "conformance" / "gpustack-delivery.toml"
THE_WHOLE_WAY = (
    "spec_tests/node_store/test_mounting_cached_weights.py"
    "::test_the_whole_way_from_an_artifact_to_a_file"
)


def in_real_time(folder: Path) -> Path:
    """Write our manifest as of somebody whose programs follow no clock, and return its path."""
    text = OURS.read_text(encoding="utf-8")
    for ours, theirs in {
        '"./clocked.py", "{clock_socket}"': '"gpustack-delivery"',
        '"clock", ': "",
        '"../chart"': f'"{ROOT / "chart"}"',
        '"xfails.toml"': f'"{OURS.with_name("xfails.toml")}"',
    }.items():
        assert ours in text
        text = text.replace(ours, theirs)
    file = folder / "real-time.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.needs("kernel-mounts")
@pytest.mark.parametrize("time", ["moved", "real"])
def test_our_programs_deliver(tmp_path: Path, time: str) -> None:
    """Worker and plugins as processes take an artifact the whole way, on either kind of time."""
    manifest = OURS if time == "moved" else in_real_time(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", THE_WHOLE_WAY]
    done = subprocess.run(  # noqa: S603 - ours
        [*command, "--target", "processes", "--manifest", str(manifest)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
