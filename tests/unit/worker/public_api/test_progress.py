"""The bounds of live readings, and what a silent or odd plugin does to an answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpustack_delivery.adapters.plugin_port import MAX_BYTES, PluginPort
from gpustack_delivery.errors import HostFault
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import self_signed, server_context
from gpustack_delivery.ports import Errand, Page, Selection
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES, PODS, Json
from gpustack_delivery.worker.public_api.progress import LIVE_AT_ONCE, LIVE_NODES, Deliveries
from gpustack_delivery.worker.public_api.statuses import Refused
from tests.unit.fakes import FakeKube, ManualClock, eventually

DIGEST = "sha256:" + "12" * 32
NAMESPACE = "gpustack-system"


class Told:
    """An answer of the API server, told beforehand."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self._body = json.dumps(body).encode()

    def header(self, name: str) -> str:
        """Return no header."""
        return ""

    def read(self) -> bytes:
        """Return the body."""
        return self._body

    def lines(self) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""


class OneArtifact:
    """The way to an API server that holds one artifact."""

    def __init__(self, status: int, body: Any) -> None:
        self._told = Told(status, body)

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Told:
        """Answer with the artifact, whatever is asked."""
        assert timeout_seconds <= 3
        return self._told


class Plugins:
    """Plugins that answer, or not, and count how many are asked at once."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.asked: list[str] = []

    def read(self, address: str, port: int, *, timeout_seconds: float) -> bytes:
        """Return what an address was told to say; raise for one that was told nothing."""
        assert (port, timeout_seconds) == (32444, 2.0)
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.asked.append(address)
        try:
            if address not in self._answers:
                raise HostFault("the plugin does not answer")
            answer = self._answers[address]
            return answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        finally:
            with self._lock:
                self._now -= 1


def artifact() -> Json:
    """Return a resolved artifact."""
    resolved = {"manifestDigest": DIGEST, "sizeBytes": 1000, "resolvedTime": "2026-01-01T00:00:00Z"}
    source = {"huggingFace": {"repository": "acme/tiny"}}
    metadata = {"name": "model", "namespace": "team-a", "uid": "u"}
    return {"metadata": metadata, "spec": {"source": source}, "status": {"resolved": resolved}}


def downloads(amount: int, digest: str = DIGEST) -> Json:
    """Return a plugin's answer."""
    return {"downloads": [{"digest": digest, "downloadedBytes": amount, "sizeBytes": 1000}]}


def add_node(kube: FakeKube, number: int, downloaded: int, *, ready: bool = True) -> None:
    """Add a node that reports a download, and its plugin's Pod."""
    name = f"node-{number:03d}"
    entry = {"digest": DIGEST, "state": "Downloading", "sizeBytes": 1000}
    status = {"models": [entry | {"downloadedBytes": downloaded}]}
    kube.put(NODE_MODEL_STORES, {"metadata": {"name": name}, "spec": {}, "status": status})
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    pod = {
        "metadata": {"name": f"plugin-{name}", "namespace": NAMESPACE},
        "spec": {"nodeName": name, "containers": [{"name": "main"}]},
        "status": {"podIP": name, "conditions": [condition]},
    }
    kube.put(PODS, pod)


class Unfiltered(FakeKube):
    """The fake API; every Pod in it is a plugin's."""

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return every object."""
        return super().list_page(replace(selection, field_selector=""), continue_token)


@contextmanager
def deliveries(kube: FakeKube, plugins: Plugins, status: int = 200) -> Iterator[Deliveries]:
    """Give deliveries whose copies are whole."""
    clock = ManualClock()
    found = Deliveries(kube, OneArtifact(status, artifact()), clock, plugins, NAMESPACE)
    found.start()
    try:
        eventually(lambda: found.synced, "the copies")
        yield found
    finally:
        found.stop()


def test_at_most_64_nodes_are_asked_16_at_once() -> None:
    """Nodes beyond the bound, and those that do not answer, contribute what they reported."""
    kube = Unfiltered()
    for number in range(80):
        add_node(kube, number, 10)
    plugins = Plugins({f"node-{number:03d}": downloads(20) for number in range(2, 80)})
    with deliveries(kube, plugins) as found:
        answer = found.progress("team-a", "model")
    assert len(plugins.asked) == LIVE_NODES
    assert 0 < plugins.most <= LIVE_AT_ONCE
    assert (answer["downloading"], answer["live"]) == (80, LIVE_NODES - 2)
    assert answer["downloadingBytes"] == 80 * 10 + (LIVE_NODES - 2) * 10
    assert answer["downloadingPercent"] == 1


def test_a_reading_only_raises_and_oddities_count_as_silence() -> None:
    """An older reading, another digest, nonsense, and a Pod that is not Ready change nothing."""
    kube = Unfiltered()
    for number in range(5):
        add_node(kube, number, 500, ready=number != 4)
    answers = {
        "node-000": downloads(100),
        "node-001": downloads(900, "sha256:" + "34" * 32),
        "node-002": b"<html>",
        "node-003": {"downloads": [{"downloadedBytes": 900}]},
        "node-004": downloads(900),
    }
    plugins = Plugins(answers)
    with deliveries(kube, plugins) as found:
        answer = found.progress("team-a", "model")
    assert (answer["live"], answer["downloadingBytes"]) == (1, 5 * 500)
    assert "node-004" not in plugins.asked


def test_an_artifact_that_is_not_there_is_not_found() -> None:
    """What the API server says of the artifact is what the caller hears."""
    with deliveries(Unfiltered(), Plugins({}), status=404) as found:
        with pytest.raises(Refused) as refused:
            found.progress("team-a", "model")
        assert refused.value.code == 404


def test_before_the_reports_are_read_nothing_is_counted() -> None:
    """Zeros would be a lie: the caller is told to come again."""
    found = Deliveries(Unfiltered(), OneArtifact(200, artifact()), ManualClock(), Plugins({}), "ns")
    with pytest.raises(Refused) as refused:
        found.progress("team-a", "model")
    assert refused.value.code == 503


class _Silence:
    """A body that never comes, until its connection is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Wait for the end."""
        self._closed.wait(20)
        raise StopIteration

    def close(self) -> None:
        """End it."""
        self._closed.set()


@pytest.mark.parametrize("kind", ["silent", "refusing", "huge", "absent"])
def test_a_port_that_does_not_answer_well_is_given_up(kind: str) -> None:
    """Silence, a refusal, a body beyond 1 MiB and a closed port are all one fault, in time."""

    def handle(_request: Request) -> Response:
        if kind == "silent":
            return Response(200, [], _Silence(), live=True)
        return Response(500 if kind == "refusing" else 200, [], b"x" * (MAX_BYTES + 1))

    server = Server(handle, name="plugin", tls=server_context(self_signed(["127.0.0.1"])))
    server.start()
    port = server.port
    if kind == "absent":
        server.stop()
    try:
        with pytest.raises(HostFault):
            PluginPort().read("127.0.0.1", port, timeout_seconds=0.3)
    finally:
        server.stop()
