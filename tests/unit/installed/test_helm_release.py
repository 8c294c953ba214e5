"""A release in the hands of Helm: upgrades keep what the worker wrote, its end blocks nothing."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import Cluster
from gpustack_delivery.adapters.kube import KubeClient, connect
from gpustack_delivery.errors import NotFound
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, Resource
from gpustack_delivery.worker.public_api.registration import API_SERVICES, establish
from gpustack_delivery.worker.trust import establish_all
from tests.clients import helm
from tests.house.charts import CHART, HELMS, NAMESPACE, RELEASE, VALUES
from tests.unit.fakes import eventually

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


class Release:
    """The release, as one major version of Helm makes it."""

    def __init__(self, major: str, kubeconfig: Path, home: Path) -> None:
        self._helm = helm(major)
        self._common = ["--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE]
        self._home = home

    def run(self, action: str, *options: str, values: dict[str, Any] | None = None) -> str:
        """Run one of Helm's actions; return what it says."""
        chart = [] if action == "uninstall" else [str(CHART), "-f", "-"]
        done = subprocess.run(  # noqa: S603 - helm and our own chart
            [self._helm, action, RELEASE, *chart, *options, *self._common],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self._home)},
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=HELMS)
def release(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Release:
    """Return the release in the hands of each Helm."""
    return Release(request.param, cluster.kubeconfig(), tmp_path)


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


def test_upgrade_keeps_the_trust(kube: KubeClient, release: Release) -> None:
    """Helm knows nothing of the CA bundles and takes none away; nothing that changes is immutable.

    A guard that loses its bundle refuses every write until the worker looks again.
    """
    assert "enforce=privileged" in release.run("install", "--create-namespace")
    assert _bundles(kube) == {""}
    establish_all(kube, RELEASE, _CA)
    establish(kube, f"{RELEASE}-public-api", NAMESPACE, _CA)
    for name in ("everything set", "as it comes"):
        release.run("upgrade", values=VALUES[name])
        assert _bundles(kube) == {base64.b64encode(_CA.encode()).decode()}, name


def test_nothing_stands_in_the_way_of_what_comes_after(
    cluster: Cluster, kube: KubeClient, release: Release
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
    release.run("install", "--create-namespace")
    release.run("uninstall")
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
