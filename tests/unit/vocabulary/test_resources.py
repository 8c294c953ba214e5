"""Resources: the URL paths of the Kubernetes API."""

from __future__ import annotations

import pytest

from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, NODES, PODS, Resource


@pytest.mark.parametrize(
    ("resource", "parts", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, ("ns", "p", "status"), "/api/v1/namespaces/ns/pods/p/status"),
        (NODES, ("ignored", "n"), "/api/v1/nodes/n"),
        (
            MODEL_ARTIFACTS,
            ("a/b", "c?d"),
            "/apis/worker.gpustack.ai/v1alpha1/namespaces/a%2Fb/modelartifacts/c%3Fd",
        ),
    ],
)
def test_paths(resource: Resource, parts: tuple[str, ...], path: str) -> None:
    """Every part is escaped once; a namespace counts only where objects live in one."""
    assert resource.path(*parts) == path


def test_api_versions() -> None:
    """The core group has no name."""
    assert (PODS.api_version, MODEL_ARTIFACTS.api_version) == ("v1", "worker.gpustack.ai/v1alpha1")
