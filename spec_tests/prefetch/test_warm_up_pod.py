"""prefetch#the-warm-up-pod: one Pod a node, rendered as anybody may look at it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from spec_tests import oracle
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.warming import Warming, node_of

NODES: Final = ("node-a", "node-b", "node-c")
TOOLS: Final = ("sh", "find", "sha256sum")
Worlds = Callable[..., World]


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker and three nodes without plugins, so that every warm-up Pod stays to be seen."""
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    warming.store()
    warming.binding()
    return warming


@pytest.fixture
def artifact(warming: Warming) -> Artifact:
    """Give a resolved artifact."""
    return warming.world.artifact()


@pytest.mark.rule("MP-POD-01")
def test_every_target_has_one_pod_of_the_prefetchs_own(
    warming: Warming, artifact: Artifact
) -> None:
    """One Pod a node, controlled by the prefetch; as time passes it stays, and alone."""
    created = warming.prefetch(artifact)
    pods = warming.rendered(3)
    for pod in pods:
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == created["metadata"]["uid"]
        assert owner["controller"] is True
    uids = [pod["metadata"]["uid"] for pod in pods]
    warming.world.advance(600)
    assert [node_of(pod) for pod in warming.pods()] == list(NODES)
    assert [pod["metadata"]["uid"] for pod in warming.pods()] == uids


@pytest.mark.rule("MP-POD-01", "MP-RES-09")
def test_the_pods_go_with_their_prefetch(warming: Warming, artifact: Artifact) -> None:
    """Deleting the prefetch removes them."""
    warming.prefetch(artifact)
    warming.rendered(3)
    warming.delete("ModelPrefetch", "warm")
    warming.world.until(lambda: not warming.pods(), "the Pods are gone", within_seconds=60)


@pytest.mark.rule("MP-POD-02")
@pytest.mark.parametrize("private", [False, True])
def test_the_volume_is_a_consumers(warming: Warming, *, private: bool) -> None:
    """Driver, read-only, the three attributes, and the artifact's Secret exactly if it has one."""
    repository = warming.world.repository("acme/theirs", private=private)
    artifact = warming.world.artifact("theirs", repository=repository)
    warming.prefetch(artifact)
    pod = warming.rendered(3)[0]
    (csi,) = [volume["csi"] for volume in pod["spec"]["volumes"] if "csi" in volume]
    assert csi["driver"] == oracle.DRIVER
    assert csi["readOnly"] is True
    assert csi["volumeAttributes"] == artifact.attributes
    secret = {"name": "theirs-token"} if private else None
    assert csi.get("nodePublishSecretRef") == secret


@pytest.mark.rule("MP-POD-03")
def test_the_pod_satisfies_the_restricted_standard(warming: Warming, artifact: Artifact) -> None:
    """Nothing of the host, no privilege, no root, no capability, the default seccomp profile."""
    warming.prefetch(artifact)
    spec = warming.rendered(3)[0]["spec"]
    assert not [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    allowed = {"csi", "emptyDir", "projected", "configMap", "downwardAPI", "secret"}
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    pod_context = spec.get("securityContext", {})
    for container in spec["containers"] + spec.get("initContainers", []):
        assert not any("hostPort" in port for port in container.get("ports", []))
        context = {**pod_context, **container.get("securityContext", {})}
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert set(context["capabilities"].get("add", [])) <= {"NET_BIND_SERVICE"}
        assert context["runAsNonRoot"] is True
        assert context.get("runAsUser") != 0
        assert context["seccompProfile"]["type"] in {"RuntimeDefault", "Localhost"}
        assert not context.get("privileged")


@pytest.mark.rule("MP-POD-04")
def test_its_command_reads_every_file(warming: Warming, artifact: Artifact, tmp_path: Path) -> None:
    """Run for real, with nothing on PATH but a shell, find and sha256sum."""
    warming.prefetch(artifact)
    (container,) = warming.rendered(3)[0]["spec"]["containers"]
    weights = tmp_path / "weights"
    for path, content in artifact.tree.contents().items():
        (weights / path).parent.mkdir(parents=True, exist_ok=True)
        (weights / path).write_bytes(content)
    done = run(container, weights, tmp_path)
    assert done.returncode == 0, done.stderr
    for file in artifact.tree.files:
        assert hashlib.sha256(file.content).hexdigest() in done.stdout, f"{file.path} was not read"


def run(container: dict[str, Any], weights: Path, tmp_path: Path) -> Any:
    """Run a container's command on this machine, its mount path replaced by a folder."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        if not (tools / tool).exists():
            (tools / tool).symlink_to(found)
    (mount,) = container["volumeMounts"]
    words = [*container["command"], *container.get("args", [])]
    words = [word.replace(mount["mountPath"], str(weights)) for word in words]
    assert words[0].rpartition("/")[2] == "sh"
    return subprocess.run(  # noqa: S603 - the command under test, in a folder of its own
        [str(tools / "sh"), *words[1:]],
        env={"PATH": str(tools)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.rule("MP-POD-06")
def test_it_is_in_no_queue_whatever_the_prefetch_bears(
    warming: Warming, artifact: Artifact
) -> None:
    """A queue label on the prefetch, or on its artifact, does not reach the Pods."""
    queue = {"kueue.x-k8s.io/queue-name": "team-queue", "team": "a"}
    warming.prefetch(artifact, labels=queue)
    for pod in warming.rendered(3):
        assert "kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"]
        digest = artifact.digest.removeprefix("sha256:")[:32]
        assert pod["metadata"]["labels"] == {
            "worker.gpustack.ai/model-prefetch": "warm",
            "worker.gpustack.ai/model-prefetch-digest": digest,
        }


@pytest.mark.rule("MP-POD-07")
def test_its_image_is_the_settings(warming: Warming, artifact: Artifact) -> None:
    """The default image, and another one as soon as the Setting names it."""
    warming.prefetch(artifact)
    images = {pod["spec"]["containers"][0]["image"] for pod in warming.rendered(3)}
    assert images == {"gpustack/mirrored-python:3.12-alpine"}
    wanted = "registry.example/busybox:1.36"
    set_setting(warming.world, "model-prefetch-warmup-image", wanted)
    warming.world.until(
        lambda: [pod["spec"]["containers"][0]["image"] for pod in warming.pods()] == [wanted] * 3,
        "Pods of the new image",
        within_seconds=120,
    )


@pytest.mark.rule("MP-POD-01")
def test_a_tainted_node_is_warmed_by_a_bound_pod(warming: Warming, artifact: Artifact) -> None:
    """A taint that keeps others off does not keep the Pod off its node."""
    taint = {"key": "dedicated", "value": "inference", "effect": "NoSchedule"}
    warming.api.patch("v1", "Node", "node-b", {"spec": {"taints": [taint]}})
    warming.world.advance(0)
    warming.prefetch(artifact)
    warming.rendered(3)
    warming.world.until(
        lambda: [pod["spec"].get("nodeName") for pod in warming.pods()] == list(NODES),
        "every Pod is bound to its node",
        within_seconds=60,
    )


@pytest.mark.rule("MP-POD-05", "MP-POD-01", "MP-POD-04")
def test_a_node_downloads_once_and_the_pod_ends(worlds: Worlds) -> None:
    """Warming and a later consumer cost the hub one download; the Pod that did it is gone."""
    world = worlds(worker=True)
    warming = Warming(world)
    warming.store()
    warming.binding()
    artifact = world.artifact()
    warming.prefetch(artifact)
    warming.wait("Available", "MinReadyReached")
    consumer = world.pod(artifact)
    consumer.wait_until_running()
    assert world.node.read_pod(consumer, "config.json") == b'{"hidden_size": 8}\n'
    sent = world.hub.requests.sent_bytes("*", host="cdn")
    assert sent == len(artifact.tree.contents()["model.safetensors"])
    world.until(lambda: not warming.pods(), "the warm-up Pod is gone", within_seconds=120)
    world.advance(600)
    assert warming.pods() == []
