"""Consumers: the few fields that rules read."""

from __future__ import annotations

from gpustack_delivery.vocabulary.consumers import Instance, InstanceType, ModelDeployment
from gpustack_delivery.vocabulary.metadata import Metadata

METADATA = {"name": "chat", "namespace": "team", "labels": None, "deletionTimestamp": "x"}


def test_model_deployment() -> None:
    """A deployment names its model's artifact and its roles' InstanceTypes."""
    body = {
        "metadata": METADATA,
        "spec": {
            "model": {"artifactRef": {"name": "qwen"}},
            "roles": [{"instanceType": "a10"}, {"name": "no type"}],
        },
    }
    deployment = ModelDeployment.from_wire(body)
    assert deployment.metadata.key == ("team", "chat")
    assert deployment.metadata.terminating
    assert deployment.instance_types == ("a10",)
    assert deployment.names_artifact("qwen")
    assert not deployment.names_artifact("other")


def test_instance() -> None:
    """An instance names the artifacts of its additional volumes; other volumes name none."""
    volumes = [{"model": {"artifactRef": {"name": "qwen"}}}, {"claim": {}}, {"model": None}]
    instance = Instance.from_wire({"metadata": {}, "spec": {"additionalVolumes": volumes}})
    assert instance.names_artifact("qwen")
    assert not instance.names_artifact("")


def test_instance_type() -> None:
    """An InstanceType says which nodes it covers."""
    spec = {"acceleratable": True, "acceleratorGroup": "nvidia-a10", "os": "linux", "arch": "amd64"}
    found = InstanceType.from_wire({"metadata": {"name": "a10"}, "spec": spec})
    assert found == InstanceType(
        Metadata("a10"),
        acceleratable=True,
        accelerator_group="nvidia-a10",
        os="linux",
        arch="amd64",
    )


def test_empty_objects() -> None:
    """An object without a spec uses nothing."""
    assert ModelDeployment.from_wire({}).artifact_name == ""
    assert Instance.from_wire({}).artifact_names == ()
    assert not InstanceType.from_wire({}).acceleratable
