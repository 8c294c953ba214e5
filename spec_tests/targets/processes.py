"""The processes target: an implementation that is known by its manifest alone.

Its programs are child processes against the emulator on loopback. Mounts are the kernel's, and
like the loopback they are in a namespace that the suite and the programs share and nobody else
sees; each node's cache lies on a small tmpfs. Stopping is SIGTERM, killing is SIGKILL.

Time is moved by the tests for an implementation that declares `clock`: the clock is served on a
socket, and the programs follow it. For any other time is real. A test may then let a few seconds
pass; one that asks for more than `--real-seconds` at once is `unsupported`. So is what no one can
bring about from outside a program, whatever the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from emulator.clock import ManualClock, SystemClock
from emulator.clock_service import ClockService
from emulator.cluster import Cluster
from emulator.mounts import enter_private_namespace
from spec_tests.scenario import World
from spec_tests.targets import Unsupported
from spec_tests.targets.loopback import enter_private_network
from spec_tests.targets.manifest import CLOCK, MODEL_MANAGER, WORKER, Manifest
from spec_tests.targets.program_seat import ProgramSeat
from spec_tests.targets.settings import withdraw
from spec_tests.worlds import Shape


class Processes:
    """Builds worlds for the implementation of one manifest."""

    kind = "processes"

    def __init__(self, manifest: Manifest, real_seconds: float) -> None:
        """Judge this implementation; a test may wait `real_seconds` at once."""
        self.manifest = manifest
        self.features = manifest.features
        self._real_seconds = real_seconds
        enter_private_namespace()
        enter_private_network()

    @contextmanager
    def world(self, shape: Shape) -> Iterator[World]:
        """Give a world of a shape, and take it down.

        Raises:
            Unsupported: the implementation lacks the program that the shape asks for.
        """
        for program, wanted in ((WORKER, shape.worker), (MODEL_MANAGER, shape.plugins)):
            if wanted and program not in self.manifest.commands:
                raise Unsupported(f"the implementation brings no {program}")
        clock = ManualClock() if CLOCK in self.features else SystemClock()
        with Cluster(kubernetes=shape.kubernetes, clock=clock, kernel_mounts=True) as cluster:
            seat = ProgramSeat(self.manifest, cluster, shape, self._real_seconds)
            with ExitStack() as stack:
                stack.callback(seat.close)
                if isinstance(clock, ManualClock):
                    service = ClockService(clock, seat.clock_socket).start()
                    stack.callback(service.stop)
                seat.install(worker=shape.worker)
                if shape.worker:
                    withdraw(cluster, shape.unserved)
                    seat.start_worker(shape.seeds)
                yield World(seat, replace(shape, kernel_mounts=True))
