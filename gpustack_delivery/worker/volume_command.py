"""`gpustack-delivery volume ARTIFACT -n NAMESPACE`: the volume by which a Pod mounts an artifact.

It prints what stands in a Pod's `volumes`, to be pasted into a manifest of one's own. An artifact
that cannot be mounted now is said, with what its conditions say.

Rules: NS-MNT-01, NS-MNT-02, NS-REQ-02.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import yaml

from gpustack_delivery.adapters.kube import SERVICE_ACCOUNT, connect
from gpustack_delivery.decisions.addresses import object_name_fault
from gpustack_delivery.decisions.consuming import mounted
from gpustack_delivery.errors import ConfigurationFault, NotFound
from gpustack_delivery.ports import Kube
from gpustack_delivery.vocabulary.artifact import RESOLVED, ModelArtifact
from gpustack_delivery.vocabulary.conditions import find
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("artifact", metavar="ARTIFACT", help="the ModelArtifact's name")
    add("-n", "--namespace", default="default", help="its namespace (default: default)")
    add("--name", default="model", help="what to call the volume (default: model)")
    add(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="default: $KUBECONFIG, then ~/.kube/config, then the Pod's service account",
    )


def run(args: argparse.Namespace) -> int:
    """Print the volume as YAML."""
    for flag, value in (
        ("ARTIFACT", args.artifact),
        ("--namespace", args.namespace),
        ("--name", args.name),
    ):
        if fault := object_name_fault(value):
            raise ConfigurationFault(f"{flag} {fault}")
    kube = connect(args.kubeconfig or _usual_kubeconfig())
    try:
        artifact = find_mountable(kube, args.namespace, args.artifact)
    finally:
        kube.close()
    sys.stdout.write(yaml.safe_dump([mounted(artifact, args.name)], sort_keys=False))
    return 0


def find_mountable(kube: Kube, namespace: str, name: str) -> ModelArtifact:
    """Return an artifact that a Pod may mount.

    Raises:
        ConfigurationFault: there is none of that name, or it is not resolved.
        ApiFault: the API server does not answer, or does not allow it.
    """
    try:
        artifact = ModelArtifact.from_wire(kube.get(MODEL_ARTIFACTS, name, namespace))
    except NotFound:
        raise ConfigurationFault(
            f"there is no ModelArtifact {name} in the namespace {namespace}"
        ) from None
    if not artifact.status.is_resolved:
        condition = find(artifact.status.conditions, RESOLVED)
        parts = (condition.reason, condition.message) if condition else ("Resolving",)
        said = ": ".join(filter(None, parts))
        raise ConfigurationFault(f"the ModelArtifact {name} is not resolved: {said}")
    return artifact


def _usual_kubeconfig() -> str:
    """Return kubectl's usual file; none inside a Pod, or where there is none."""
    if named := os.environ.get("KUBECONFIG", ""):
        return named
    home = Path.home() / ".kube" / "config"
    return "" if SERVICE_ACCOUNT.exists() or not home.exists() else str(home)
