"""Helm, as it is, installs, upgrades and uninstalls our chart on an emulated cluster."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import Cluster
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


@pytest.mark.needs("helm-library")
def test_helms_library_installs_upgrades_and_uninstalls(cluster: Cluster) -> None:
    """Each step has its effect and its revision; the CRDs stay, as Helm leaves them."""
    helm: Any = importlib.import_module("helm_python")
    kubeconfig = str(cluster.kubeconfig())
    with (
        helm.Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as config,
        helm.Chart.load(str(CHART)) as chart,
    ):
        config.install(chart, RELEASE, {}, namespace=NAMESPACE, create_namespace=True)
        before = _secure_port(cluster)
        values = {"modelManager": {"securePort": 9444}}
        assert config.upgrade(chart, RELEASE, values, namespace=NAMESPACE)["revision"] == 2
        assert _secure_port(cluster) == "9444"
        config.rollback(RELEASE, version=1)
        assert _secure_port(cluster) == before
        history = [(one["revision"], one["status"]) for one in config.history(RELEASE)]
        assert history == [(1, "superseded"), (2, "superseded"), (3, "deployed")]
        config.uninstall(RELEASE)
        assert _left(cluster) == []
        assert cluster.client.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD)


@pytest.mark.parametrize(
    "major",
    [
        pytest.param("3", marks=pytest.mark.needs("helm-3")),
        pytest.param("4", marks=pytest.mark.needs("helm-4")),
    ],
)
def test_helms_binary_installs_upgrades_and_uninstalls(
    cluster: Cluster, major: str, tmp_path: Path
) -> None:
    """The same by the command line of one major version."""
    binary = shutil.which(f"helm{major}") or shutil.which("helm") or "helm"
    common = ["--kubeconfig", str(cluster.kubeconfig()), "--namespace", NAMESPACE]
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def run(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603 - helm and our own chart
            [binary, *arguments, *common],
            capture_output=True,
            text=True,
            check=False,
            env=home,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("install", RELEASE, str(CHART), "--create-namespace")
    run("upgrade", RELEASE, str(CHART), "--set", "modelManager.securePort=9444")
    assert _secure_port(cluster) == "9444"
    assert json.loads(run("list", "-o", "json"))[0]["revision"] == "2"
    run("uninstall", RELEASE)
    assert _left(cluster) == []
