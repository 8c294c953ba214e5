"""A release in the hands of Helm: upgrades keep what the worker wrote, its end blocks nothing."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator import Cluster
from gpustack_delivery.adapters.kube import KubeClient, connect
from gpustack_delivery.errors import NotFound
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, Resource
from gpustack_delivery.worker.public_api.registration import API_SERVICES, establish
from gpustack_delivery.worker.trust import establish_all
from tests.house.charts import CHART, NAMESPACE, RELEASE, VALUES
from tests.unit.fakes import eventually

pytestmark = pytest.mark.needs("helm-library")
_CONFIGURATIONS = [
    Resource("admissionregistration.k8s.io", "v1", plural, kind, namespaced=False)
    for plural, kind in (
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    )
]
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_CA = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster without nodes."""
    with Cluster(kubernetes="1.32") as started:
        yield started


@pytest.fixture
def kube(cluster: Cluster) -> Iterator[KubeClient]:
    """The worker's client, as an administrator."""
    client = connect(str(cluster.kubeconfig()))
    yield client
    client.close()


@pytest.fixture
def helm(cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Return a function that runs one of Helm's actions on the release."""
    library: Any = importlib.import_module("helm_python")
    with (
        library.Config(kubeconfig_path=str(cluster.kubeconfig()), namespace=NAMESPACE) as config,
        library.Chart.load(str(CHART)) as chart,
    ):

        def run(action: str, values: dict[str, Any] | None = None, **options: Any) -> None:
            if action == "uninstall":
                config.uninstall(RELEASE)
                return
            getattr(config, action)(chart, RELEASE, values or {}, namespace=NAMESPACE, **options)

        yield run


def _bundles(kube: KubeClient) -> set[str]:
    """Return every CA bundle of the release's webhooks and APIServices, "" for one without."""
    hooks = [
        webhook["clientConfig"].get("caBundle", "")
        for resource in _CONFIGURATIONS
        for webhook in kube.get(resource, RELEASE)["webhooks"]
    ]
    services = [
        kube.get(API_SERVICES, name)["spec"].get("caBundle", "")
        for name in ("v1.worker.gpustack.ai", "v1.gpustack.ai")
    ]
    return {*hooks, *services}


def test_upgrade_keeps_the_trust(kube: KubeClient, helm: Callable[..., Any]) -> None:
    """Helm knows nothing of the CA bundles and takes none away; nothing that changes is immutable.

    A guard that loses its bundle refuses every write until the worker looks again.
    """
    helm("install", create_namespace=True)
    assert _bundles(kube) == {""}
    establish_all(kube, RELEASE, _CA)
    establish(kube, f"{RELEASE}-public-api", NAMESPACE, _CA)
    for name in ("everything set", "as it comes"):
        helm("upgrade", VALUES[name])
        assert _bundles(kube) == {base64.b64encode(_CA.encode()).decode()}, name


def test_nothing_stands_in_the_way_of_what_comes_after(
    cluster: Cluster, kube: KubeClient, helm: Callable[..., Any]
) -> None:
    """After an uninstall no webhook and no APIService is left, and the last word is a person's.

    An artifact that nobody released can be freed by hand, and its namespace ends.
    """
    cluster.apply(CHART / "crds")
    cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    body: dict[str, Any] = {
        "metadata": {"name": "m", "namespace": "team-a", "finalizers": ["example.com/held"]},
        "spec": {"source": {"persistentVolumeClaim": {"claimName": "c"}}},
    }
    named = {"apiVersion": MODEL_ARTIFACTS.api_version, "kind": MODEL_ARTIFACTS.kind}
    kube.create(MODEL_ARTIFACTS, named | body, "team-a")
    helm("install", create_namespace=True)
    helm("uninstall")
    for resource in _CONFIGURATIONS:
        with pytest.raises(NotFound):
            kube.get(resource, RELEASE)
    for name in ("v1.worker.gpustack.ai", "v1.gpustack.ai"):
        with pytest.raises(NotFound):
            kube.get(API_SERVICES, name)
    kube.delete(_NAMESPACES, "team-a")
    eventually(lambda: "deletionTimestamp" in kube.get(MODEL_ARTIFACTS, "m", "team-a")["metadata"])
    kube.merge_patch(MODEL_ARTIFACTS, "m", {"metadata": {"finalizers": None}}, "team-a")
    eventually(lambda: _gone(kube, "team-a"))


def _gone(kube: KubeClient, namespace: str) -> bool:
    try:
        kube.get(_NAMESPACES, namespace)
    except NotFound:
        return True
    return False
