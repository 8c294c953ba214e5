"""The fence: a replica that does not lead reads and never writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.ports import Selection
from gpustack_delivery.vocabulary.resources import NODES
from gpustack_delivery.worker.fence import FencedKube
from tests.unit.worker.world import ClusterKube

BODY = {"metadata": {"name": "a"}}

WRITES: dict[str, Callable[[FencedKube], object]] = {
    "create": lambda kube: kube.create(NODES, {"metadata": {"name": "b"}}),
    "update": lambda kube: kube.update(NODES, kube.get(NODES, "a") | {"spec": {"x": 1}}),
    "apply": lambda kube: kube.apply(NODES, BODY, field_manager="m"),
    "merge_patch": lambda kube: kube.merge_patch(NODES, "a", {"spec": {"x": 2}}),
    "delete": lambda kube: kube.delete(NODES, "a", uid="uid-a"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_need_the_lead(write: Callable[[FencedKube], object]) -> None:
    """Every kind of write goes through while leading, and not a moment longer."""
    kube = ClusterKube()
    kube.put(NODES, BODY)
    before = kube.all(NODES)
    with pytest.raises(Unreachable, match="no longer leads"):
        write(FencedKube(kube, lambda: False))
    assert kube.all(NODES) == before
    write(FencedKube(kube, lambda: True))


def test_reads_are_free() -> None:
    """Reading harms nobody."""
    kube = ClusterKube()
    kube.put(NODES, BODY)
    kube.raw["/version"] = {"major": "1"}
    fenced = FencedKube(kube, lambda: False)
    assert fenced.get(NODES, "a")["metadata"]["name"] == "a"
    assert len(fenced.list_page(Selection(NODES)).items) == 1
    assert fenced.get_raw("/version", timeout_seconds=1) == b'{"major": "1"}'
    fenced.watch(Selection(NODES), "1").close()
