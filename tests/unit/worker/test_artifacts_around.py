"""ModelArtifacts around the hub: other sources, Settings, counts and finalizers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from gpustack_delivery.errors import Conflict
from gpustack_delivery.vocabulary import settings
from gpustack_delivery.vocabulary.artifact import FINALIZER
from gpustack_delivery.vocabulary.consumers import INSTANCES, MODEL_DEPLOYMENTS
from gpustack_delivery.vocabulary.resources import (
    CLAIMS,
    CONFIG_MAPS,
    MODEL_ARTIFACTS,
    NODE_MODEL_STORES,
    SECRETS,
    Json,
)
from tests.unit.worker.artifacts_run import HEALTHY, HUB_SOURCE, Run, started
from tests.unit.worker.world import (
    NAMESPACE,
    ClusterKube,
)


@pytest.fixture
def run() -> Iterator[Run]:
    """Return a running controller on an empty cluster."""
    with started() as running:
        yield running


def test_claims(run: Run) -> None:
    """A claim resolves when it is there and is revoked when it goes, without any timer."""
    run.create({"persistentVolumeClaim": {"claimName": "weights"}})
    assert run.said == "False/ClaimNotFound True/ClaimNotFound"
    run.kube.put(CLAIMS, {"metadata": {"name": "weights", "namespace": "team"}})
    run.rest()
    assert run.said == HEALTHY
    assert set(run.resolved) == {"resolvedTime"}
    run.kube.remove(CLAIMS, "weights", "team")
    run.rest()
    assert run.said == "False/ClaimNotFound True/ClaimNotFound"


def test_images_and_unknown_sources(run: Run) -> None:
    """An image is its own proof; a source of a newer version is reported."""
    run.create({"image": {"reference": "x@sha256:" + "0" * 64}})
    assert run.said == HEALTHY
    run.kube.remove(MODEL_ARTIFACTS, "model", "team")
    run.create({"ftp": {}})
    assert run.said == "False/UnsupportedSource True/UnsupportedSource"
    assert run.hub.calls == []


def set_bundle(kube: ClusterKube, value: str) -> None:
    """Store the CA bundle's Setting."""
    data = {settings.CA_BUNDLE.name: base64.b64encode(value.encode()).decode()}
    metadata = {"name": settings.SECRET_NAME, "namespace": NAMESPACE}
    kube.put(SECRETS, {"metadata": metadata, "data": data})


def test_bad_way_to_the_hub_is_said(run: Run) -> None:
    """A missing CA bundle, or one without its key, is named; once mended the artifact resolves."""
    set_bundle(run.kube, "corp-ca")
    run.rest()
    run.create()
    assert run.said == "Unknown/Resolving True/SourceUnavailable"
    assert "corp-ca does not exist" in run.body["status"]["conditions"][1]["message"]
    bundle = {"metadata": {"name": "corp-ca", "namespace": NAMESPACE}, "data": {}}
    run.kube.put(CONFIG_MAPS, bundle)
    run.advance(61)
    assert "has no ca.crt" in run.body["status"]["conditions"][1]["message"]
    run.kube.put(CONFIG_MAPS, bundle | {"data": {"ca.crt": "PEM"}})
    run.advance(61)
    assert run.said == HEALTHY
    assert run.hub.opened[-1][2] == "PEM"


def test_bad_setting_leaves_the_last_valid_one_in_force(run: Run) -> None:
    """A value that is refused changes nothing for the artifacts that come after it."""
    set_bundle(run.kube, "Not A Name")
    run.create()
    assert run.said == HEALTHY
    assert run.hub.opened[-1][2] == ""


def test_bad_setting_from_the_start_is_named() -> None:
    """Without a last valid value the artifact says which Setting keeps it from its hub."""
    kube = ClusterKube()
    set_bundle(kube, "Not A Name")
    with started(kube) as run:
        run.create()
        assert run.said == "Unknown/Resolving True/SourceUnavailable"
        message = run.body["status"]["conditions"][1]["message"]
        assert "model-artifact-ca-bundle: must be an object's name" in message
        assert run.hub.calls == []


def test_shorter_interval_holds_at_once(run: Run) -> None:
    """A changed revalidation interval counts from the last check on."""
    run.create()
    data = {settings.REVALIDATE_INTERVAL.name: base64.b64encode(b"5m").decode()}
    metadata = {"name": settings.SECRET_NAME, "namespace": NAMESPACE}
    run.kube.put(SECRETS, {"metadata": metadata, "data": data})
    run.rest()
    calls = len(run.hub.calls)
    run.advance(301)
    assert run.hub.calls[calls:] == ["probe org/model@cccc"]


def test_a_lost_write_asks_again(run: Run) -> None:
    """A verdict that could not be stored is not remembered as if it had been."""
    update = run.kube.update
    refused: list[Json] = []

    def conflicting(resource: Any, body: Json, *, subresource: str = "") -> Json:
        if not refused and "resolved" in body.get("status", {}):
            refused.append(body)
            raise Conflict("moved on", code=409)
        return update(resource, body, subresource=subresource)

    run.kube.update = conflicting  # type: ignore[method-assign]
    run.create()
    run.advance(2)
    assert refused
    assert run.said == HEALTHY
    assert run.hub.calls.count("resolve org/model@main") == 2


def put_report(run: Run, node: str, *entries: Json) -> None:
    """Store a node's report."""
    spec: Json = {"watermarks": {}, "download": {}, "hub": {}}
    status = {"models": list(entries)}
    run.kube.put(NODE_MODEL_STORES, {"metadata": {"name": node}, "spec": spec, "status": status})
    run.rest()


def test_nodes_are_counted_at_most_every_thirty_seconds(run: Run) -> None:
    """Counts follow the nodes' reports, in steps, and never faster than the window."""
    run.create()
    digest = run.resolved["manifestDigest"]
    entry = {"digest": digest, "state": "Downloading", "sizeBytes": 100, "downloadedBytes": 12}
    put_report(run, "a", entry)
    assert run.body["status"]["nodes"] == {"downloading": 1, "downloadingPercent": 10}
    writes = len(run.kube.writes)
    put_report(run, "a", entry | {"downloadedBytes": 50})
    put_report(run, "b", {"digest": digest, "state": "Ready"}, {"digest": "x", "state": "Failed"})
    assert len(run.kube.writes) == writes
    run.advance(31)
    assert run.body["status"]["nodes"] == {
        "ready": 1,
        "downloading": 1,
        "downloadingPercent": 50,
    }
    assert len(run.kube.writes) == writes + 1
    put_report(run, "a")
    put_report(run, "b")
    run.advance(31)
    assert "nodes" not in run.body["status"]


def referrer(kind: str) -> Json:
    """Return an object that names the artifact."""
    named = {"artifactRef": {"name": "model"}}
    spec = {"model": named} if kind == "d" else {"additionalVolumes": [{"model": named}]}
    return {"metadata": {"name": kind, "namespace": "team"}, "spec": spec}


def test_a_named_artifact_is_held(run: Run) -> None:
    """A deleted artifact stays until neither a deployment nor an instance names it."""
    run.create()
    run.kube.put(MODEL_DEPLOYMENTS, referrer("d"))
    run.kube.put(INSTANCES, referrer("i"))
    run.kube.delete(MODEL_ARTIFACTS, "model", "team")
    run.rest()
    assert run.body["metadata"]["deletionTimestamp"]
    run.kube.remove(MODEL_DEPLOYMENTS, "d", "team")
    run.advance(11)
    assert run.body["metadata"]["finalizers"] == [FINALIZER]
    run.kube.remove(INSTANCES, "i", "team")
    run.advance(11)
    assert run.kube.find(MODEL_ARTIFACTS, "model", "team") is None


def test_other_finalizers_are_kept(run: Run) -> None:
    """Only our own finalizer is ours to add and to take."""
    metadata = {"name": "model", "namespace": "team", "finalizers": ["other/one"]}
    run.kube.put(MODEL_ARTIFACTS, {"metadata": metadata, "spec": {"source": HUB_SOURCE}})
    run.rest()
    assert run.body["metadata"]["finalizers"] == ["other/one", FINALIZER]
    run.kube.delete(MODEL_ARTIFACTS, "model", "team")
    run.rest()
    assert run.body["metadata"]["finalizers"] == ["other/one"]


def test_a_cluster_without_consumers(run: Run) -> None:
    """Where the consumers' kinds do not exist nobody names anything."""
    run.kube.missing = {MODEL_DEPLOYMENTS.plural, INSTANCES.plural}
    run.create()
    run.kube.delete(MODEL_ARTIFACTS, "model", "team")
    run.rest()
    assert run.kube.find(MODEL_ARTIFACTS, "model", "team") is None
