"""`gpustack-delivery volume`: what it prints, and what it says when there is nothing to print."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpustack_delivery.__main__ import main
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS
from gpustack_delivery.worker import volume_command
from gpustack_delivery.worker.volume_command import find_mountable
from tests.unit.worker.world import ClusterKube

DIGEST = "sha256:" + "12" * 32
RESOLVED = {"type": "Resolved", "status": "True", "reason": "Resolved", "message": ""}
REFUSED = {"type": "Resolved", "status": "False", "reason": "AccessDenied", "message": "no right"}


class Closable(ClusterKube):
    """A cluster with one artifact."""

    closed = False

    def close(self) -> None:
        """Note the end."""
        self.closed = True


def cluster(condition: dict[str, str]) -> Closable:
    """Return a cluster whose artifact has a condition."""
    kube = Closable()
    resolved = {"manifestDigest": DIGEST, "resolvedTime": "2026-01-01T00:00:00Z"}
    source = {"huggingFace": {"repository": "acme/tiny", "secretRef": {"name": "hub"}}}
    body: dict[str, Any] = {
        "metadata": {"name": "tiny", "namespace": "team-a", "uid": "u-1"},
        "spec": {"source": source},
        "status": {"resolved": resolved, "conditions": [condition]},
    }
    kube.put(MODEL_ARTIFACTS, body)
    return kube


def test_prints_the_volume(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a list with one entry, ready to be pasted below `volumes`."""
    kube = cluster(RESOLVED)
    monkeypatch.setattr(volume_command, "connect", lambda _kubeconfig: kube)
    stored_uid = kube.find(MODEL_ARTIFACTS, "tiny", "team-a")
    assert main(["volume", "tiny", "-n", "team-a", "--name", "weights"]) == 0
    assert stored_uid is not None
    assert yaml.safe_load(capsys.readouterr().out) == [
        {
            "name": "weights",
            "csi": {
                "driver": "model.csi.gpustack.ai",
                "readOnly": True,
                "volumeAttributes": {
                    "artifact": "tiny",
                    "artifactUID": stored_uid["metadata"]["uid"],
                    "manifestDigest": DIGEST,
                },
                "nodePublishSecretRef": {"name": "hub"},
            },
        }
    ]
    assert kube.closed


def test_says_why_there_is_none() -> None:
    """An artifact that is not there or not resolved is named, with its condition."""
    kube = cluster(REFUSED)
    with pytest.raises(ConfigurationFault, match=r"AccessDenied: no right$"):
        find_mountable(kube, "team-a", "tiny")
    with pytest.raises(ConfigurationFault, match="no ModelArtifact other"):
        find_mountable(kube, "team-a", "other")


def test_a_name_that_is_none_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    """A path in place of a name reaches no API server."""
    assert main(["volume", "../secrets/hub"]) == 2
    assert "ARTIFACT" in capsys.readouterr().err
