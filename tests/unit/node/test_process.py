"""The plugin as a process: one line and a status for bad input, and a clean end on SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.node.csi import driver_name
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage

ENDING = {signal.SIGTERM, signal.SIGINT}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Yield a kubeconfig of an API that holds nothing."""

    def answer(request: Request) -> Response:
        if "watch=true" in request.query:
            return Response(200, [], iter(()))
        body = {"metadata": {"resourceVersion": "1"}, "items": []}
        return Response(200, [("Content-Type", "application/json")], json.dumps(body).encode())

    with Server(answer, name="api") as api:
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path.write_text(json.dumps(config))
        yield path


def command(stage: Stage, config: Path, **changes: str) -> list[str]:
    """Return the command line of a plugin on the stage."""
    flags = {
        "node-name": "node-a",
        "namespace": "ns",
        "kubelet-dir": str(stage.kubelet),
        "cache-root": str(stage.cache),
        "csi-socket": str(stage.socket),
        "host": "127.0.0.1",
        "secure-port": "0",
        "kubeconfig": str(config),
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    pairs = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, "-m", "gpustack_delivery", "model-manager", *pairs]


def completed(line: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(  # noqa: S603 - our own command line
        line, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_process_serves_and_ends_on_a_signal(stage: Stage, kubeconfig: Path) -> None:
    """Its socket answers; SIGTERM ends it with 0, SIGKILL is followed by a good start."""
    for number, status in ((signal.SIGKILL, -9), (signal.SIGTERM, 0)):
        process = subprocess.Popen(  # noqa: S603 - our own command line
            command(stage, kubeconfig), stderr=subprocess.PIPE
        )
        try:
            eventually(stage.socket.exists, "the socket")
            assert driver_name(stage.socket, timeout_seconds=20) == "model.csi.gpustack.ai"
            process.send_signal(number)
            process.communicate(timeout=30)
            assert process.returncode == status
        finally:
            process.kill()
            process.wait()


def test_no_thread_takes_the_signal_that_ends_the_process(stage: Stage, kubeconfig: Path) -> None:
    """One thread waits for it; handed to any other, it would wake nobody."""
    process = subprocess.Popen(command(stage, kubeconfig))  # noqa: S603 - our own command line
    try:
        eventually(stage.socket.exists, "the socket")
        assert driver_name(stage.socket, timeout_seconds=20) == "model.csi.gpustack.ai"
        tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
        taking = [task for task in tasks if ENDING - held_back(task)]
        assert len(tasks) > 5
        assert len(taking) == 1
    finally:
        process.kill()
        process.wait()


def test_a_process_that_crashes_writes_its_memory_nowhere(stage: Stage, kubeconfig: Path) -> None:
    """Credentials are kept in memory alone, so there is no core file, whatever is allowed."""
    line = ["sh", "-c", 'ulimit -c unlimited && exec "$@"', "sh", *command(stage, kubeconfig)]
    process = subprocess.Popen(line)  # noqa: S603 - our own command line
    try:
        eventually(stage.socket.exists, "the socket")
        limits = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
        (cores,) = (one.split()[4:6] for one in limits if one.startswith("Max core file size"))
        assert cores == ["0", "unlimited"]
    finally:
        process.kill()
        process.wait()


def held_back(task: Path) -> set[int]:
    """Return the signals that a thread does not take; every signal for one that has ended."""
    try:
        status = (task / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return set(range(1, 65))
    mask = next(int(line[7:], 16) for line in status.splitlines() if line.startswith("SigBlk:"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"secure_port": "x"}, "--secure-port"),
        ({"csi_socket": "/tmp/" + "x" * 110}, "bytes long"),
        ({"kubeconfig": "/nonexistent"}, "kubeconfig"),
    ],
)
def test_bad_input_is_one_line_and_status_two(
    stage: Stage, kubeconfig: Path, changes: dict[str, str], said: str
) -> None:
    """And nothing is made."""
    run = completed(command(stage, kubeconfig, **changes))
    assert run.returncode == 2
    assert said in run.stderr
    assert run.stderr.count("\n") == 1
    assert not stage.cache.exists()


def test_a_foreign_cache_root_is_one_line_and_untouched(stage: Stage, kubeconfig: Path) -> None:
    """The same through the whole program."""
    stage.cache.mkdir()
    (stage.cache / "photos").mkdir()
    run = completed(command(stage, kubeconfig))
    assert run.returncode == 2
    assert "is not empty" in run.stderr
    assert run.stderr.count("\n") == 1
    assert [path.name for path in stage.cache.iterdir()] == ["photos"]
