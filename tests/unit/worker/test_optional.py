"""Kinds that may be missing: an empty copy that fills when somebody installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpustack_delivery.errors import NotFound
from gpustack_delivery.mirror import Mirror
from gpustack_delivery.ports import Selection
from gpustack_delivery.vocabulary.consumers import INSTANCE_TYPES, InstanceType
from gpustack_delivery.worker.optional import LOOK_AGAIN_SECONDS, OptionalKinds
from tests.unit.fakes import eventually, gone
from tests.unit.worker.world import ClusterKube, SteppedClock


@contextmanager
def mirrored(kube: ClusterKube, clock: SteppedClock) -> Iterator[Mirror[InstanceType]]:
    """Mirror InstanceTypes."""
    source = OptionalKinds(kube, clock)
    mirror = Mirror(source, clock, Selection(INSTANCE_TYPES), InstanceType.from_wire)
    mirror.start()
    try:
        assert mirror.wait_synced(20)
        yield mirror
    finally:
        mirror.stop()


def test_a_missing_kind_is_an_empty_copy() -> None:
    """It is synced at once, and asks again only now and then."""
    kube, clock = ClusterKube(), SteppedClock()
    kube.missing = {"instancetypes"}
    with mirrored(kube, clock) as mirror:
        assert mirror.items() == {}
        clock.settle(1)
        assert kube.count("watch") == 0
        kube.missing = set()
        kube.put(INSTANCE_TYPES, {"metadata": {"name": "a100"}, "spec": {}})
        clock.advance(LOOK_AGAIN_SECONDS)
        eventually(mirror.items)


def test_a_kind_that_goes_is_an_empty_copy_again() -> None:
    """A definition that is removed takes its objects along, and the watch says so at last."""
    kube, clock = ClusterKube(), SteppedClock()
    kube.put(INSTANCE_TYPES, {"metadata": {"name": "a100"}, "spec": {}})
    source = OptionalKinds(kube, clock)
    kube.trouble = [NotFound("no such resource", code=404)]
    watch = source.watch(Selection(INSTANCE_TYPES), "100")
    watch.close()
    assert list(watch) == []
    with mirrored(kube, clock) as mirror:
        assert mirror.get("a100")
        eventually(lambda: kube.count("watch") == 2)
        kube.missing = {"instancetypes"}
        kube.break_watches(gone())
        clock.settle(1)  # a server that forgets what it has just listed is not asked at once
        clock.advance(1)
        eventually(lambda: not mirror.items())


def test_a_kind_that_is_there_is_followed_as_any() -> None:
    """Its watch is the server's own."""
    kube, clock = ClusterKube(), SteppedClock()
    with mirrored(kube, clock) as mirror:
        eventually(lambda: kube.count("watch") == 1)
        kube.put(INSTANCE_TYPES, {"metadata": {"name": "a100"}, "spec": {}})
        eventually(lambda: mirror.get("a100"))
