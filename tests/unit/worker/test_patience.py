"""The time an errand has, against a hub that accepts requests and then says nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpustack_delivery.adapters.http import Http, TransportFault
from gpustack_delivery.adapters.patience import ERRAND_SECONDS, Patience
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.ports import Hub
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.node_store import HubAccess
from gpustack_delivery.worker.hubs import open_hub
from tests.unit.fakes import ManualClock, eventually
from tests.unit.worker.artifacts_run import Run
from tests.unit.worker.fake_hub import FakeHub
from tests.unit.worker.world import ClusterKube, SteppedClock


class SilentHub(FakeHub):
    """A real server that takes every request and answers none before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.released = threading.Event()
        self.server = Server(self._answer, name="silent")

    @contextmanager
    def open(self, kind: HubKind, access: HubAccess, ca_pem: str) -> Iterator[Hub]:
        """Open it over HTTP."""
        with open_hub(kind, HubAccess(self.server.url), ca_pem) as hub:
            yield hub

    def _answer(self, request: Request) -> Response:
        self.asked.set()
        self.released.wait(20)
        return Response(503)


@contextmanager
def silence() -> Iterator[SilentHub]:
    """Run the silent hub."""
    hub = SilentHub()
    with hub.server:
        try:
            yield hub
        finally:
            hub.released.set()


def test_a_request_is_ended_after_five_minutes() -> None:
    """Not a second before, and also while it waits for the first byte."""
    clock = ManualClock()
    patience = Patience(clock)
    faults: list[TransportFault] = []

    def run_errand(url: str) -> None:
        http = Http(environment={})
        with patience.errand() as flight:
            try:
                http.call("GET", url)
            except TransportFault as fault:
                faults.append(fault)
            assert flight.aborted
        http.close()

    with silence() as hub:
        thread = threading.Thread(target=run_errand, args=(hub.server.url,))
        thread.start()
        assert hub.asked.wait(20)
        clock.advance(ERRAND_SECONDS - 1)
        assert not faults
        clock.advance(1)
        thread.join(20)
    assert len(faults) == 1


def test_a_short_errand_leaves_nothing_behind() -> None:
    """Its watcher ends with it, and later errands have their own five minutes."""
    clock = ManualClock()
    patience = Patience(clock)
    before = threading.active_count()
    for _ in range(2):
        with patience.errand() as flight:
            clock.advance(ERRAND_SECONDS - 1)
            assert not flight.aborted
    assert threading.active_count() == before


def test_an_errand_begun_after_the_end_is_aborted_at_once() -> None:
    """Nothing is asked of a hub by a term that is over."""
    patience = Patience(ManualClock())
    patience.end()
    with patience.errand() as flight:
        eventually(lambda: flight.aborted, "the end of the errand")
    assert patience.over


def test_the_artifact_says_that_the_hub_was_too_slow() -> None:
    """A resolution that does not come to an end is an outage, and its thread is free again."""
    with silence() as hub:
        run = Run(ClusterKube(), hub, SteppedClock())
        run.start()
        try:
            run.create()
            assert hub.asked.wait(20)
            assert run.said == "Unknown/Resolving"
            run.advance(ERRAND_SECONDS)
            eventually(
                lambda: run.said == "False/SourceUnavailable True/SourceUnavailable",
                "the outage",
            )
            message = run.body["status"]["conditions"][0]["message"]
            assert message == "the hub did not answer in full within 5 minutes"
        finally:
            run.stop()


def test_a_term_that_ends_does_not_wait_for_hubs_and_says_nothing_of_them() -> None:
    """The errand under way has no outcome: an outage that is none is not written down."""
    with silence() as hub:
        run = Run(ClusterKube(), hub, SteppedClock())
        run.start()
        run.create()
        assert hub.asked.wait(20)
        run.stop()
        assert not hub.released.is_set()
        assert run.said == "Unknown/Resolving"
