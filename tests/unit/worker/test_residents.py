"""The index of what nodes list: changed by reports, told entry by entry."""

from __future__ import annotations

from gpustack_delivery.vocabulary.node_store import ModelEntry
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.residents import Residents
from tests.unit.decisions.warm import DIGEST, OTHER
from tests.unit.fakes import eventually
from tests.unit.worker.warming_run import SPEC, add_report, held
from tests.unit.worker.world import ClusterKube, SteppedClock


def test_entries_come_change_and_go_with_reports() -> None:
    """Each change is told once, with what was and what is, down to the last holder."""
    kube, clock = ClusterKube(), SteppedClock()
    copies = Copies(kube, clock)
    residents = Residents(copies)
    told: list[tuple[str, bool, bool]] = []

    def hear(digest: str, old: ModelEntry | None, new: ModelEntry | None) -> None:
        told.append((digest, old is not None, new is not None))

    residents.subscribe(hear)
    copies.node_stores.start()
    try:
        assert copies.node_stores.wait_synced(20)
        add_report(kube, "node-a", held("Downloading"), {"digest": OTHER, "state": "Failed"})
        eventually(lambda: len(told) == 2)
        add_report(kube, "node-a", held(), {"digest": OTHER, "state": "Failed"})
        add_report(kube, "node-b", held())
        eventually(lambda: len(told) == 4)
        assert set(residents.entries(DIGEST)) == {"node-a", "node-b"}
        assert residents.entries(DIGEST)["node-a"].state == "Ready"
        kube.put(NODE_MODEL_STORES, {"metadata": {"name": "node-a"}, "spec": SPEC})
        kube.remove(NODE_MODEL_STORES, "node-b")
        eventually(lambda: len(told) == 7)
    finally:
        copies.node_stores.stop()
    assert residents.entries(DIGEST) == residents.entries(OTHER) == {}
    assert sorted(told[:2]) == [(DIGEST, False, True), (OTHER, False, True)]
    assert told[2] == (DIGEST, True, True)
    assert told[3] == (DIGEST, False, True)
    assert sorted(told[4:6]) == [(DIGEST, True, False), (OTHER, True, False)]
    assert told[6] == (DIGEST, True, False)
