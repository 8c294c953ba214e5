"""Programs that are told to stop while the Kubernetes API takes connections and says nothing.

Each stop has to come sooner than any request gives silence up, and than a killed Pod's grace.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpustack_delivery.adapters.kube import connect
from gpustack_delivery.errors import Unreachable
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage
from tests.unit.silent import Silent

PATIENCE_SECONDS = 25.0


def kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig of the server at a URL."""
    path = folder / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(json.dumps(config))
    return path


@contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of our programs to the end of the block."""
    line = [sys.executable, "-m", "gpustack_delivery", *words]
    process = subprocess.Popen(line, stderr=subprocess.PIPE)  # noqa: S603 - our own command line
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ends_when_told(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, and see the program end in order before any request could have given up."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said.decode()


@pytest.mark.parametrize(
    ("scheme", "accepts"),
    [("http", True), ("https", True), ("http", False)],
    ids=["no-answer", "no-handshake", "no-connection"],
)
def test_a_client_that_hangs_up_waits_for_nobody(
    tmp_path: Path, scheme: str, *, accepts: bool
) -> None:
    """A request in the air ends at once, wherever it waits, and none follows it."""
    faults: list[Unreachable] = []
    with Silent(accepts=accepts) as server:
        kube = connect(str(kubeconfig(tmp_path, f"{scheme}://{server.address}")))

        def ask() -> None:
            try:
                kube.within(3600.0).get(MODEL_ARTIFACTS, "a", "ns")
            except Unreachable as fault:
                faults.append(fault)

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(server.waited_for, "a request that waits")
        kube.hang_up()
        eventually(lambda: not asking.is_alive(), "the end of the request")
        ask()
    assert len(faults) == 2


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Yield a node without a plugin."""
    made = Stage()
    yield made
    made.close()


def test_a_plugin_stops_while_the_api_is_silent(stage: Stage, tmp_path: Path) -> None:
    """Its copies and its report wait for the server; its end does not."""
    with Silent() as server:
        flags = {
            "node-name": "node-a",
            "kubelet-dir": stage.kubelet,
            "cache-root": stage.cache,
            "csi-socket": stage.socket,
            "host": "127.0.0.1",
            "secure-port": 0,
            "kubeconfig": kubeconfig(tmp_path, f"http://{server.address}"),
        }
        words = (f"--{name}={value}" for name, value in flags.items())
        with program("model-manager", *words) as process:
            eventually(stage.socket.exists, "the socket")
            eventually(server.waited_for, "a request that waits")
            ends_when_told(process)


def worker_words(config: Path) -> list[str]:
    """Return the command line of a worker on free ports."""
    return [
        "worker",
        f"--kubeconfig={config}",
        "--host=127.0.0.1",
        "--webhook-port=0",
        "--namespace=ns",
        "--model-manager-service-account=plugin",
    ]


def test_a_worker_stops_while_it_waits_for_the_api_to_start(tmp_path: Path) -> None:
    """Told before it knows who it is, it ends, and with no complaint."""
    with Silent() as server:
        words = worker_words(kubeconfig(tmp_path, f"http://{server.address}"))
        with program(*words) as process:
            eventually(server.waited_for, "a request that waits")
            ends_when_told(process)


def test_a_worker_stops_while_the_api_is_silent(tmp_path: Path) -> None:
    """The API fell silent after its start: neither copies nor the Lease hold its end up."""
    silent = threading.Event()

    def answer(request: Request) -> Response:
        if "selfsubjectreviews" in request.path:
            body = {"status": {"userInfo": {"username": "worker"}}}
            return Response(201, [], json.dumps(body).encode())
        silent.wait()
        return Response(503)

    with Server(answer, name="api") as server:
        try:
            with program(*worker_words(kubeconfig(tmp_path, server.url))) as process:
                assert process.stderr is not None
                assert any(b"serving as" in line for line in process.stderr)
                ends_when_told(process)
        finally:
            silent.set()
