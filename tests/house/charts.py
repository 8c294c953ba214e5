"""Our chart as objects: by the emulator's renderer, and by Helm's own engines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from emulator.chart import render
from tests.clients import helm
from tests.house.tree import ROOT

CHART: Final = ROOT / "chart"
RELEASE: Final = "gpustack-delivery"
NAMESPACE: Final = "gpustack-system"
HELMS: Final = tuple(
    pytest.param(major, marks=pytest.mark.needs(f"helm-{major}")) for major in ("3", "4")
)
"""Helm's major versions, each where it is here."""
VALUES: Final[dict[str, dict[str, Any]]] = {
    "as it comes": {},
    "the plugin alone": {"worker": {"enabled": False}},
    "the worker alone": {"modelManager": {"enabled": False}},
    "everything set": {
        "image": {"repository": "registry.example:5000/models", "tag": "1.2.3"},
        "imagePullSecrets": [{"name": "pull"}],
        "worker": {
            "replicas": 3,
            "webhookPort": 8443,
            "certificateSecret": "from-elsewhere",
            "env": [{"name": "A", "value": "b: {c}"}, {"name": "EMPTY", "value": ""}],
            "extraArgs": ["--flag", 'with "quotes" and: colon', ""],
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "hostNetwork": True,
            "priorityClassName": "",
        },
        "modelManager": {
            "kubeletDir": "/var/lib/k0s/kubelet",
            "directWrites": True,
            "securePort": 1,
            "maxUnavailable": 3,
            "env": [{"name": "HTTP_PROXY", "value": "http://proxy:3128"}],
            "extraArgs": ["--verbose"],
            "resources": {"limits": {"memory": "2Gi"}},
            "nodeSelector": {"gpu": "true"},
            "tolerations": [],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "",
            "networkPolicy": {
                "scrapers": [{"namespaceSelector": {"matchLabels": {"team": "metrics"}}}],
                "extraIngress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
            },
        },
    },
    "one replica": {"worker": {"replicas": 1}},
    "no public API": {"publicApi": {"enabled": False}},
    "no consumers": {"consumers": {"enabled": False}},
    "no peers": {"modelManager": {"port": 0}},
    "volumes completed": {"volumeWebhook": {"enabled": True}},
    "volumes completed here and there": {
        "volumeWebhook": {
            "enabled": True,
            "namespaceSelector": {
                "matchLabels": {"models": "yes"},
                "matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}],
            },
        }
    },
    "no policy": {"modelManager": {"networkPolicy": {"enabled": False}}},
}
"""Values that a chart is installed with, under what they mean."""
_LOADER: Final = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader


def ours(
    values: Mapping[str, Any], *, release: str = RELEASE, namespace: str = NAMESPACE
) -> dict[str, Any]:
    """Return the objects by our engine, under kind and name."""
    found = render(CHART, release=release, namespace=namespace, values=values)
    return {f"{item['kind']} {item['metadata']['name']}": item for item in found}


def helms(
    major: str, values: Mapping[str, Any], *, release: str = RELEASE, namespace: str = NAMESPACE
) -> dict[str, Any]:
    """Return the objects by the engine of a Helm.

    Raises:
        subprocess.CalledProcessError: Helm refused; what it said is in `stderr`.
    """
    command = [helm(major), "template", release, str(CHART), "-n", namespace, "--include-crds"]
    done = subprocess.run(  # noqa: S603 - helm and our own chart
        [*command, "-f", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=True,
    )
    objects = [item for item in yaml.load_all(done.stdout, _LOADER) if item]
    return {f"{item['kind']} {item['metadata']['name']}": item for item in objects}
