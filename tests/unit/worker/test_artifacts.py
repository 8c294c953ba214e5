"""ModelArtifacts of hubs: resolved, watched, revoked and restored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpustack_delivery.errors import HubFault, Unreachable, Verdict
from gpustack_delivery.vocabulary.artifact import FINALIZER
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.resources import (
    EVENTS,
    MODEL_ARTIFACTS,
    SECRETS,
    Json,
)
from tests.unit.worker.artifacts_run import DAY, DENIED, HEALTHY, HUB_SOURCE, PRIVATE, Run, started
from tests.unit.worker.fake_hub import COMMIT, FakeHub
from tests.unit.worker.world import (
    ClusterKube,
)


@pytest.fixture
def run() -> Iterator[Run]:
    """Return a running controller on an empty cluster."""
    with started() as running:
        yield running


def test_resolution(run: Run) -> None:
    """The finalizer first, then the announcement, then one resolution with everything in it."""
    run.create()
    assert run.body["metadata"]["finalizers"] == [FINALIZER]
    assert run.statuses() == ["Resolving", "Resolved"]
    assert run.said == HEALTHY
    manifest = Manifest.of(run.hub.entries)
    resolved = run.resolved
    assert resolved["manifestDigest"] == manifest.digest
    assert (resolved["revision"], resolved["digestSource"]) == (COMMIT, "Hub")
    assert (resolved["fileCount"], resolved["sizeBytes"]) == (2, 100)
    assert resolved["resolvedTime"] == resolved["lastValidatedTime"]
    assert run.hub.calls == ["resolve org/model@main", "list org/model@cccc"]
    (event,) = run.kube.all(EVENTS)
    assert (event["type"], event["reason"]) == ("Normal", "Resolved")


def test_nothing_more_is_asked_or_written(run: Run) -> None:
    """A settled artifact rests until its interval is over, and a check moves one time alone."""
    run.create()
    writes, calls = len(run.kube.writes), len(run.hub.calls)
    for _ in range(8):
        run.advance(DAY / 8 - 10)
    assert (len(run.kube.writes), len(run.hub.calls)) == (writes, calls)
    before = run.body["status"]
    run.advance(100)
    assert run.hub.calls[calls:] == ["probe org/model@cccc"]
    after = run.body["status"]
    assert after["resolved"].pop("lastValidatedTime") > before["resolved"].pop("lastValidatedTime")
    assert after == before


def test_patterns_decide_what_is_kept(run: Run) -> None:
    """Only the kept files are in the digest; a filter that keeps nothing is no manifest."""
    run.create(allowPatterns=["*.json"])
    assert run.resolved["fileCount"] == 1


def test_empty_filter(run: Run) -> None:
    """A filter that keeps nothing says so, and so does a repository without files."""
    run.create(allowPatterns=["*.gguf"])
    assert run.said == "False/EmptyManifest True/EmptyManifest"
    assert "patterns" in run.body["status"]["conditions"][0]["message"]
    run.hub.entries.clear()
    run.advance(601)
    assert "no file" in run.body["status"]["conditions"][0]["message"]


def test_hostile_path_refuses_the_resolution(run: Run) -> None:
    """A path that leaves the tree is an InvalidManifest, whatever else is listed."""
    run.hub.entries += FakeHub({"../x": 1}).entries
    run.create()
    assert run.said == "False/InvalidManifest True/InvalidManifest"


def test_refusal_is_confirmed_before_it_revokes(run: Run) -> None:
    """Degraded at first, unresolved a minute later, resolved again by itself, with Events."""
    run.create()
    digest = run.resolved["manifestDigest"]
    run.hub.probe_fault = DENIED
    run.advance(DAY)
    assert run.said == "True/Resolved True/AccessDenied"
    run.advance(61)
    assert run.said == "False/AccessDenied True/AccessDenied"
    run.hub.probe_fault = None
    run.advance(601)
    assert run.said == HEALTHY
    assert run.resolved["manifestDigest"] == digest
    reasons = [event["reason"] for event in run.kube.all(EVENTS)]
    assert sorted(reasons) == ["AccessDenied", "Resolved"]


def test_outage_never_revokes(run: Run) -> None:
    """Hours without a hub only degrade, with one try a minute."""
    run.create()
    run.hub.probe_fault = HubFault(Verdict.SOURCE_UNAVAILABLE, "HTTP 503")
    run.advance(DAY)
    calls = len(run.hub.calls)
    for _ in range(10):
        run.advance(61)
    assert len(run.hub.calls) == calls + 10
    assert run.said == "True/Resolved True/SourceUnavailable"


def test_secret_rules(run: Run) -> None:
    """A missing Secret, one without a token, a good one, a changed one, and its end."""
    run.create(PRIVATE)
    assert run.said == "False/SecretNotFound True/SecretNotFound"
    run.put_secret(None)
    assert run.said == "False/SecretNotFound True/SecretNotFound"
    assert run.hub.calls == []
    run.put_secret(" hf_secret\n")
    assert run.said == HEALTHY
    assert {token.reveal() for token in run.hub.tokens if token} == {"hf_secret"}
    calls = len(run.hub.calls)
    run.put_secret("hf_other")
    assert run.hub.calls[calls:] == ["probe org/model@cccc", "accepts"]
    run.kube.remove(SECRETS, "hf", "team")
    run.rest()
    assert run.said == "False/SecretNotFound True/SecretNotFound"
    run.put_secret("hf_third")
    assert run.said == HEALTHY
    assert "hf_" not in str(run.kube.all(EVENTS)) + str(run.kube.all(MODEL_ARTIFACTS))


def test_unreadable_secret_changes_nothing_but_degraded(run: Run) -> None:
    """An API that fails is an outage, not a missing Secret."""
    run.put_secret("hf_secret")
    run.create(PRIVATE)
    run.advance(DAY - 1)
    get = run.kube.get

    def failing(resource: Any, name: str, namespace: str = "") -> Json:
        if resource is SECRETS:
            raise Unreachable("etcd is away", code=503)
        return get(resource, name, namespace)

    run.kube.get = failing  # type: ignore[method-assign]
    run.advance(2)
    assert run.said == "True/Resolved True/SourceUnavailable"
    run.kube.get = get  # type: ignore[method-assign]
    run.advance(61)
    assert run.said == HEALTHY


def test_token_the_hub_rejects_is_told(run: Run) -> None:
    """A public repository resolves whatever the token; the bad token is an Event of its own."""
    run.hub.accepted = False
    run.put_secret("hf_expired")
    run.create(PRIVATE)
    assert run.said == HEALTHY
    (event,) = (event for event in run.kube.all(EVENTS) if event["reason"] == "InvalidToken")
    assert event["type"] == "Warning"
    assert "hf_expired" not in event["message"]


def test_anchor(run: Run) -> None:
    """An unreachable hub leaves the expected digest as the resolution, and nothing else."""
    digest = Manifest.of(run.hub.entries).digest
    run.hub.down()
    run.create(expectedDigest=digest)
    assert run.said == "False/SourceUnavailable True/SourceUnavailable"
    run.advance(61)
    assert run.said == HEALTHY
    assert run.resolved == {
        "manifestDigest": digest,
        "digestSource": "Expected",
        "resolvedTime": run.resolved["resolvedTime"],
    }
    calls = len(run.hub.calls)
    run.advance(DAY + 1)
    assert len(run.hub.calls) == calls


def test_anchor_contradicted(run: Run) -> None:
    """Other files than expected are a DigestMismatch with both digests."""
    expected = "sha256:" + "0" * 64
    run.create(expectedDigest=expected)
    assert run.said == "False/DigestMismatch True/DigestMismatch"
    message = run.body["status"]["conditions"][0]["message"]
    assert expected in message
    assert Manifest.of(run.hub.entries).digest in message


def test_anchored_by_the_hub_is_listed_again(run: Run) -> None:
    """With an expected digest the check lists the resolved commit, not the branch."""
    run.create(expectedDigest=Manifest.of(run.hub.entries).digest)
    calls = len(run.hub.calls)
    run.advance(DAY + 1)
    assert run.hub.calls[calls:] == ["list org/model@cccc"]


def test_restart_of_the_worker() -> None:
    """A new leader believes what is stored and does not ask about everything at once."""
    kube, hub = ClusterKube(), FakeHub()
    with started(kube, hub) as run:
        run.create()
        before, calls = run.body, len(hub.calls)
    with started(kube, hub) as run:
        assert run.body == before
        assert len(hub.calls) == calls


def test_unknown_status_members_survive(run: Run) -> None:
    """A member of a newer schema is carried along by every write."""
    metadata = {"name": "model", "namespace": "team"}
    body = {"metadata": metadata, "spec": {"source": HUB_SOURCE}, "status": {"newer": {"x": 1}}}
    run.kube.put(MODEL_ARTIFACTS, body)
    run.rest()
    assert run.said == HEALTHY
    assert run.body["status"]["newer"] == {"x": 1}
