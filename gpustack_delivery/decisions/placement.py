"""Which nodes a prefetch means. Admission and delivery both ask here, so they cannot disagree.

A placement names InstanceTypes, or selects nodes by label, or says nothing: then the InstanceTypes
count that the namespace's deployments run the artifact on. An InstanceType means the nodes that
carry one of its flavors, which the device manager writes on them as labels.

Rules: MP-PLC-01, MP-PLC-02, MP-PLC-03, MP-PLC-04, MP-PLC-05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from gpustack_delivery.vocabulary.consumers import InstanceType, ModelDeployment
from gpustack_delivery.vocabulary.prefetch import Placement

ACCELERATABLE: Final = "feature.gpustack.ai/acceleratable"
ACCELERATOR_PREFIX: Final = "acceleratable.feature.gpustack.ai/"
GENERAL_PREFIX: Final = "general.feature.gpustack.ai/"
GENERIC: Final = "generic"
BOTH_KINDS: Final = "placement sets both instanceTypes and nodeSelector"
_OS: Final = "kubernetes.io/os"
_ARCH: Final = "kubernetes.io/arch"

Labels: TypeAlias = Mapping[str, str]
Nodes: TypeAlias = Mapping[str, Labels]
"""The cluster's nodes by name, with their labels; those on their way out are left out."""


def covers(kind: InstanceType, labels: Labels) -> bool:
    """Say whether a node with these labels carries a flavor of an InstanceType."""
    if kind.acceleratable:
        wanted = {ACCELERATOR_PREFIX + kind.accelerator_group: "true"}
    else:
        wanted = {ACCELERATABLE: "false"}
        if kind.general_group and kind.general_group != GENERIC:
            wanted[GENERAL_PREFIX + kind.general_group] = "true"
    if kind.os:
        wanted[_OS] = kind.os
    if kind.arch:
        wanted[_ARCH] = kind.arch
    return all(labels.get(key) == value for key, value in wanted.items())


def derive(deployments: Iterable[ModelDeployment], artifact_name: str) -> tuple[str, ...]:
    """Return the InstanceTypes that a namespace's deployments run an artifact on, by name."""
    using = (found for found in deployments if found.names_artifact(artifact_name))
    return tuple(sorted({name for found in using for name in found.instance_types}))


def fault_of(placement: Placement) -> str:
    """Say why a placement means nothing, "" if it means something."""
    if placement.instance_types and placement.node_selector is not None:
        return f"{BOTH_KINDS}; keep one of them"
    if placement.node_selector is not None and not placement.node_selector.is_valid:
        return (
            "placement.nodeSelector holds an expression that is none: operators are In, NotIn, "
            "Exists and DoesNotExist, and only the first two take values"
        )
    return ""


def matcher(
    placement: Placement, kinds: Mapping[str, InstanceType], derived: Iterable[str]
) -> Callable[[Labels], bool]:
    """Return what says of a node's labels whether the placement means that node.

    Args:
        placement: what the prefetch says; a faulty one means no node.
        kinds: the cluster's InstanceTypes by name; a name that is not among them adds no node.
        derived: the InstanceTypes that count when the placement says nothing.
    """
    if fault_of(placement):
        return lambda _labels: False
    if placement.node_selector is not None:
        return placement.node_selector.matches
    named = [kinds[name] for name in placement.instance_types or derived if name in kinds]
    return lambda labels: any(covers(kind, labels) for kind in named)


def expand(means: Callable[[Labels], bool], nodes: Nodes) -> tuple[str, ...]:
    """Return the names of the nodes that a placement means, in order."""
    return tuple(sorted(name for name, labels in nodes.items() if means(labels)))
