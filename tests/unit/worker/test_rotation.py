"""The certificate is replaced while two replicas judge reviews: no call fails for TLS reasons."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.contracts import WriteOptions
from gpustack_delivery.embedded import Embedded, host_fault
from gpustack_delivery.worker.certificates import made_in_memory
from tests.unit.fakes import eventually
from tests.unit.worker.replica import ACCOUNT, NAMESPACE, RELEASE, Replica

API = "worker.gpustack.ai/v1alpha1"
SECRET = f"{RELEASE}-webhook"
HOSTS = [f"{ACCOUNT}.{NAMESPACE}.svc", "localhost", "127.0.0.1"]
APART_SECONDS = 25.0
STEP_SECONDS = 15.0
STEPS = 12


class Service:
    """Two replicas behind one Service, called in turn."""

    def __init__(self, cluster: Cluster, replicas: list[Replica]) -> None:
        self.cluster = cluster
        self.replicas = replicas

    def judge(self) -> None:
        """Have each replica judge a review, on the API server's call."""
        for replica in self.replicas:
            replica.serve()
            metadata = {"name": "model", "namespace": "default"}
            spec = {"source": {"huggingFace": {"repository": "org/model"}}}
            artifact = {"apiVersion": API, "kind": "ModelArtifact", "metadata": metadata}
            self.cluster.client.create(
                artifact | {"spec": spec}, options=WriteOptions(dry_run=True)
            )

    def shown(self) -> set[str]:
        """Return the certificates that the replicas show."""
        ports = [int(each.worker.url.rpartition(":")[2]) for each in self.replicas]
        return {ssl.get_server_certificate(("127.0.0.1", port)) for port in ports}

    def kept(self) -> str:
        """Return the certificate in the Secret, "" while there is none."""
        found = self.cluster.client.list("v1", "Secret", namespace=NAMESPACE)
        held = [each["data"] for each in found if each["metadata"]["name"] == SECRET]
        return base64.b64decode(held[0]["tls.crt"]).decode() if held else ""

    def delete(self) -> None:
        """Ask for a new certificate, as an administrator does."""
        self.cluster.client.delete("v1", "Secret", SECRET, namespace=NAMESPACE)

    def replace(self) -> None:
        """Put a certificate of somebody else's there."""
        identity = made_in_memory(HOSTS)
        texts = {
            "tls.crt": identity.pair.certificate_pem,
            "tls.key": identity.pair.key_pem,
            "ca.crt": identity.ca_pem,
        }
        secret = self.cluster.client.get("v1", "Secret", SECRET, namespace=NAMESPACE)
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        self.cluster.client.update(secret | {"data": data})

    def join(self) -> None:
        """Start a third replica, which finds no certificate."""
        self.delete()
        third = Replica(self.cluster, "three")
        self.replicas.append(third)
        third.__enter__()


@pytest.fixture
def service() -> Iterator[Service]:
    """Give two replicas on a cluster whose clock the test moves."""
    clock = ManualClock()
    with Cluster(clock=clock, translate=host_fault) as cluster, ExitStack() as stack:
        Embedded(cluster, values={"publicApi": {"enabled": False}}).install()
        replicas = [Replica(cluster, name) for name in ("one", "two")]
        for replica in replicas:
            stack.enter_context(replica)
            clock.advance(APART_SECONDS)  # they look at different times
        eventually(lambda: any(each.worker.leading for each in replicas))
        service = Service(cluster, replicas)
        yield service
        for extra in replicas[2:]:
            extra.__exit__()


@pytest.mark.parametrize(
    "rotate", [Service.delete, Service.replace, Service.join], ids=["deleted", "replaced", "joined"]
)
def test_no_review_fails_while_the_certificate_is_replaced(
    service: Service, rotate: Callable[[Service], None]
) -> None:
    """From the old certificate to the new one every call to every replica is judged."""
    before = service.kept()
    rotate(service)
    for _ in range(STEPS):
        service.judge()
        service.cluster.clock.advance(STEP_SECONDS)  # type: ignore[union-attr]  # it is manual
        service.cluster.settle()
    service.judge()
    assert service.shown() == {service.kept()} != {before}
