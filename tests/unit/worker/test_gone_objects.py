"""Every write that meets an object already gone, or another of its name: no failure, not a word."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gpustack_delivery.errors import ApiFault, Conflict, NotFound
from gpustack_delivery.vocabulary.resources import (
    CSI_DRIVERS,
    DRIVER_NAME,
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODE_MODEL_STORES,
    PODS,
    Resource,
)
from tests.unit.worker import artifacts_run, node_stores_run, warming_run
from tests.unit.worker.world import ClusterKube

REFUSALS = [NotFound("not there", code=404), Conflict("another object by now", code=409)]


def pool() -> ClusterKube:
    """Return a cluster with one node of a granted pool."""
    return warming_run.cluster("node-a")


def warmed(kube: ClusterKube) -> None:
    """Warm a node, pinned, to the end of its Pod."""
    with warming_run.running(kube) as run:
        warming_run.add_prefetch(kube, retention={"pinned": True})
        run.rest()
        for pod in kube.all(PODS):
            kube.put(PODS, pod | {"status": {"phase": "Succeeded"}})
        run.advance(2)
        run.advance(2)


def resolved(kube: ClusterKube) -> None:
    """Resolve an artifact, and delete it."""
    with artifacts_run.started(kube) as run:
        run.create()
        if kube.find(MODEL_ARTIFACTS, "model", "team"):
            kube.delete(MODEL_ARTIFACTS, "model", "team")
        run.rest()
        run.advance(2)


def configured(kube: ClusterKube) -> None:
    """Give a node its object, and remove the driver."""
    with node_stores_run.running(kube) as run:
        kube.remove(CSI_DRIVERS, DRIVER_NAME)
        run.rest()
        run.advance(2)


@dataclass(frozen=True)
class Write:
    """One write of a scene: its verb and kind, and how many like it come before."""

    world: Callable[[], ClusterKube]
    scene: Callable[[ClusterKube], None]
    verb: str
    resource: Resource
    earlier: int = 0


WRITES = {
    "a pool's status": Write(pool, warmed, "apply", MODEL_STORES),
    "a grant's status": Write(pool, warmed, "apply", MODEL_STORE_BINDINGS),
    "a prefetch's status": Write(pool, warmed, "apply", MODEL_PREFETCHES),
    "a node's pins": Write(pool, warmed, "apply", NODE_MODEL_STORES),
    "the end of a Pod": Write(pool, warmed, "delete", PODS),
    "the coming finalizer": Write(ClusterKube, resolved, "patch", MODEL_ARTIFACTS),
    "an artifact's status": Write(ClusterKube, resolved, "update", MODEL_ARTIFACTS),
    "the going finalizer": Write(ClusterKube, resolved, "patch", MODEL_ARTIFACTS, earlier=1),
    "the end of a node's object": Write(
        node_stores_run.cluster, configured, "delete", NODE_MODEL_STORES
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS, ids=["gone", "another"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_write_that_comes_too_late_is_no_failure(
    write: Write,
    refusal: ApiFault,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The object is removed at the moment of the write: the work goes on, and the log is silent."""
    kube = write.world()
    begins = f"{write.verb} {write.resource.plural}/"
    met: list[str] = []

    def called(call: str) -> None:
        kube.calls.append(call)
        if not call.startswith(begins):
            return
        met.append(call)
        if len(met) == write.earlier + 1:
            gone = (write.resource.plural, call.removeprefix(begins))
            for plural, namespace, name in list(kube.objects):
                if (plural, name) == gone:
                    kube.remove(write.resource, name, namespace)
            raise refusal

    monkeypatch.setattr(kube, "_called", called)
    write.scene(kube)
    assert len(met) > write.earlier, "the write did not come"
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
