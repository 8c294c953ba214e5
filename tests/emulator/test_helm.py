"""Helm, as it is, installs, upgrades and uninstalls our chart on an emulated cluster."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Cluster
from tests.clients import helm
from tests.house.tree import ROOT

CHART = ROOT / "chart"
RELEASE, NAMESPACE = "gpustack-delivery", "gpustack-system"
CRD = "nodemodelstores.worker.gpustack.ai"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Return a cluster."""
    with Cluster(kubernetes="1.32") as started:
        yield started


def _secure_port(cluster: Cluster) -> str:
    """Return the port flag that the plugin's DaemonSet has."""
    (daemons,) = cluster.client.list("apps/v1", "DaemonSet", namespace=NAMESPACE)
    (flag,) = re.findall(r"--secure-port=(\d+)", json.dumps(daemons))
    return str(flag)


def _left(cluster: Cluster) -> list[str]:
    """Return what a chart brings and an uninstall takes away, as far as it is there."""
    kinds = (("apps/v1", "DaemonSet"), ("apps/v1", "Deployment"), ("v1", "Service"))
    return [
        item["metadata"]["name"]
        for api_version, kind in kinds
        for item in cluster.client.list(api_version, kind, namespace=NAMESPACE)
    ]


@pytest.mark.parametrize(
    "major",
    [
        pytest.param("3", marks=pytest.mark.needs("helm-3")),
        pytest.param("4", marks=pytest.mark.needs("helm-4")),
    ],
)
def test_helm_installs_upgrades_rolls_back_and_uninstalls(
    cluster: Cluster, major: str, tmp_path: Path
) -> None:
    """Each step has its effect and its revision; the CRDs stay, as Helm leaves them."""
    common = ["--kubeconfig", str(cluster.kubeconfig()), "--namespace", NAMESPACE]

    def run(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603 - helm and our own chart
            [helm(major), *arguments, *common],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(tmp_path)},
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("install", RELEASE, str(CHART), "--create-namespace")
    before = _secure_port(cluster)
    run("upgrade", RELEASE, str(CHART), "--set", "modelManager.securePort=9444")
    assert _secure_port(cluster) == "9444"
    run("rollback", RELEASE, "1")
    assert _secure_port(cluster) == before
    history = json.loads(run("history", RELEASE, "-o", "json"))
    assert [(one["revision"], one["status"]) for one in history] == [
        (1, "superseded"),
        (2, "superseded"),
        (3, "deployed"),
    ]
    run("uninstall", RELEASE)
    assert _left(cluster) == []
    assert cluster.client.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD)
