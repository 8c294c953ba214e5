"""node-store#mounting-cached-weights, #requirements-and-limits: what consumers' Pods mount."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator.contracts import DeleteOptions
from spec_tests import oracle
from spec_tests.consumers import Json, deploy, instance, mount, pods_of, rendered, volumes
from spec_tests.scenario import World
from spec_tests.settings import set_setting

Worlds = Callable[..., World]
Consumer = Callable[[World, str], Json]


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a worker and a node without a plugin."""
    return worlds(worker=True, plugins=False)


@pytest.mark.rule("NS-MNT-01", "NS-MNT-02")
@pytest.mark.parametrize("consumer", [deploy, instance])
def test_a_hub_artifact_is_an_inline_volume(world: World, consumer: Consumer) -> None:
    """Driver, read-only and three attributes; no Secret where the artifact names none."""
    artifact = world.artifact()
    pod = rendered(world, consumer(world, artifact.name))
    assert volumes(pod, "csi") == [
        {
            "driver": oracle.DRIVER,
            "readOnly": True,
            "volumeAttributes": {
                "artifact": artifact.name,
                "artifactUID": artifact.uid,
                "manifestDigest": artifact.digest,
            },
        }
    ]
    assert mount(pod, "csi")["mountPath"] in {"/model", "/weights"}


@pytest.mark.rule("NS-MNT-02")
@pytest.mark.parametrize("consumer", [deploy, instance])
def test_a_private_artifact_hands_its_secret_over(world: World, consumer: Consumer) -> None:
    """The volume names the artifact's own Secret."""
    artifact = world.artifact(repository=world.repository("acme/hidden", private=True))
    (volume,) = volumes(rendered(world, consumer(world, artifact.name)), "csi")
    assert volume.get("nodePublishSecretRef") == {"name": f"{artifact.name}-token"}


@pytest.mark.rule("NS-REQ-02")
@pytest.mark.parametrize("consumer", [deploy, instance])
def test_a_claim_is_mounted_directly(world: World, consumer: Consumer) -> None:
    """The Pod has the claim itself, read-only and at the artifact's path, and no CSI volume."""
    world.namespace("team-a")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "weights", "namespace": "team-a"},
        "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    world.api.create(claim)
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "models/tiny"}}
    world.api.create(
        {
            "apiVersion": oracle.API,
            "kind": "ModelArtifact",
            "metadata": {"name": "claimed", "namespace": "team-a"},
            "spec": {"source": source},
        }
    )
    pod = rendered(world, consumer(world, "claimed"))
    assert volumes(pod, "csi") == []
    assert volumes(pod, "persistentVolumeClaim") == [{"claimName": "weights", "readOnly": True}]
    found = mount(pod, "persistentVolumeClaim")
    assert (found["subPath"], found["readOnly"]) == ("models/tiny", True)


@pytest.mark.rule("NS-MNT-01")
def test_engine_delivery_mounts_nothing(world: World) -> None:
    """A deployment under Engine delivery leaves a hub artifact to its engine."""
    set_setting(world, "model-artifact-delivery-mode", "Engine")
    artifact = world.artifact()
    assert volumes(rendered(world, deploy(world, artifact.name)), "csi") == []


@pytest.mark.rule("NS-MNT-01")
def test_pods_follow_their_deployment(world: World) -> None:
    """None before the artifact is resolved, as many as replicas, a lost one made again."""
    world.namespace("team-a")
    deployment = deploy(world, "model", replicas=3)
    world.advance(5)
    assert pods_of(world, deployment) == []
    world.artifact("model")
    found = world.until(
        lambda: pods if len(pods := pods_of(world, deployment)) == 3 else None,
        "three Pods",
        within_seconds=60,
    )
    lost = found[0]["metadata"]
    options = DeleteOptions(grace_period_seconds=0)
    world.api.delete("v1", "Pod", lost["name"], namespace=lost["namespace"], options=options)

    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in pods_of(world, deployment)}

    world.until(
        lambda: len(uids()) == 3 and lost["uid"] not in uids(), "it is replaced", within_seconds=60
    )
    world.api.patch(
        oracle.API,
        "ModelDeployment",
        "deployed",
        {"spec": {"roles": []}},
        namespace="team-a",
    )
    world.until(lambda: not uids(), "all are gone", within_seconds=120)
