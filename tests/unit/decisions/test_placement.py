"""Placement: flavors, selectors, what deployments say, and what means nothing."""

from __future__ import annotations

import pytest

from gpustack_delivery.decisions.placement import covers, derive, expand, fault_of, matcher
from gpustack_delivery.vocabulary.consumers import InstanceType, ModelDeployment
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.prefetch import Placement
from gpustack_delivery.vocabulary.selector import Requirement, Selector

OS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
GPU = {"acceleratable.feature.gpustack.ai/nvidia": "true", **OS}
CPU = {"feature.gpustack.ai/acceleratable": "false", **OS}
TURIN = {**CPU, "general.feature.gpustack.ai/turin": "true"}
NODES = {"gpu-2": GPU, "gpu-1": GPU, "cpu": CPU, "turin": TURIN}
ACCELERATED = InstanceType(
    Metadata("a100"), acceleratable=True, accelerator_group="nvidia", os="linux", arch="amd64"
)


def deployment(artifact: str, *kinds: str) -> ModelDeployment:
    """Return a deployment of an artifact on InstanceTypes."""
    return ModelDeployment(Metadata("x"), artifact, kinds)


@pytest.mark.parametrize(
    ("kind", "labels", "covered"),
    [
        (ACCELERATED, GPU, True),
        (ACCELERATED, CPU, False),
        (ACCELERATED, {**GPU, "kubernetes.io/arch": "arm64"}, False),
        (ACCELERATED, {**GPU, "kubernetes.io/os": "windows"}, False),
        (InstanceType(Metadata("x"), acceleratable=True), GPU, False),
        (InstanceType(Metadata("x"), general_group="generic"), CPU, True),
        (InstanceType(Metadata("x"), general_group="generic"), TURIN, True),
        (InstanceType(Metadata("x")), CPU, True),
        (InstanceType(Metadata("x"), general_group="turin"), CPU, False),
        (InstanceType(Metadata("x"), general_group="turin"), TURIN, True),
        (InstanceType(Metadata("x"), general_group="generic"), {}, False),
    ],
)
def test_flavors(kind: InstanceType, labels: dict[str, str], *, covered: bool) -> None:
    """An accelerated type goes by its group, a general one by being none and by its group."""
    assert covers(kind, labels) is covered


def test_deployments_tell_instance_types() -> None:
    """Those of the artifact count, each once, in order."""
    found = [deployment("m", "b", "a"), deployment("m", "b"), deployment("other", "c")]
    assert derive(found, "m") == ("a", "b")


def test_every_form_expands_to_names_in_order() -> None:
    """By type, unknown names adding nothing; by selector; by what deployments say."""
    kinds = {"a100": ACCELERATED}

    def targets(placement: Placement, *derived: str) -> tuple[str, ...]:
        return expand(matcher(placement, kinds, derived), NODES)

    assert targets(Placement(("unknown", "a100"))) == ("gpu-1", "gpu-2")
    assert targets(Placement(("unknown",)), "a100") == ()
    assert targets(Placement(node_selector=Selector())) == ("cpu", "gpu-1", "gpu-2", "turin")
    assert targets(Placement(), "a100") == ("gpu-1", "gpu-2")
    assert targets(Placement()) == ()


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (Placement(("a",), Selector()), "sets both instanceTypes and nodeSelector"),
        (Placement((), Selector((Requirement("a", "Near"),))), "operators are"),
    ],
)
def test_what_means_nothing_is_said_and_means_no_node(placement: Placement, words: str) -> None:
    """Both kinds at once, and a selector that is none."""
    assert words in fault_of(placement)
    assert expand(matcher(placement, {}, ()), NODES) == ()


def test_what_means_something_has_no_fault() -> None:
    """Either kind alone, and neither."""
    for placement in (Placement(), Placement(("a",)), Placement((), Selector())):
        assert fault_of(placement) == ""
