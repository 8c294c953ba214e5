"""ModelArtifacts on a small cluster: the whole way of each kind of source."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpustack_delivery.errors import Conflict, HubFault, Unreachable, Verdict
from gpustack_delivery.vocabulary import settings
from gpustack_delivery.vocabulary.artifact import FINALIZER
from gpustack_delivery.vocabulary.consumers import INSTANCES, MODEL_DEPLOYMENTS
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.resources import (
    CLAIMS,
    CONFIG_MAPS,
    EVENTS,
    MODEL_ARTIFACTS,
    NODE_MODEL_STORES,
    SECRETS,
    Json,
)
from gpustack_delivery.worker.artifacts import Artifacts
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.errands import Errands
from gpustack_delivery.worker.events import Events
from gpustack_delivery.worker.hubs import Hubs
from gpustack_delivery.worker.settings import Settings
from tests.unit.worker.world import (
    COMMIT,
    NAMESPACE,
    ClusterKube,
    FakeHub,
    SilentObserver,
    SteppedClock,
    idle,
)

DAY = 86400.0
HUB_SOURCE = {"huggingFace": {"repository": "org/model", "revision": "main"}}
PRIVATE = {"huggingFace": HUB_SOURCE["huggingFace"] | {"secretRef": {"name": "hf"}}}
DENIED = HubFault(Verdict.ACCESS_DENIED, "the hub answers HTTP 403")


class Run:
    """One worker's artifacts on one cluster with one hub."""

    def __init__(self, kube: ClusterKube, hub: FakeHub, clock: SteppedClock) -> None:
        self.kube, self.hub, self.clock = kube, hub, clock
        self._copies = Copies(kube, clock)
        events = Events(kube, clock)
        self._settings = Settings(kube, clock, NAMESPACE, {}, events)
        hubs = Hubs(kube, NAMESPACE, self._settings.values, hub.open)
        errands = Errands(kube, self._copies, hubs, events)
        self._artifacts = Artifacts(
            kube, clock, SilentObserver(), self._copies, errands, self._settings
        )

    def start(self) -> None:
        """Begin to work."""
        self._settings.start()
        self._copies.start()
        assert self._settings.wait_synced(20)
        assert self._copies.wait_synced(20)
        self._artifacts.start()
        self.rest()

    def stop(self) -> None:
        """End it."""
        self._settings.stop()
        self._copies.stop()
        self._artifacts.stop()

    def rest(self) -> None:
        """Wait until everything rests."""
        idle(self.kube, self.clock, threads=4)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything come to rest."""
        self.clock.advance(seconds)
        self.rest()

    def create(self, source: Json = HUB_SOURCE, **spec: Any) -> None:
        """Create the artifact and let it settle."""
        metadata = {"name": "model", "namespace": "team"}
        self.kube.put(MODEL_ARTIFACTS, {"metadata": metadata, "spec": {"source": source, **spec}})
        self.rest()

    def put_secret(self, token: str | None, name: str = "hf") -> None:
        """Create or replace the artifact's Secret."""
        data = {} if token is None else {"token": base64.b64encode(token.encode()).decode()}
        self.kube.put(SECRETS, {"metadata": {"name": name, "namespace": "team"}, "data": data})
        self.rest()

    @property
    def body(self) -> Json:
        """The artifact as stored."""
        body = self.kube.find(MODEL_ARTIFACTS, "model", "team")
        assert body is not None
        return body

    @property
    def resolved(self) -> Json:
        """What it resolved to, empty for nothing."""
        resolved: Json = self.body.get("status", {}).get("resolved", {})
        return resolved

    @property
    def said(self) -> str:
        """Both conditions in short."""
        conditions = self.body.get("status", {}).get("conditions", [])
        return " ".join(f"{item['status']}/{item['reason']}" for item in conditions)

    def statuses(self) -> list[str]:
        """Every status that was written, as the Resolved condition's reason."""
        return [write["status"]["conditions"][0]["reason"] for write in self.kube.writes]


HEALTHY = "True/Resolved False/Healthy"


@pytest.fixture
def run() -> Iterator[Run]:
    """Return a running controller on an empty cluster."""
    with started() as running:
        yield running


@contextmanager
def started(kube: ClusterKube | None = None, hub: FakeHub | None = None) -> Iterator[Run]:
    """Run the controller."""
    running = Run(kube or ClusterKube(), hub or FakeHub(), SteppedClock())
    running.start()
    try:
        yield running
    finally:
        running.stop()


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


def test_bad_way_to_the_hub_is_said(run: Run) -> None:
    """A bad Setting or a missing CA bundle is named; once mended the artifact resolves."""
    metadata = {"name": settings.SECRET_NAME, "namespace": NAMESPACE}

    def set_bundle(value: str) -> None:
        data = {settings.CA_BUNDLE.name: base64.b64encode(value.encode()).decode()}
        run.kube.put(SECRETS, {"metadata": metadata, "data": data})
        run.rest()

    set_bundle("Not A Name")
    run.create()
    assert run.said == "Unknown/Resolving True/SourceUnavailable"
    assert "model-artifact-ca-bundle" in run.body["status"]["conditions"][1]["message"]
    set_bundle("corp-ca")
    run.advance(61)
    assert "corp-ca does not exist" in run.body["status"]["conditions"][1]["message"]
    bundle = {"metadata": {"name": "corp-ca", "namespace": NAMESPACE}, "data": {}}
    run.kube.put(CONFIG_MAPS, bundle)
    run.advance(61)
    assert "has no ca.crt" in run.body["status"]["conditions"][1]["message"]
    run.kube.put(CONFIG_MAPS, bundle | {"data": {"ca.crt": "PEM"}})
    run.advance(61)
    assert run.said == HEALTHY
    assert run.hub.opened[-1][2] == "PEM"


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
