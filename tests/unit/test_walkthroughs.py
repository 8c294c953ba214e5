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
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MANIFEST = re.compile(r"^```yaml\n(apiVersion: .*?)^```", re.MULTILINE | re.DOTALL)
_ABSENT = re.compile(r"no Model\w+ named \S+ exists")
_RESOLVED = {"type": "Resolved", "status": "True"}


def _commands() -> list[str]:
    found = [
        command for page in _PAGES for command in _COMMAND.findall(page.read_text(encoding="utf-8"))
    ]
    assert found, "no page shows a command"
    return found


def _typed() -> list[str]:
    """Return every kubectl command of the pages' shell blocks, each on one line."""
    blocks = [
        block for page in _PAGES for block in _BLOCK.findall(page.read_text(encoding="utf-8"))
    ]
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [line for line in lines if line.startswith("kubectl ")]
    assert found, "no page has a command to type"
    return found


def _harmless(command: str) -> str:
    """Return a command as it is tried here: it changes nothing, and waits for nothing."""
    command = re.sub(r"--kubeconfig \S+ |#.*", "", command).replace("NODE", "gpu-1")
    if re.match(r"kubectl (apply|create|delete|label|patch) ", command):
        return f"{command} --dry-run=server"
    if command.startswith("kubectl rollout"):
        return f"{command} --watch=false"
    return command.replace(" --all", " nobody") if command.startswith("kubectl wait") else command


def _manifests() -> list[str]:
    """Return what the pages have readers apply; first of all the front page's ModelArtifact."""
    return [
        found for page in _PAGES for found in _MANIFEST.findall(page.read_text(encoding="utf-8"))
    ]


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
            cluster.apply(yaml.safe_load(_manifests()[0]))
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


def _run(
    command: str, kubeconfig: Path, folder: Path, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run what a reader would type, pipes included."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig),
    }
    return subprocess.run(  # noqa: S602 - the pages' own commands
        command,
        shell=True,
        cwd=folder,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("command", _commands())
def test_a_command_of_the_pages(kubeconfig: Path, tmp_path: Path, command: str) -> None:
    """kubectl prints something, and complains of nothing."""
    done = _run(command, kubeconfig, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.parametrize("command", _typed())
def test_a_command_to_type_is_one(kubeconfig: Path, tmp_path: Path, command: str) -> None:
    """kubectl understands it, whatever this cluster lacks: only the server may have objections."""
    (tmp_path / "chart").symlink_to(_ROOT / "chart")
    for name in ("token", "corporate-ca.pem"):
        (tmp_path / name).write_text("sample\n", encoding="utf-8")
    said = _run(_harmless(command), kubeconfig, tmp_path).stderr.splitlines()
    servers = ("Error from server", "Warning: ", "error: failed to create ")
    assert [line for line in said if not line.startswith(servers)] == []


@pytest.mark.parametrize("manifest", _manifests())
def test_a_manifest_of_the_pages_is_well_formed(
    kubeconfig: Path, tmp_path: Path, manifest: str
) -> None:
    """The API server takes each object, or misses the one that another page makes."""
    command = "kubectl apply --server-side --force-conflicts --dry-run=server -f -"
    done = _run(command, kubeconfig, tmp_path, manifest)
    complaints = [line for line in done.stderr.splitlines() if not _ABSENT.search(line)]
    assert (complaints, "(server dry run)" in done.stdout) == ([], True)
