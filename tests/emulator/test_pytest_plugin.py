"""The pytest plugin, used from a project that knows nothing but the emulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from emulator.clock import ManualClock

def test_a_cluster_comes_with_a_node(cluster):
    assert [node.name for node in cluster.nodes] == ["node-1"]
    assert cluster.client.list("v1", "ConfigMap", namespace="default")

@pytest.mark.emulated(kubernetes="1.29", nodes=2, manual_clock=True)
def test_a_mark_says_what_it_is_like(cluster):
    assert isinstance(cluster.clock, ManualClock)
    versions = {
        node["status"]["nodeInfo"]["kubeletVersion"] for node in cluster.client.list("v1", "Node")
    }
    assert versions == {"v1.29.0"} and len(cluster.nodes) == 2

def test_that_fails(cluster):
    assert cluster.nodes == (), "on purpose"

@pytest.mark.emulated(flavour="sweet")
def test_a_mark_that_means_nothing_is_refused(cluster):
    pass
"""


def test_the_fixture_in_somebody_elses_project(tmp_path: Path) -> None:
    """Each test has a cluster as its mark says; a wrong mark is an error that names the choices."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["emulator.pytest_plugin"]\n', "utf-8")
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider"]
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert "1 failed, 2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "node node-1 Ready" in done.stdout  # what the cluster of the failed test looks like
    assert "emulated takes kubernetes, manual_clock, nodes, seed" in done.stdout
