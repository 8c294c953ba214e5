"""Leader election: one at a time, by the replicas' own clocks, with a clean hand-over."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.ports import Clock
from gpustack_delivery.vocabulary.resources import LEASES
from gpustack_delivery.worker.leader import MAX_LEASE_SECONDS, Candidacy, Elector
from tests.unit.fakes import eventually
from tests.unit.worker.world import NAMESPACE, ClusterKube, SteppedClock

LONGEST_RETRY = 2.4


class Replica:
    """One elector, and what it was told."""

    def __init__(self, kube: ClusterKube, clock: Clock, name: str) -> None:
        self.kube = FragileKube(kube)
        self.told: list[str] = []
        candidacy = Candidacy(NAMESPACE, "worker", name)
        self.elector = Elector(
            self.kube,  # type: ignore[arg-type]  # the three calls an elector makes
            clock,
            candidacy,
            lambda: self.told.append("won"),
            lambda: self.told.append("lost"),
        )


class FragileKube:
    """The API as one replica reaches it, or does not."""

    def __init__(self, kube: ClusterKube) -> None:
        self.cut = threading.Event()
        self._kube = kube

    def __getattr__(self, name: str) -> Callable[..., object]:
        if self.cut.is_set():
            raise Unreachable("cut off")
        call: Callable[..., object] = getattr(self._kube, name)
        return call


def holder(kube: ClusterKube) -> str:
    """Return who holds the Lease."""
    lease = kube.find(LEASES, "worker", NAMESPACE)
    return str(lease["spec"]["holderIdentity"]) if lease else "nobody"


def test_first_come_first_leads_and_gives_back() -> None:
    """One replica leads; when it stops in order the other starts without waiting for the end."""
    kube, clock = ClusterKube(), SteppedClock()
    first, second = Replica(kube, clock, "first"), Replica(kube, clock, "second")
    first.elector.start()
    eventually(lambda: first.told == ["won"])
    assert first.elector.leading
    second.elector.start()
    clock.settle(4)
    assert (holder(kube), second.told) == ("first", [])
    first.elector.stop()
    assert first.told == ["won", "lost"]
    assert not first.elector.leading
    assert holder(kube) == ""
    clock.advance(LONGEST_RETRY)
    eventually(lambda: second.told == ["won"])
    lease = kube.find(LEASES, "worker", NAMESPACE)
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 1
    second.elector.stop()


def test_a_dead_leader_is_replaced_after_its_duration() -> None:
    """The old leader stops by itself first; only after its Lease ran out does another begin."""
    kube, clock = ClusterKube(), SteppedClock()
    first, second = Replica(kube, clock, "first"), Replica(kube, clock, "second")
    first.elector.start()
    eventually(lambda: first.told == ["won"])
    second.elector.start()
    clock.settle(4)
    first.kube.cut.set()
    while not second.told:
        assert clock.monotonic() < 30
        clock.advance(0.5)
        clock.settle(4)
        assert not (first.elector.leading and second.elector.leading)
    assert clock.monotonic() >= 15
    assert first.told == ["won", "lost"]
    first.kube.cut.clear()
    clock.advance(LONGEST_RETRY)
    clock.settle(4)
    assert not first.elector.leading
    first.elector.stop()
    second.elector.stop()
    assert holder(kube) == ""


def test_a_leader_survives_a_short_outage() -> None:
    """An API that is away for less than the deadline costs nothing."""
    kube, clock = ClusterKube(), SteppedClock()
    only = Replica(kube, clock, "only")
    only.elector.start()
    eventually(lambda: only.told == ["won"])
    clock.settle(2)
    only.kube.cut.set()
    for _ in range(14):
        clock.advance(0.5)
        clock.settle(2)
    only.kube.cut.clear()
    clock.advance(LONGEST_RETRY)
    clock.settle(2)
    assert only.elector.leading
    assert only.told == ["won"]
    only.elector.stop()


def test_another_clock_in_the_lease_proves_nothing() -> None:
    """A Lease whose times lie far in the past is its holder's as long as it is being renewed."""
    kube, clock = ClusterKube(), SteppedClock()
    only = Replica(kube, clock, "only")
    for second in range(40):
        spec = {
            "holderIdentity": "old",
            "leaseDurationSeconds": 15,
            "renewTime": f"2001-01-01T00:00:{second:02}Z",
        }
        kube.put(LEASES, {"metadata": {"name": "worker", "namespace": NAMESPACE}, "spec": spec})
        if second == 0:
            only.elector.start()
        clock.settle(2)
        clock.advance(LONGEST_RETRY)
    assert only.told == []
    only.elector.stop()
    assert only.told == []
    assert holder(kube) == "old"


def test_a_lease_of_a_lifetime_is_taken_after_an_hour() -> None:
    """Somebody wrote himself in for decades and never renews: no candidate asks for as much."""
    kube, clock = ClusterKube(), SteppedClock()
    spec = {"holderIdentity": "stranger", "leaseDurationSeconds": 2**31 - 1, "renewTime": "2099"}
    kube.put(LEASES, {"metadata": {"name": "worker", "namespace": NAMESPACE}, "spec": spec})
    only = Replica(kube, clock, "only")
    only.elector.start()
    clock.settle(2)
    assert (holder(kube), only.told) == ("stranger", [])
    clock.advance(MAX_LEASE_SECONDS)
    eventually(lambda: only.told == ["won"])
    assert holder(kube) == "only"
    only.elector.stop()


def test_stop_before_the_first_answer() -> None:
    """An elector that never led has nothing to give back."""
    kube, clock = ClusterKube(), SteppedClock()
    only = Replica(kube, clock, "only")
    only.kube.cut.set()
    only.elector.start()
    only.elector.stop()
    assert only.told == []
    assert holder(kube) == "nobody"
