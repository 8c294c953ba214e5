"""prefetch#status-and-views: what a prefetch says of its nodes, from their own reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests import oracle
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming, node_of

NODES: Final = ("node-a", "node-b", "node-c")
Worlds = Callable[..., World]


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker, three registered nodes whose reports the test writes, and a grant."""
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    for node in NODES:
        warming.register(node)
    warming.store()
    warming.binding(allowPinned=True)
    return warming


@pytest.fixture
def artifact(warming: Warming) -> Artifact:
    """Give a resolved artifact."""
    return warming.world.artifact()


def counts(warming: Warming, desired: int, ready: int, downloading: int) -> None:
    """Wait until the status counts so many nodes."""
    wanted = {"desiredNodes": desired, "readyNodes": ready, "downloadingNodes": downloading}

    def asked() -> bool:
        status = warming.status()
        return {key: status.get(key, 0) for key in wanted} == wanted

    warming.world.until(asked, f"counts {wanted}", within_seconds=60)


def failed(artifact: Artifact) -> dict[str, Any]:
    """Return the entry of a download that failed."""
    return {
        "digest": artifact.digest,
        "state": "Failed",
        "reason": "DigestMismatch",
        "message": "a file differs from what the hub listed",
    }


@pytest.mark.rule("MP-STA-01")
def test_the_counts_follow_the_nodes_reports(warming: Warming, artifact: Artifact) -> None:
    """No entry and Downloading count as downloading, Ready as ready, Failed as neither."""
    warming.prefetch(artifact)
    counts(warming, 3, 0, 3)
    warming.report("node-a", warming.held(artifact))
    warming.report("node-b", warming.held(artifact, "Downloading", downloadedBytes=1))
    counts(warming, 3, 1, 2)
    warming.report("node-b", failed(artifact))
    counts(warming, 3, 1, 1)
    warming.report("node-a")
    counts(warming, 3, 0, 2)


@pytest.mark.rule("MP-STA-02")
@pytest.mark.parametrize(("min_ready", "needed"), [(0, 3), (2, 2), (3, 3)])
def test_available_when_enough_nodes_are_ready(
    warming: Warming, artifact: Artifact, min_ready: int, needed: int
) -> None:
    """The bar is minReady, and all targets for 0."""
    warming.prefetch(artifact, minReady=min_ready)
    for ready, node in enumerate(NODES[:needed], 1):
        assert warming.wait("Available", "NotEnoughNodes")["status"] == "False"
        warming.report(node, warming.held(artifact))
        counts(warming, 3, ready, 3 - ready)
    assert warming.wait("Available", "MinReadyReached")["status"] == "True"
    warming.report("node-a")
    warming.wait("Available", "NotEnoughNodes")


@pytest.mark.rule("MP-STA-03")
def test_progressing_until_every_target_is_delivered(warming: Warming, artifact: Artifact) -> None:
    """It is True while a target waits, whatever the bar, and False when none does."""
    warming.prefetch(artifact, minReady=1)
    assert warming.wait("Progressing", "Delivering")["status"] == "True"
    for node in NODES[:2]:
        warming.report(node, warming.held(artifact))
    warming.wait("Available", "MinReadyReached")
    assert warming.condition("Progressing")["status"] == "True"
    warming.report("node-c", warming.held(artifact))
    assert warming.wait("Progressing", "Delivered")["status"] == "False"


@pytest.mark.rule("MP-STA-03")
def test_degraded_names_the_failure(warming: Warming, artifact: Artifact) -> None:
    """A failed node degrades the prefetch also when enough others are ready."""
    warming.prefetch(artifact, minReady=2)
    assert warming.wait("Degraded", "NoFailures")["status"] == "False"
    for node in NODES[:2]:
        warming.report(node, warming.held(artifact))
    warming.report("node-c", failed(artifact))
    found = warming.wait("Degraded", "NodeFailed")
    assert found["status"] == "True"
    assert "DigestMismatch" in found["message"]
    assert warming.wait("Available", "MinReadyReached")["status"] == "True"
    warming.report("node-c", warming.held(artifact))
    warming.wait("Degraded", "NoFailures")


@pytest.mark.rule("MP-STA-03")
def test_a_missing_artifact_is_said(warming: Warming, artifact: Artifact) -> None:
    """When the artifact goes, the prefetch says so in every condition it concerns."""
    warming.prefetch(artifact)
    warming.rendered(3)
    warming.world.delete(artifact)
    assert warming.wait("Progressing", "ArtifactMissing")["status"] == "False"
    assert warming.wait("Degraded", "ArtifactMissing")["status"] == "True"
    assert warming.wait("Available", "ArtifactMissing")["status"] == "False"
    warming.world.until(lambda: not warming.pods(), "its Pods are gone", within_seconds=60)


def expiring(warming: Warming, artifact: Artifact, stale: int, **spec: Any) -> None:
    """Create a prefetch of two days' retention; the first nodes' copies are staler than that."""
    retention = {"pinned": True, "ttlAfterLastUse": "48h"}
    warming.prefetch(artifact, retention=retention, **spec)
    for number, node in enumerate(NODES):
        warming.report(node, warming.held(artifact, unused_hours=90 if number < stale else 1))


@pytest.mark.rule("MP-STA-04")
def test_lapsed_counts_the_copies_whose_time_ran_out(warming: Warming, artifact: Artifact) -> None:
    """Two of three copies lapsed: the message says so, they are unpinned and not warmed again."""
    expiring(warming, artifact, stale=2)
    found = warming.wait("Lapsed", "RetentionTTLExpired")
    assert found["status"] == "True"
    assert "2 of 3 target node copies lapsed" in found["message"]
    counts(warming, 3, 1, 0)
    stale = set(NODES[:2])
    warming.world.until(
        lambda: not stale & {node_of(pod) for pod in warming.pods()},
        "the Pods of lapsed copies are gone",
        within_seconds=60,
    )
    assert [warming.pinned(node) for node in NODES] == [[], [], [artifact.digest]]
    warming.report("node-a")
    warming.world.advance(120)
    assert not stale & {node_of(pod) for pod in warming.pods()}, "nobody asked for it again"
    assert warming.condition("Lapsed")["status"] == "True"
    assert "2 of 3 target node copies lapsed" in warming.condition("Lapsed")["message"]


@pytest.mark.rule("MP-STA-04")
def test_a_lapse_ends_with_the_next_use_or_a_changed_wish(
    warming: Warming, artifact: Artifact
) -> None:
    """A consumer's mount makes a copy count again; a changed prefetch warms what is gone."""
    expiring(warming, artifact, stale=2)
    warming.wait("Lapsed", "RetentionTTLExpired")
    warming.report("node-a", warming.held(artifact, referenced=True))
    counts(warming, 3, 2, 0)
    warming.report("node-b")
    warming.world.advance(60)
    assert "node-b" not in [node_of(pod) for pod in warming.pods()]
    warming.change("ModelPrefetch", "warm", retention={"ttlAfterLastUse": "72h"})
    warming.world.until(
        lambda: "node-b" in [node_of(pod) for pod in warming.pods()],
        "the node is warmed again",
        within_seconds=60,
    )
    warming.wait("Lapsed", "NoLapsedCopies")


@pytest.mark.rule("MP-STA-05")
@pytest.mark.parametrize(
    ("stale", "spec", "last", "reason"),
    [
        (0, {}, "Ready", "NoLapsedCopies"),
        (1, {"minReady": 2}, "Ready", "NoShortfall"),
        (1, {}, "Downloading", "ShortfallBeyondLapse"),
        (1, {}, "Failed", "ShortfallBeyondLapse"),
    ],
)
def test_lapsed_is_false_while_anything_else_is_the_cause(
    warming: Warming, artifact: Artifact, stale: int, spec: dict[str, int], last: str, reason: str
) -> None:
    """No lapse, a lapse that costs nothing, and a lapse beside a warm-up or a failure."""
    expiring(warming, artifact, stale, **spec)
    if last != "Ready":
        warming.report("node-c", {"digest": artifact.digest, "state": last})
    assert warming.wait("Lapsed", reason)["status"] == "False"


@pytest.mark.rule("MP-STA-06")
def test_the_table_prints_who_warms_what_and_how_far(warming: Warming, artifact: Artifact) -> None:
    """Artifact, binding, ready and desired nodes and pinning have a column each."""
    warming.prefetch(artifact, retention={"pinned": True})
    warming.report("node-a", warming.held(artifact))
    counts(warming, 3, 1, 2)
    path = f"/apis/{oracle.API}/namespaces/team-a/modelprefetches"
    table = warming.world.as_user("", {}).table(path)
    names = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    shown = dict(zip(names, row["cells"], strict=True))
    del shown["Age"]
    assert shown == {
        "Name": "warm",
        "Artifact": "model",
        "Binding": "grant",
        "Ready": 1,
        "Desired": 3,
        "Pinned": True,
    }


@pytest.mark.rule("MP-STA-06")
def test_a_prefetch_takes_every_verb_and_has_no_subresource_of_its_own(
    warming: Warming, artifact: Artifact
) -> None:
    """Get, list, watch, create, update, patch, delete; beside status there is nothing below it."""
    warming.prefetch(artifact)
    found = warming.get("ModelPrefetch", "warm")
    found["spec"]["minReady"] = 1
    warming.api.update(found)
    warming.change("ModelPrefetch", "warm", minReady=2)
    assert [each["metadata"]["name"] for each in warming.api.list(oracle.API, "ModelPrefetch")] == [
        "warm"
    ]
    listed = warming.world.as_user("", {}).read(f"/apis/{oracle.API}")
    served = {
        entry["name"]: set(entry["verbs"])
        for entry in listed["resources"]
        if entry["name"].startswith("modelprefetches")
    }
    assert set(served) <= {"modelprefetches", "modelprefetches/status"}
    assert served["modelprefetches"] >= {
        "get", "list", "watch", "create", "update", "patch", "delete"
    }  # fmt: skip
    warming.delete("ModelPrefetch", "warm")
