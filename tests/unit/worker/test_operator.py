"""The worker as a whole: start, serving, leading, handing over, and refusing to start."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from gpustack_delivery.errors import ConfigurationFault, NotFound, Unreachable
from gpustack_delivery.vocabulary.resources import (
    LEASES,
    MODEL_ARTIFACTS,
    NODE_MODEL_STORES,
    SECRETS,
)
from gpustack_delivery.worker.operator import Worker
from gpustack_delivery.worker.options import WorkerOptions
from tests.unit.fakes import eventually
from tests.unit.worker.fake_hub import FakeHub
from tests.unit.worker.world import (
    NAMESPACE,
    ClusterKube,
    SteppedClock,
    add_driver,
    add_node,
)

WORKER = f"system:serviceaccount:{NAMESPACE}:worker"
OPTIONS = WorkerOptions(
    namespace=NAMESPACE,
    model_manager_service_account="model-manager",
    host="127.0.0.1",
    webhook_port=0,
    environment={},
)


def cluster() -> ClusterKube:
    """Return a cluster that knows the worker."""
    kube = ClusterKube()
    kube.reviews["selfsubjectreviews"] = {"status": {"userInfo": {"username": WORKER}}}
    add_driver(kube)
    return kube


@contextmanager
def running(kube: ClusterKube, clock: SteppedClock, **options: Any) -> Iterator[Worker]:
    """Run a worker."""
    worker = Worker(replace(OPTIONS, **options), clock, kube, FakeHub().open)
    try:
        worker.start()
        yield worker
    finally:
        worker.stop()


def call(worker: Worker, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Call the worker over HTTPS, trusting its certificate alone."""
    context = ssl.create_default_context(cadata=worker.ca_pem)
    port = int(worker.url.rpartition(":")[2])
    with closing(HTTPSConnection("127.0.0.1", port, context=context, timeout=20)) as connection:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        return response.status, response.read()


def test_serves_and_leads() -> None:
    """Webhooks, health and metrics answer; the leader's controllers do their work."""
    kube, clock = cluster(), SteppedClock()
    add_node(kube, "node-a")
    source = {"huggingFace": {"repository": "org/model", "revision": "main"}}
    metadata = {"name": "model", "namespace": "team"}
    kube.put(MODEL_ARTIFACTS, {"metadata": metadata, "spec": {"source": source}})
    with running(kube, clock) as worker:
        eventually(lambda: kube.find(NODE_MODEL_STORES, "node-a"))
        eventually(
            lambda: (
                (kube.find(MODEL_ARTIFACTS, "model", "team") or {})
                .get("status", {})
                .get("resolved")
            )
        )
        assert worker.leading
        for probe in ("/readyz", "/livez"):
            assert call(worker, probe) == (200, b"ok\n")
        assert call(worker, "/elsewhere")[0] == 404
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "operation": "UPDATE",
                "subResource": "status",
                "resource": {"group": "worker.gpustack.ai", "resource": "modelartifacts"},
                "userInfo": {"username": WORKER},
            },
        }
        status, answer = call(
            worker, "/validate/modelartifacts/status", json.dumps(review).encode()
        )
        assert status == 200
        assert json.loads(answer)["response"] == {"uid": "1", "allowed": True}
        metrics = call(worker, "/metrics")[1].decode()
        assert "gpustack_worker_leader 1.0" in metrics
        assert 'reconciles_total{controller="artifacts",result="done"}' in metrics
        assert 'resource="modelartifacts/status",result="allowed"' in metrics
        assert "team" not in metrics
    lease = kube.find(LEASES, OPTIONS.webhook_service, NAMESPACE)
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""


def test_second_replica_serves_webhooks_and_takes_over() -> None:
    """A replica that does not lead answers reviews, writes nothing, and goes on where the first
    stopped."""
    kube, clock = cluster(), SteppedClock()
    with running(kube, clock, replica="one", webhook_configuration="gpustack") as first:
        eventually(lambda: first.leading)
        with running(kube, clock, replica="two", webhook_configuration="gpustack") as second:
            assert call(second, "/readyz")[0] == 200
            assert second.ca_pem == first.ca_pem
            assert not second.leading
            first.stop()
            add_node(kube, "node-a")
            clock.advance(2.5)
            eventually(lambda: second.leading)
            eventually(lambda: kube.find(NODE_MODEL_STORES, "node-a"))
    assert len([s for s in kube.all(SECRETS) if s["metadata"]["name"] == "gpustack-webhook"]) == 1


def test_lost_lead_ends_the_term() -> None:
    """A leader that cannot renew stops working before its Lease runs out, and works again later."""
    kube, clock = cluster(), SteppedClock()
    with running(kube, clock) as worker:
        eventually(lambda: worker.leading)
        get = kube.get

        def cut(resource: Any, name: str, namespace: str = "") -> Any:
            if resource is LEASES:
                raise Unreachable("away")
            return get(resource, name, namespace)

        kube.get = cut  # type: ignore[method-assign]
        for _ in range(11):
            clock.advance(1)
        eventually(lambda: not worker.leading)
        kube.get = get  # type: ignore[method-assign]
        clock.advance(3)
        eventually(lambda: worker.leading)
        add_node(kube, "node-a")
        eventually(lambda: kube.find(NODE_MODEL_STORES, "node-a"))


def test_stop_while_the_copies_are_still_being_read() -> None:
    """A term whose API has gone away ends at once."""
    kube, clock = cluster(), SteppedClock()

    def away(*_args: object, **_kwargs: object) -> Any:
        raise Unreachable("away")

    kube.list_page = away  # type: ignore[method-assign]
    with running(kube, clock) as worker:
        eventually(lambda: worker.leading)
    assert not worker.leading


def test_waits_for_the_api_and_then_gives_up() -> None:
    """An API server that comes late is waited for; one that never comes ends the start."""
    kube, clock = cluster(), SteppedClock()
    kube.reviews["selfsubjectreviews"] = Unreachable("away")
    worker = Worker(OPTIONS, clock, kube)
    failures: list[Exception] = []

    def start() -> None:
        try:
            worker.start()
        except Unreachable as fault:
            failures.append(fault)

    thread = threading.Thread(target=start)
    thread.start()
    while thread.is_alive():
        clock.advance(2)
    thread.join()
    assert len(failures) == 1
    assert kube.count("create selfsubjectreviews") == 31
    worker.stop()
    with pytest.raises(ConfigurationFault, match="not started"):
        _ = worker.url
    with pytest.raises(ConfigurationFault, match="not started"):
        _ = worker.ca_pem


def test_no_identity_no_start() -> None:
    """Without an identity nothing is served."""
    kube = cluster()
    kube.reviews["selfsubjectreviews"] = NotFound("not served", code=404)
    worker = Worker(OPTIONS, SteppedClock(), kube)
    with pytest.raises(ConfigurationFault, match="who this worker is"):
        worker.start()
    worker.stop()


def test_taken_port_is_one_line() -> None:
    """A port in use is said with the address."""
    kube = cluster()
    with running(kube, SteppedClock()) as worker:
        port = int(worker.url.rpartition(":")[2])
        other = Worker(replace(OPTIONS, webhook_port=port), SteppedClock(), cluster())
        with pytest.raises(ConfigurationFault, match=f"127.0.0.1 port {port}"):
            other.start()
        other.stop()


def test_mounted_certificate(tmp_path: Path) -> None:
    """A directory without a certificate stops the start with what is missing."""
    worker = Worker(replace(OPTIONS, certificate_directory=tmp_path), SteppedClock(), cluster())
    with pytest.raises(ConfigurationFault, match=r"tls\.crt"):
        worker.start()
    worker.stop()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("namespace", "", "--namespace"),
        ("model_manager_service_account", "A", "--model-manager-service-account"),
        ("webhook_service", "a b", "--webhook-service"),
        ("webhook_configuration", "_", "--webhook-configuration"),
        ("webhook_port", 65536, "--webhook-port"),
        ("lease_seconds", 4, "--lease-seconds"),
        (
            "environment",
            {"GPUSTACK_MODEL_STORE_PEER_SYNC": "maybe"},
            "GPUSTACK_MODEL_STORE_PEER_SYNC",
        ),
    ],
)
def test_bad_options(field: str, value: Any, said: str) -> None:
    """Each bad option is one line that names its flag or its seed."""
    with pytest.raises(ConfigurationFault, match=said) as fault:
        replace(OPTIONS, **{field: value})
    assert "\n" not in str(fault.value)
