"""A pytest fixture that gives each test a cluster of its own.

pytest_plugins = ["emulator.pytest_plugin"]     # in the root conftest.py

@pytest.mark.emulated(nodes=2, manual_clock=True)
def test_something(cluster):
    cluster.client.create(...)
    cluster.clock.advance(60)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from emulator.clock import ManualClock
from emulator.cluster import Cluster

_MARK = "emulated"
_KNOWN = {"kubernetes", "nodes", "manual_clock", "seed"}


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    text = (
        f"{_MARK}(kubernetes='1.30', nodes=1, manual_clock=False, seed=None): what the cluster of "
        "the `cluster` fixture is like"
    )
    config.addinivalue_line("markers", text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show what the cluster looks like below a test of it that has failed."""
    report = yield
    found = getattr(item, "funcargs", {}).get("cluster")
    if report.when == "call" and report.failed and isinstance(found, Cluster):
        report.sections.append(("the cluster", found.dump()))
    return report


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a test a started cluster, with nodes named node-1 and so on; it goes with the test."""
    options: dict[str, Any] = {}
    for mark in request.node.iter_markers(_MARK):
        options = {**mark.kwargs, **options}
    unknown = options.keys() - _KNOWN
    if unknown:
        raise pytest.UsageError(f"{_MARK} takes {', '.join(sorted(_KNOWN))}, not {unknown}")
    clock = ManualClock() if options.get("manual_clock") else None
    kubernetes = options.get("kubernetes", "1.30")
    with Cluster(kubernetes=kubernetes, clock=clock, seed=options.get("seed")) as started:
        for number in range(1, options.get("nodes", 1) + 1):
            started.add_node(f"node-{number}")
        yield started
