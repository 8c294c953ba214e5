"""The fixtures of every spec test: a target, and worlds on it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pytest

from emulator.clock import SystemClock
from spec_tests.plugin import ABOUT, MANIFEST, RIGHTS, WORKER_ABOUT, WORKER_RIGHTS
from spec_tests.report.writer import About
from spec_tests.scenario import World
from spec_tests.targets import Implementation, Unsupported
from spec_tests.targets.in_process import InProcess
from spec_tests.targets.manifest import Manifest, features_of
from spec_tests.targets.processes import Processes
from spec_tests.worlds import Shape

Target = InProcess | Processes


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Target]:
    """Give the chosen target: what conftest.py hands over as threads, or a manifest's programs."""
    manifest = pytestconfig.stash.get(MANIFEST, None)
    if manifest is not None:
        _announce(pytestconfig, Processes.kind, manifest.title, manifest)
        yield Processes(manifest, pytestconfig.getoption("--real-seconds"))
        return
    implementation = request.getfixturevalue("implementation")
    _announce(pytestconfig, InProcess.kind, implementation.name, implementation)
    threads = InProcess(implementation)
    yield threads
    pytestconfig.stash[RIGHTS].add(threads.rights)
    if hasattr(pytestconfig, "workeroutput"):
        pytestconfig.workeroutput[WORKER_RIGHTS] = threads.rights.to_wire()


def _announce(
    config: pytest.Config, kind: str, name: str, tested: Implementation | Manifest
) -> None:
    """Tell the report who is under test."""
    arguments = getattr(config, "workerinput", {}).get("mainargv", sys.argv)
    about = About(
        kind=kind,
        name=name,
        version=tested.version,
        features=tested.features,
        command=shlex.join(["python", "-m", "pytest", *arguments[1:]]),
        date=SystemClock().now(),
    )
    config.stash[ABOUT] = about
    if hasattr(config, "workeroutput"):
        config.workeroutput[WORKER_ABOUT] = asdict(about)


@pytest.fixture(autouse=True)
def _features(request: pytest.FixtureRequest, target: Target) -> None:
    """Leave out, as unsupported, a test of a feature that the implementation does not declare."""
    node = request.node
    needed = {str(name) for mark in node.iter_markers("feature") for name in mark.args}
    for mark in node.iter_markers("rule"):
        needed.update(*(features_of(rule) for rule in mark.args))
    if missing := sorted(needed - set(target.features)):
        raise Unsupported(f"feature {missing[0]}")


class Builder:
    """Builds worlds of any shape for one test."""

    def __init__(self, target: Target, stack: ExitStack) -> None:
        """Build on a target; the stack takes down what was built."""
        self._target = target
        self._stack = stack
        self._built: list[World] = []

    def __call__(self, **shape: Any) -> World:
        """Build a world; the arguments are those of `Shape`."""
        world = self._stack.enter_context(self._target.world(Shape(**shape)))
        self._built.append(world)
        return world

    def evidence(self) -> list[tuple[str, str]]:
        """Return what the worlds that were built look like now."""
        return [section for world in self._built for section in world.evidence()]


@pytest.fixture
def worlds(target: Target) -> Iterator[Builder]:
    """Build worlds of any shape, all taken down when the test ends."""
    with ExitStack() as stack:
        yield Builder(target, stack)


@pytest.fixture
def world(worlds: Builder) -> World:
    """Give a world of one node with a plugin, in which the suite stands in for the worker."""
    return worlds()
