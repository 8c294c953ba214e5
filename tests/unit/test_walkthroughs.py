"""What the pages show on a console works as it stands there, on an emulated cluster."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from emulator.cluster import Cluster
from gpustack_delivery.embedded import Embedded
from tests.unit.fakes import eventually

pytestmark = pytest.mark.needs("kubectl")

_ROOT = Path(__file__).parents[2]
_PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_COMMAND = re.compile(r"^\$ (kubectl .*)$", re.MULTILINE)
_MANIFEST = re.compile(r"^```yaml\n(apiVersion: .*?)^```", re.MULTILINE | re.DOTALL)
_RESOLVED = {"type": "Resolved", "status": "True"}


def _commands() -> list[str]:
    found = [
        command for page in _PAGES for command in _COMMAND.findall(page.read_text(encoding="utf-8"))
    ]
    assert found, "no page shows a command"
    return found


def _manifest() -> str:
    """Return the ModelArtifact that the front page shows."""
    (found,) = _MANIFEST.findall((_ROOT / "README.md").read_text(encoding="utf-8"))
    return str(found)


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """A cluster that has what the pages speak of: team-a's qwen, and node gpu-1."""
    with Cluster(kubernetes="1.32") as cluster:
        hub = cluster.add_hub()
        hub.add_repository("Qwen/Qwen2.5-0.5B-Instruct", {"config.json": b"{}"})
        installation = Embedded(cluster)
        installation.install()
        endpoint = base64.b64encode(hub.url.encode()).decode()
        settings = {"name": "gpustack-settings", "namespace": installation.namespace}
        data = {"model-artifact-huggingface-endpoint": endpoint}
        cluster.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
                {"apiVersion": "v1", "kind": "Secret", "metadata": settings, "data": data},
            ]
        )
        installation.start_worker()
        try:
            installation.start_plugin(cluster.add_node("gpu-1"))
            cluster.apply(yaml.safe_load(_manifest()))
            eventually(lambda: _is_ready(cluster))
            yield cluster.kubeconfig()
        finally:
            installation.close()


def _is_ready(cluster: Cluster) -> bool:
    """Say whether qwen is resolved, gpu-1 has its object and the public API is reached."""
    version = "worker.gpustack.ai/v1alpha1"
    artifact = cluster.client.get(version, "ModelArtifact", "qwen", namespace="team-a")
    conditions = artifact.get("status", {}).get("conditions", [])
    services = cluster.client.list("apiregistration.k8s.io/v1", "APIService")
    remote = [one for one in services if one["spec"].get("service")]
    return (
        any(_RESOLVED.items() <= condition.items() for condition in conditions)
        and bool(cluster.client.list(version, "NodeModelStore"))
        and bool(remote)
        and all(_is_available(one) for one in remote)
    )


def _is_available(service: dict[str, object]) -> bool:
    status = service.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return any(one["type"] == "Available" and one["status"] == "True" for one in conditions)


@pytest.mark.parametrize("command", _commands())
def test_a_command_of_the_pages(kubeconfig: Path, tmp_path: Path, command: str) -> None:
    """kubectl prints something, and complains of nothing."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubeconfig),
    }
    done = subprocess.run(  # noqa: S602 - what a reader would type, pipes included
        command,
        shell=True,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
