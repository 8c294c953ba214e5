"""Grants and prefetches at the webhooks: what is looked up, where, and what comes of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpustack_delivery.decisions.admission import Denial
from gpustack_delivery.errors import Unreachable
from gpustack_delivery.ports import Page, Selection
from gpustack_delivery.vocabulary.consumers import INSTANCE_TYPES, MODEL_DEPLOYMENTS
from gpustack_delivery.vocabulary.resources import (
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODES,
    Json,
)
from gpustack_delivery.worker.granting import Granting
from gpustack_delivery.worker.inquiries import Inquiries, Inquiry
from gpustack_delivery.worker.reviews import REVIEW_VERSION, Review
from tests.unit.decisions.warm import OTHER, SIZE
from tests.unit.fakes import eventually
from tests.unit.worker.warming_run import add, add_artifact, add_prefetch, cluster
from tests.unit.worker.world import ClusterKube, SteppedClock

GRANT: Json = {"storeRefs": [{"name": "pool"}], "quota": {"bytes": 3 * SIZE}}


@pytest.fixture
def kube() -> ClusterKube:
    """Return two GPU nodes, and a grant of three copies over the pool."""
    kube = cluster("node-a", "node-b")
    add(kube, MODEL_STORE_BINDINGS, "grant", GRANT)
    return kube


def wish(**spec: Any) -> Json:
    """Return a prefetch's spec: the artifact on every node."""
    return {
        "artifactRef": {"name": "model"},
        "bindingRef": {"name": "grant"},
        "placement": {"nodeSelector": {}},
        **spec,
    }


def review(spec: Json, *, old: Json | None = None, name: str = "warm", **facts: Any) -> Review:
    """Return a review of an object's spec, of one to be created without an old one."""
    wire = {"namespace": "team-a", "name": name, "object": {"spec": spec}, **facts}
    wire |= {"oldObject": {"spec": old}} if old else {}
    return Review.from_wire({"apiVersion": REVIEW_VERSION, "request": wire})


def inquiry(kube: ClusterKube, clock: SteppedClock | None = None) -> Inquiry:
    """Return an inquiry of eight seconds."""
    return Inquiries(kube, clock or SteppedClock()).open(8)


def judged(kube: ClusterKube, spec: Json, *, old: Json | None = None) -> str:
    """Return the field that is refused first, "" for none."""
    granting = Granting(kube, SteppedClock())
    return field(granting.judge_prefetch(review(spec, old=old), inquiry(kube)))


def field(denials: tuple[Denial, ...]) -> str:
    """Return the first field."""
    return denials[0].field if denials else ""


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, ""),
        ({"placement": {"nodeSelector": {}, "instanceTypes": ["a"]}}, "spec.placement"),
        ({"artifactRef": {"name": "none"}}, "spec.artifactRef.name"),
        ({"bindingRef": {"name": "none"}}, "spec.bindingRef.name"),
        ({"retention": {"pinned": True}}, "spec.retention.pinned"),
        ({"retention": {"ttlAfterLastUse": "9" * 30 + "h"}}, "spec.retention.ttlAfterLastUse"),
        ({"minReady": 3}, "spec.minReady"),
    ],
)
def test_the_first_fault_is_refused(
    kube: ClusterKube, change: dict[str, Any], refused: str
) -> None:
    """Each check with what it needs from the cluster."""
    assert judged(kube, wish(**change)) == refused


def test_targets_must_lie_in_a_granted_store_that_exists(kube: ClusterKube) -> None:
    """A store that has gone grants nothing any longer."""
    kube.remove(MODEL_STORES, "pool")
    assert judged(kube, wish()) == "spec.placement"


def test_the_namespaces_other_prefetches_count(kube: ClusterKube) -> None:
    """By what they would warm now, or by what they have; those on their way out do not."""
    add_artifact(kube, "other", digest=OTHER)
    add_prefetch(kube, "second", artifactRef={"name": "other"})
    add_prefetch(kube, "warm", artifactRef={"name": "other"})
    assert judged(kube, wish()) == "spec"
    add_prefetch(kube, "second", artifactRef={"name": "other"}, placement={"instanceTypes": ["x"]})
    assert judged(kube, wish()) == "", "it means no node"
    body = kube.find(MODEL_PREFETCHES, "second", "team-a")
    assert body is not None
    kube.put(MODEL_PREFETCHES, body | {"status": {"desiredNodes": 2}})
    assert judged(kube, wish()) == "spec", "it has not let go yet"
    body["metadata"]["deletionTimestamp"] = "2026-09-25T06:00:00Z"
    kube.put(MODEL_PREFETCHES, body | {"status": {"desiredNodes": 2}})
    assert judged(kube, wish()) == ""


def test_what_nobody_can_carry_out_weighs_nothing(kube: ClusterKube) -> None:
    """A broken prefetch, or one of an artifact that is missing, does not lock its namespace."""
    add_prefetch(kube, "broken", retention={"ttlAfterLastUse": "9" * 30 + "h"})
    add_prefetch(kube, "orphan", artifactRef={"name": "gone"})
    assert judged(kube, wish()) == ""


def test_an_unchanged_spec_is_not_judged_again(kube: ClusterKube) -> None:
    """So that an old prefetch can still be labelled, and let go."""
    spec = wish(artifactRef={"name": "gone"})
    assert judged(kube, spec, old=spec) == ""
    assert kube.calls == []


def test_derived_targets_come_from_deployments_and_kinds(kube: ClusterKube) -> None:
    """Read when they are needed; a cluster without these kinds has no such targets."""
    derived = wish(placement={}, minReady=1)
    kube.missing = {"modeldeployments", "instancetypes"}
    assert judged(kube, derived) == "spec.minReady"
    kube.missing = set()
    kind = {"generalGroup": "generic"}
    add(kube, INSTANCE_TYPES, "small", kind, namespace="")
    serving = {"model": {"artifactRef": {"name": "model"}}, "roles": [{"instanceType": "small"}]}
    add(kube, MODEL_DEPLOYMENTS, "serving", serving)
    assert judged(kube, derived) == "spec.minReady"
    labels = {"feature.gpustack.ai/acceleratable": "false"}
    kube.put(NODES, {"metadata": {"name": "node-c", "labels": labels}})
    assert judged(kube, derived) == ""


def test_nodes_come_from_the_copy_once_there_is_one(kube: ClusterKube) -> None:
    """Before, they are listed for each review."""
    granting = Granting(kube, SteppedClock())
    assert granting.judge_prefetch(review(wish()), inquiry(kube)) == ()
    assert kube.count("list nodes") == 1
    granting.start()
    try:
        eventually(lambda: kube.count("watch nodes"))
        assert granting.judge_prefetch(review(wish()), inquiry(kube)) == ()
        assert kube.count("list nodes") == 2, "the copy's own list, and no other"
    finally:
        granting.stop()


def test_a_failed_look_up_is_no_verdict(kube: ClusterKube) -> None:
    """It is an error of ours, for the webhook to answer as one."""
    kube.trouble.append(Unreachable("no answer", code=0))
    with pytest.raises(Unreachable):
        judged(kube, wish())


def test_bindings(kube: ClusterKube) -> None:
    """Shape before existence; a change is judged against what was, an unchanged spec is not."""
    granting = Granting(kube, SteppedClock())
    assert granting.judge_new_binding(review(GRANT), inquiry(kube)) == ()
    nowhere = GRANT | {"storeRefs": [{"name": "nowhere"}]}
    assert (
        field(granting.judge_new_binding(review(nowhere), inquiry(kube)))
        == "spec.storeRefs[0].name"
    )
    assert (
        field(granting.judge_new_binding(review(nowhere | {"quota": {}}), inquiry(kube)))
        == "spec.quota.bytes"
    )
    assert granting.judge_binding_update(GRANT, GRANT) == ()
    smaller = GRANT | {"quota": {"bytes": SIZE}}
    assert field(granting.judge_binding_update(GRANT, smaller)) == "spec.quota.bytes"


class Author(threading.Thread):
    """Somebody who creates a prefetch: judged, and stored if it is let pass."""

    def __init__(self, kube: ClusterKube, granting: Granting, asking: Inquiry, name: str) -> None:
        super().__init__(daemon=True)
        self._kube = kube
        self._granting = granting
        self._inquiry = asking
        self._name = name
        self.refused: str | None = None

    def run(self) -> None:
        """Create it."""
        made = review(wish(artifactRef={"name": self._name}), name=self._name)
        try:
            self.refused = field(self._granting.judge_prefetch(made, self._inquiry))
        except Unreachable as fault:
            self.refused = str(fault)
        if not self.refused:
            add_prefetch(self._kube, self._name, artifactRef={"name": self._name})


def paused(kube: ClusterKube, clock: SteppedClock, authors: Sequence[Author]) -> bool:
    """Say whether all who are not done wait for another's prefetch, and nothing is looked up."""

    def looking() -> bool:
        return any(thread.name == "look-up" for thread in threading.enumerate())

    calls, alive = len(kube.calls), sum(author.is_alive() for author in authors)
    rest = not looking() and clock.waiting == alive and not looking()
    return rest and len(kube.calls) == calls


@pytest.fixture
def clock() -> SteppedClock:
    """Return time that stands still."""
    return SteppedClock()


def test_prefetches_that_come_at_once_do_not_pass_the_budget_together(
    kube: ClusterKube, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six that each fit alone one is stored, and the others are refused by what it takes."""
    listed, together, read = itertools.count(), threading.Barrier(6), kube.list_page

    def list_page(selection: Selection, continue_token: str = "") -> Page:
        page = read(selection, continue_token)
        if selection.resource is MODEL_PREFETCHES and next(listed) < 6:
            together.wait(20)  # nobody is judged before everybody has seen that nothing is stored
        return page

    monkeypatch.setattr(kube, "list_page", list_page)
    granting = Granting(kube, clock)
    names = [f"model-{number}" for number in range(6)]
    for number, name in enumerate(names):
        add_artifact(kube, name, digest=f"sha256:{number:064}")
    authors = [Author(kube, granting, inquiry(kube, clock), name) for name in names]
    for author in authors:
        author.start()

    while any(author.is_alive() for author in authors):
        eventually(lambda: paused(kube, clock, authors), "their wait")
        clock.advance(0.5)
    assert sorted(author.refused or "" for author in authors) == ["", *["spec"] * 5]
    assert len(kube.all(MODEL_PREFETCHES)) == 1


@pytest.mark.parametrize("stored", [True, False])
def test_one_that_was_let_pass_is_waited_for(
    kube: ClusterKube, clock: SteppedClock, *, stored: bool
) -> None:
    """Until it is stored, and counts, or until it is forgotten, as one that nobody stored."""
    granting = Granting(kube, clock)
    add_artifact(kube, "other", digest=OTHER)
    assert field(granting.judge_prefetch(review(wish()), inquiry(kube))) == ""
    author = Author(kube, granting, inquiry(kube, clock), "other")
    author.start()
    eventually(lambda: paused(kube, clock, [author]), "its wait")
    clock.advance(4)
    eventually(lambda: paused(kube, clock, [author]), "its wait after another look")
    assert author.is_alive()
    if stored:
        add_prefetch(kube)
    clock.advance(1)
    author.join(20)
    assert author.refused == ("spec" if stored else "")


def test_news_of_a_stored_prefetch_end_the_wait(kube: ClusterKube, clock: SteppedClock) -> None:
    """No time passes: what the leader's copy hears is looked at, at once."""
    granting, inquiries = Granting(kube, clock), Inquiries(kube, clock)
    add_artifact(kube, "other", digest=OTHER)
    assert granting.judge_prefetch(review(wish()), inquiries.open(8)) == ()
    author = Author(kube, granting, inquiries.open(8), "other")
    author.start()
    eventually(lambda: paused(kube, clock, [author]), "its wait")
    add_prefetch(kube)
    inquiries.stir()
    author.join(20)
    assert author.refused == "spec"


def test_nobody_waits_for_longer_than_the_caller(kube: ClusterKube, clock: SteppedClock) -> None:
    """Near the end of its time a review that still hangs on another is one to be sent again."""
    granting = Granting(kube, clock)
    add_artifact(kube, "other", digest=OTHER)
    assert granting.judge_prefetch(review(wish()), inquiry(kube)) == ()
    author = Author(kube, granting, Inquiries(kube, clock).open(0.25), "other")
    author.start()
    eventually(lambda: paused(kube, clock, [author]), "its wait")
    clock.advance(0.25)
    author.join(20)
    assert author.refused == "other prefetches of this namespace are being stored"


def test_what_is_let_pass_is_forgotten_when_it_is_seen_and_goes(
    kube: ClusterKube, clock: SteppedClock
) -> None:
    """A stored one counts as long as it is stored; another namespace's, and a dry run, never."""
    granting = Granting(kube, clock)
    add_artifact(kube, "other", digest=OTHER)
    second = review(wish(artifactRef={"name": "other"}), name="second")
    assert granting.judge_prefetch(review(wish(), dryRun=True), inquiry(kube)) == ()
    assert granting.judge_prefetch(replace(second, dry_run=True), inquiry(kube)) == ()
    assert granting.judge_prefetch(review(wish()), inquiry(kube)) == ()
    add_prefetch(kube)
    assert field(granting.judge_prefetch(second, inquiry(kube))) == "spec"
    kube.remove(MODEL_PREFETCHES, "warm", "team-a")
    assert granting.judge_prefetch(second, inquiry(kube)) == ()
