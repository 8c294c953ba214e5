"""prefetch#placement: which nodes a prefetch means, at admission and in delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming, node_of

NODES: Final = ("cpu-1", "gpu-1", "gpu-2")
GPU: Final = {
    "feature.gpustack.ai/acceleratable": "true",
    "acceleratable.feature.gpustack.ai/nvidia": "true",
}
CPU: Final = {"feature.gpustack.ai/acceleratable": "false"}
Worlds = Callable[..., World]


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker, two GPU nodes and one without, and a grant over all of them."""
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    for node in NODES:
        warming.label(node, GPU if node.startswith("gpu") else CPU)
    warming.store()
    warming.binding()
    return warming


@pytest.fixture
def artifact(warming: Warming) -> Artifact:
    """Give a resolved artifact."""
    return warming.world.artifact()


def targets(warming: Warming, count: int, name: str = "warm") -> list[str]:
    """Return the nodes that are delivered to, once there are so many."""
    found = [node_of(pod) for pod in warming.rendered(count, name)]
    status = warming.world.until(
        lambda: warming.status(name) if "desiredNodes" in warming.status(name) else None,
        "a status",
        within_seconds=30,
    )
    assert status["desiredNodes"] == len(found)
    return found


@pytest.mark.rule("MP-PLC-01")
def test_an_instance_type_means_the_nodes_with_its_flavor(
    warming: Warming, artifact: Artifact
) -> None:
    """The accelerated type means the GPU nodes; a name nobody knows adds none."""
    warming.instance_type("a100", acceleratable=True, acceleratorGroup="nvidia")
    warming.prefetch(artifact, placement={"instanceTypes": ["a100", "unknown"]})
    assert targets(warming, 2) == ["gpu-1", "gpu-2"]


@pytest.mark.rule("MP-PLC-01")
def test_a_general_instance_type_means_nodes_without_accelerator(
    warming: Warming, artifact: Artifact
) -> None:
    """The generic group means every such node, another group those that carry its label."""
    warming.instance_type("small", acceleratable=False, generalGroup="generic")
    warming.instance_type("turin", acceleratable=False, generalGroup="turin")
    warming.prefetch(artifact, placement={"instanceTypes": ["small"]})
    assert targets(warming, 1) == ["cpu-1"]
    warming.prefetch(artifact, "other", placement={"instanceTypes": ["turin"]})
    warming.wait("Progressing", "NoTargets", "other")
    warming.label("cpu-1", {"general.feature.gpustack.ai/turin": "true"})
    assert targets(warming, 1, "other") == ["cpu-1"]


@pytest.mark.rule("MP-PLC-02")
def test_a_node_selector_means_what_it_matches(warming: Warming, artifact: Artifact) -> None:
    """Labels and expressions select, also nodes that get the label later."""
    selector: dict[str, Any] = {
        "matchLabels": {"acceleratable.feature.gpustack.ai/nvidia": "true"},
        "matchExpressions": [{"key": "spare", "operator": "DoesNotExist"}],
    }
    warming.label("gpu-2", {"spare": "yes"})
    warming.prefetch(artifact, placement={"nodeSelector": selector})
    assert targets(warming, 1) == ["gpu-1"]
    warming.label("gpu-2", {"spare": None})
    assert targets(warming, 2) == ["gpu-1", "gpu-2"]


@pytest.mark.rule("MP-PLC-02", "MP-RES-09")
def test_a_node_that_leaves_the_selection_loses_its_pod(
    warming: Warming, artifact: Artifact
) -> None:
    """The target set follows the labels, and so do the Pods."""
    warming.prefetch(artifact)
    assert targets(warming, 3) == list(NODES)
    warming.change("ModelPrefetch", "warm", placement={"nodeSelector": {"matchLabels": CPU}})
    warming.world.until(
        lambda: [node_of(pod) for pod in warming.pods()] == ["cpu-1"],
        "only the target's Pod is left",
        within_seconds=60,
    )


@pytest.mark.rule("MP-PLC-03")
def test_without_placement_the_deployments_tell(warming: Warming, artifact: Artifact) -> None:
    """The InstanceTypes of the namespace's deployments of this artifact count, and no others."""
    other = warming.world.artifact("other", repository=warming.world.repository("acme/other"))
    warming.instance_type("a100", acceleratable=True, acceleratorGroup="nvidia")
    warming.instance_type("small", acceleratable=False, generalGroup="generic")
    warming.deployment("elsewhere", other, "small")
    warming.prefetch(artifact, placement=None)
    warming.wait("Progressing", "NoTargets")
    warming.deployment("serving", artifact, "a100")
    assert targets(warming, 2) == ["gpu-1", "gpu-2"]


@pytest.mark.rule("MP-PLC-04")
@pytest.mark.parametrize("updating", [False, True])
def test_both_kinds_are_refused(warming: Warming, artifact: Artifact, *, updating: bool) -> None:
    """InstanceTypes and a selector together are refused on creation and on update."""
    both = {"instanceTypes": ["a100"], "nodeSelector": {}}
    if updating:
        warming.prefetch(artifact)
        message = warming.refused(warming.change, "ModelPrefetch", "warm", placement=both)
    else:
        message = warming.refused(warming.prefetch, artifact, placement=both)
    assert "placement sets both instanceTypes and nodeSelector" in message


@pytest.mark.rule("MP-PLC-05")
def test_admission_and_delivery_mean_the_same_nodes(warming: Warming, artifact: Artifact) -> None:
    """A bar of exactly the delivered nodes is admitted, and one more node than that is refused."""
    warming.instance_type("a100", acceleratable=True, acceleratorGroup="nvidia")
    placement = {"instanceTypes": ["a100"]}
    message = warming.refused(warming.prefetch, artifact, placement=placement, minReady=3)
    assert "asks for more ready nodes than" in message
    warming.prefetch(artifact, placement=placement, minReady=2)
    assert targets(warming, 2) == ["gpu-1", "gpu-2"]
