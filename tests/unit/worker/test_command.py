"""`gpustack-delivery worker`: flags and signals."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack_delivery.__main__ import main
from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.redaction import Token
from gpustack_delivery.worker import command
from gpustack_delivery.worker.options import WorkerOptions
from tests.unit.fakes import ManualClock

REQUIRED = ["worker", "--namespace", "ns", "--model-manager-service-account", "plugin"]


class FakeKubeClient:
    """A client that only hangs up and closes."""

    closed = 0

    def hang_up(self) -> None:
        """Do nothing: nothing is asked."""

    def close(self) -> None:
        """Count."""
        self.closed += 1


class FakeWorker:
    """A worker that is told to stop as soon as it started."""

    made: list[FakeWorker]

    def __init__(self, options: WorkerOptions, clock: object, kube: object, public: object) -> None:
        self.options, self.clock, self.log = options, clock, ["made"]
        self.made.append(self)

    def start(self) -> None:
        """Start, and receive a signal."""
        self.log.append("started")
        waiting = (each.ident for each in threading.enumerate() if each.name == "ending")
        signal.pthread_kill(next(waiting) or 0, signal.SIGTERM)

    def retire(self) -> None:
        """Be told early."""

    def stop(self) -> None:
        """Stop."""
        self.log.append("stopped")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeWorker]]:
    """Put a fake worker and client behind the command."""
    FakeWorker.made = []
    kube = FakeKubeClient()
    monkeypatch.setattr(command, "Worker", FakeWorker)
    monkeypatch.setattr(command, "connect", lambda _kubeconfig: kube)
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    yield FakeWorker
    assert kube.closed == len(FakeWorker.made)


def test_runs_until_its_signal(process: type[FakeWorker]) -> None:
    """SIGTERM stops the worker in order, and the exit status is 0."""
    assert main([*REQUIRED, "--webhook-port", "0", "--webhook-configuration", "gpustack"]) == 0
    (worker,) = process.made
    assert worker.log == ["made", "started", "stopped"]
    assert isinstance(worker.clock, SystemClock)
    options = worker.options
    assert (options.namespace, options.webhook_port) == ("ns", 0)
    assert options.webhook_configuration == "gpustack"
    assert options.plugin_username == "system:serviceaccount:ns:plugin"


def test_lives_by_the_clock_that_it_is_given(process: type[FakeWorker]) -> None:
    """A caller may bring a clock; no flag names one."""
    parser, clock = argparse.ArgumentParser(), ManualClock()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(REQUIRED[1:]), clock) == 0
    assert process.made[0].clock is clock


def test_bad_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad seed in the environment stops the start and is named."""
    monkeypatch.setenv("GPUSTACK_MODEL_STORE_HIGH_WATERMARK", "120")
    assert main(REQUIRED) == 2
    assert "GPUSTACK_MODEL_STORE_HIGH_WATERMARK" in capsys.readouterr().err


def test_own_token(process: type[FakeWorker], tmp_path: Path) -> None:
    """The worker's own token is read from its file when it is needed, and may go meanwhile."""
    file = tmp_path / "token"
    file.write_text("secret\n")
    main([*REQUIRED, "--token-file", str(file)])
    own_token = process.made[0].options.own_token
    assert own_token() == Token("secret")
    file.unlink()
    assert own_token() is None


def test_a_token_is_not_needed(process: type[FakeWorker]) -> None:
    """Outside a Pod there is none in the usual place, and most API servers never ask for it."""
    assert main(REQUIRED) == 0
    assert process.made[0].options.own_token() is None
