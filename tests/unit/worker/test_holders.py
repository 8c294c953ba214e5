"""The index of digests: work for what changed, and counts that are always whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpustack_delivery.decisions.census import count
from gpustack_delivery.vocabulary.artifact import ModelArtifact, NodeCounts
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.node_store import (
    DownloadLimits,
    HubAccess,
    ModelEntry,
    ModelState,
    NodeModelStore,
    Spec,
    Status,
    Watermarks,
)
from gpustack_delivery.worker.holders import Holders

KEY = ("team", "model")
SPEC = Spec(Watermarks(80, 70), DownloadLimits(8), HubAccess("https://h"))


def report(*entries: ModelEntry) -> NodeModelStore:
    """Return a node's object with these entries."""
    return NodeModelStore(Metadata("n"), SPEC, Status(models=entries))


def artifact(digest: str) -> ModelArtifact:
    """Return an artifact that resolved to a digest."""
    resolved = {"manifestDigest": digest, "resolvedTime": "2026-09-25T06:00:00Z"}
    return ModelArtifact.from_wire(
        {"metadata": {"name": "model"}, "status": {"resolved": resolved}}
    )


def at(percent: int) -> ModelEntry:
    """Return a download of 100 bytes."""
    return ModelEntry("d", ModelState.DOWNLOADING, 100, percent)


def test_only_steps_concern_an_artifact() -> None:
    """Progress within a step changes no count; a step, a state and an end do."""
    holders = Holders()
    holders.artifact_changed(KEY, None, artifact("d"))
    states = [report(at(0)), report(at(4)), report(at(5)), report()]
    assert holders.node_changed("n", None, states[0]) == {KEY}
    assert holders.node_changed("n", states[0], states[1]) == set()
    assert holders.node_changed("n", states[1], states[2]) == {KEY}
    assert holders.count("d").downloading_percent == 5
    ready = report(ModelEntry("d", ModelState.READY))
    assert holders.node_changed("n", states[2], ready) == {KEY}
    assert holders.node_changed("n", ready, ready) == set()
    assert holders.node_changed("n", ready, states[3]) == {KEY}
    assert holders.count("d") == NodeCounts()


def test_artifacts_come_and_go() -> None:
    """A digest nobody wants concerns nobody, and an artifact that moved on is not called again."""
    holders = Holders()
    ready = report(ModelEntry("d", ModelState.READY))
    assert holders.node_changed("n", None, ready) == set()
    holders.artifact_changed(KEY, None, artifact("d"))
    holders.artifact_changed(("other", "model"), None, artifact("d"))
    holders.artifact_changed(KEY, artifact("d"), artifact("d"))
    holders.artifact_changed(KEY, artifact("d"), None)
    assert holders.node_changed("n", ready, None) == {("other", "model")}
    holders.artifact_changed(("other", "model"), artifact("d"), None)
    assert holders.node_changed("n", None, ready) == set()


entries = st.builds(
    ModelEntry,
    st.sampled_from("abc"),
    st.sampled_from(ModelState),
    st.just(100),
    st.integers(0, 100),
)
reports = st.lists(entries, max_size=3, unique_by=lambda entry: entry.digest).map(
    lambda found: report(*found)
)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.none() | reports), max_size=20))
def test_counts_are_those_of_the_last_reports(
    changes: list[tuple[str, NodeModelStore | None]],
) -> None:
    """After any history the counts are what a fresh count of the last reports gives."""
    holders = Holders()
    last: dict[str, NodeModelStore | None] = {}
    for node, new in changes:
        holders.node_changed(node, last.get(node), new)
        last[node] = new
    for digest in "abc":
        found = [
            entry
            for store in last.values()
            if store is not None
            for entry in store.status.models
            if entry.digest == digest
        ]
        assert holders.count(digest) == count(found)
