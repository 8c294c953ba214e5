"""The worker's certificate on its two ports, as the API server meets it."""

from __future__ import annotations

import base64
import ssl

from emulator import Cluster
from gpustack_delivery.httpd.certificates import hosts_of
from gpustack_delivery.worker.certificates import made_in_memory
from spec_tests.observe import ApiAs
from tests.unit.fakes import eventually
from tests.unit.installed.installation import NAMESPACE, PUBLIC, Installation, installed

SECRET = "gpustack-delivery-webhook"
SERVICES = ("gpustack-delivery-worker", "gpustack-delivery-public-api")


def keep_from_before(cluster: Cluster) -> None:
    """Leave the Secret of a worker that served no public API."""
    made = made_in_memory([f"{SERVICES[0]}.{NAMESPACE}.svc", "old.example.io"])
    texts = (made.pair.certificate_pem, made.pair.key_pem, made.ca_pem)
    data = {
        key: base64.b64encode(text.encode()).decode()
        for key, text in zip(("tls.crt", "tls.key", "ca.crt"), texts, strict=True)
    }
    metadata = {"name": SECRET, "namespace": NAMESPACE}
    cluster.client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    )


def shown(world: Installation) -> list[str]:
    """Return the certificates of the webhooks' port and the public API's, as PEM."""
    routes = world.cluster.webhooks.routes
    return [ssl.get_server_certificate(routes[NAMESPACE, service]) for service in SERVICES]


def works(world: Installation) -> bool:
    """Say whether the API server reaches both: a public object that a webhook has judged."""
    world.clock.advance(1)
    source = {"huggingFace": {"repository": "a b", "revision": "main"}}
    body = {"apiVersion": PUBLIC, "kind": "ModelArtifact", "metadata": {"name": "x"}}
    path = f"/apis/{PUBLIC}/namespaces/team-a/modelartifacts"
    admin = ApiAs(world.cluster.kubeconfig(), "", {})
    return admin.ask("POST", path, {**body, "spec": {"source": source}})[0] == 422


def test_one_from_before_is_made_anew_and_a_replaced_one_is_taken_up() -> None:
    """Both ports show what the Secret holds, the API server trusts it, and no worker restarts."""
    with installed(before_start=keep_from_before) as world:
        eventually(lambda: works(world), "the API server reaches both ports")
        first = shown(world)
        assert first[0] == first[1]
        names = hosts_of(first[0])
        assert {f"{service}.{NAMESPACE}.svc" for service in SERVICES} < names
        assert "old.example.io" in names

        world.cluster.client.delete("v1", "Secret", SECRET, namespace=NAMESPACE)

        def replaced() -> bool:
            world.clock.advance(30)
            now = shown(world)
            return now[0] == now[1] != first[0]

        eventually(replaced, "both ports show the new certificate")
        eventually(lambda: works(world), "the API server reaches both ports again")
