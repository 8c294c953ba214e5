"""A prefetch's status: counts, the bar, and four conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack_delivery.decisions.availability import Standing, Survey, describe
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.conditions import find
from gpustack_delivery.vocabulary.node_store import ModelState
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch, Status
from tests.unit.decisions.warm import NOW, artifact, claimed, entry, prefetch

READY, WAITING, FAILED, LAPSED = Standing.READY, Standing.WAITING, Standing.FAILED, Standing.LAPSED
TTL = {"ttlAfterLastUse": "48h"}
FAILURE = entry(ModelState.FAILED, reason="DigestMismatch", message="a file differs")


def survey(*standings: Standing, fault: str = "", of: ModelArtifact | None = None) -> Survey:
    """Return targets n0, n1, … in these standings."""
    named = {f"n{number}": standing for number, standing in enumerate(standings)}
    entries = {name: FAILURE for name, found in named.items() if found is FAILED}
    return Survey(of or artifact(), named, entries, fault)


def condition(status: Status, kind: str) -> tuple[str, str, str]:
    """Return a condition's status, reason and message."""
    found = find(status.conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("found", "progressing"),
    [
        (survey(READY, READY), ("False", "Delivered", "2 of 2 nodes are ready")),
        (survey(READY, LAPSED), ("False", "Delivered", "1 of 2 nodes are ready")),
        (survey(READY, WAITING), ("True", "Delivering", "1 of 2 nodes are ready")),
        (survey(READY, FAILED), ("True", "Delivering", "1 of 2 nodes are ready")),
        (survey(fault="both"), ("False", "PlacementInvalid", "both")),
        (
            survey(),
            ("False", "NoTargets", "no node is a target; nothing is delivered until one is"),
        ),
        (
            survey(WAITING, of=artifact(digest="", status="False")),
            ("True", "Delivering", "waiting for the ModelArtifact to resolve: Why"),
        ),
        (
            survey(
                WAITING, of=replace(artifact(), status=replace(artifact().status, conditions=()))
            ),
            ("True", "Delivering", "waiting for the ModelArtifact to resolve"),
        ),
        (
            survey(WAITING, of=claimed()),
            (
                "True",
                "Delivering",
                "only artifacts of a hub are delivered to nodes; this one never will be",
            ),
        ),
    ],
)
def test_progressing(found: Survey, progressing: tuple[str, str, str]) -> None:
    """Under way, delivered, or why there is nothing to deliver."""
    assert condition(describe(prefetch(), found, NOW), "Progressing") == progressing


@pytest.mark.parametrize(
    ("min_ready", "standings", "reached"),
    [
        (0, (READY, READY), True),
        (0, (READY, WAITING), False),
        (1, (READY, WAITING), True),
        (2, (READY, WAITING), False),
        (9, (READY, READY), True),
        (0, (), False),
    ],
)
def test_available(min_ready: int, standings: tuple[Standing, ...], *, reached: bool) -> None:
    """minReady is the bar, all targets for 0 or for more than there are; no targets never do."""
    status, reason, _ = condition(
        describe(prefetch(minReady=min_ready), survey(*standings), NOW), "Available"
    )
    assert (status, reason) == (
        ("True", "MinReadyReached") if reached else ("False", "NotEnoughNodes")
    )


def test_a_missing_artifact_is_said_three_times() -> None:
    """And nothing counts as downloading."""
    missing = Survey(None, {"n0": WAITING}, {})
    status = describe(prefetch(), missing, NOW)
    assert (status.desired_nodes, status.downloading_nodes) == (1, 0)
    assert condition(status, "Progressing")[:2] == ("False", "ArtifactMissing")
    assert condition(status, "Available")[:2] == ("False", "ArtifactMissing")
    assert condition(status, "Degraded")[:2] == ("True", "ArtifactMissing")


def test_degraded_names_nodes_and_reasons() -> None:
    """A few of many, in order, and no more words than the node had."""
    status = describe(prefetch(), survey(READY), NOW)
    assert condition(status, "Degraded")[:2] == ("False", "NoFailures")
    one = condition(describe(prefetch(), survey(READY, FAILED), NOW), "Degraded")
    assert one == ("True", "NodeFailed", "n1: DigestMismatch: a file differs")
    many = condition(describe(prefetch(), survey(*[FAILED] * 5), NOW), "Degraded")[2]
    assert many.endswith("n2: DigestMismatch: a file differs; and 2 more nodes")
    silent = Survey(artifact(), {"n0": FAILED}, {"n0": entry(ModelState.FAILED)})
    assert condition(describe(prefetch(), silent, NOW), "Degraded")[2] == "n0: failed"


@pytest.mark.parametrize(
    ("spec", "standings", "status", "reason", "words"),
    [
        ({}, (READY, WAITING), "False", "NoLapsedCopies", "no copy lapsed"),
        ({}, (READY, LAPSED), "True", "RetentionTTLExpired", "1 of 2 target node copies lapsed"),
        ({"minReady": 1}, (READY, LAPSED), "False", "NoShortfall", "1 of 2 target node copies"),
        ({}, (READY, LAPSED, WAITING), "False", "ShortfallBeyondLapse", "1 of 3 target node"),
        ({}, (READY, LAPSED, FAILED), "False", "ShortfallBeyondLapse", "1 of 3 target node"),
        (
            {"minReady": 2},
            (READY, LAPSED, WAITING),
            "True",
            "RetentionTTLExpired",
            "retention.ttlAfterLastUse",
        ),
    ],
)
def test_lapsed(
    spec: dict[str, Any], standings: tuple[Standing, ...], status: str, reason: str, words: str
) -> None:
    """True only when the lapsed copies alone would close the gap."""
    found = condition(describe(prefetch(retention=TTL, **spec), survey(*standings), NOW), "Lapsed")
    assert found[:2] == (status, reason)
    assert words in found[2]


def test_a_lapse_says_whether_pins_went() -> None:
    """Only a pinned prefetch had any."""

    def message(*, pinned: bool) -> str:
        wish = prefetch(retention={**TTL, "pinned": pinned})
        return condition(describe(wish, survey(LAPSED), NOW), "Lapsed")[2]

    assert message(pinned=True).endswith("; their pins were released")
    assert "pins" not in message(pinned=False)


def test_counts_and_memory() -> None:
    """Each standing has its place; the generation is the one that was looked at."""
    status = describe(prefetch(), survey(READY, WAITING, WAITING, FAILED, LAPSED), NOW)
    assert (status.desired_nodes, status.ready_nodes, status.downloading_nodes) == (5, 1, 2)
    assert (status.lapsed_nodes, status.observed_generation) == (("n4",), 1)
    assert ModelPrefetch.from_wire({"status": status.to_wire()}).status == status


def test_a_second_look_changes_nothing() -> None:
    """Transition times stay, so a prefetch at rest is not written."""
    wish = prefetch()
    status = describe(wish, survey(READY, FAILED), NOW)
    assert describe(replace(wish, status=status), survey(READY, FAILED), NOW + 60) == status
