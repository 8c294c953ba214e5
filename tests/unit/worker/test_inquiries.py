"""Look-ups under a deadline: all at once, never later than the caller waits, and only so many."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.ports import Page, Selection
from gpustack_delivery.vocabulary.resources import (
    GROUP,
    MODEL_STORE_BINDINGS,
    NODES,
    Json,
    Resource,
)
from gpustack_delivery.worker.granting import Granting
from gpustack_delivery.worker.inquiries import Inquiries
from gpustack_delivery.worker.webhooks import Principals, Webhooks
from tests.unit.fakes import eventually
from tests.unit.worker.warming_run import add, cluster
from tests.unit.worker.world import NAMESPACE, ClusterKube, SteppedClock


class SlowKube(ClusterKube):
    """An API server that takes its time over every read."""

    def __init__(self, clock: SteppedClock, seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._seconds = seconds
        self._never = threading.Condition()
        self.reading = 0

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return an object, later."""
        self._linger()
        return super().get(resource, name, namespace)

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return a page, later."""
        self._linger()
        return super().list_page(selection, continue_token)

    def _linger(self) -> None:
        until = self._clock.monotonic() + self._seconds
        with self._never:
            self.reading += 1
            while (left := until - self._clock.monotonic()) > 0:
                self._clock.wait(self._never, left)
            self.reading -= 1


class Asked(threading.Thread):
    """Somebody who waits for an answer, on a thread of its own."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.said: list[Any] = []
        self.start()

    def run(self) -> None:
        """Ask."""
        try:
            self.said.append(self._ask())
        except Unreachable as fault:
            self.said.append(str(fault))


def prefetch_review(kube: ClusterKube, clock: SteppedClock, timeout: str) -> Callable[[], Json]:
    """Return what asks the webhooks about a prefetch and returns their verdict."""
    webhooks = Webhooks(
        Inquiries(kube, clock), Principals("w", "p", NAMESPACE), Heard(), Granting(kube, clock)
    )
    spec = {
        "artifactRef": {"name": "model"},
        "bindingRef": {"name": "grant"},
        "placement": {"instanceTypes": ["small"]},
    }
    request = {
        "uid": "1",
        "resource": {"group": GROUP, "resource": "modelprefetches"},
        "operation": "CREATE",
        "namespace": "team-a",
        "name": "warm",
        "object": {"spec": spec},
    }
    wire = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body, query = json.dumps(wire).encode(), f"timeout={timeout}"

    def ask() -> Json:
        sent = Request("POST", f"/validate?{query}", "/validate", query, Headers(), body)
        answered = webhooks.handle(sent).body
        assert isinstance(answered, bytes)
        verdict: Json = json.loads(answered)["response"]
        return verdict

    return ask


class Heard:
    """Hears of reviews and forgets them."""

    def reviewed(self, resource: str, result: str) -> None:
        """Forget."""


@pytest.fixture
def clock() -> SteppedClock:
    """Return time that stands still."""
    return SteppedClock()


def slow(clock: SteppedClock, seconds: float) -> SlowKube:
    """Return a cluster with an artifact and a grant, so slow over every read."""
    whole, kube = cluster("node-a"), SlowKube(clock, seconds)
    add(
        whole,
        MODEL_STORE_BINDINGS,
        "grant",
        {"storeRefs": [{"name": "pool"}], "quota": {"bytes": 1}},
    )
    kube.objects = whole.objects
    return kube


def test_what_is_looked_up_takes_as_long_as_its_slowest_parts(clock: SteppedClock) -> None:
    """Seven look-ups of three seconds each: what does not hang on each other is asked at once."""
    kube = slow(clock, 3)
    asked = Asked(prefetch_review(kube, clock, "10s"))
    eventually(lambda: kube.reading == 5, "the first look-ups, the nodes among them")
    clock.advance(3)
    eventually(lambda: kube.reading == 1, "the look-up that only the others called for")
    clock.advance(3)
    asked.join(20)
    (verdict,) = asked.said
    assert verdict["allowed"], "a type that nobody has declared means no node"


@pytest.mark.parametrize(("timeout", "seconds"), [("10s", 8), ("5s", 4), ("", 8), ("soon", 8)])
def test_a_verdict_comes_before_its_caller_has_gone(
    clock: SteppedClock, timeout: str, seconds: float
) -> None:
    """However slow the API server is, the caller reads why, while it still waits."""
    kube = slow(clock, 60)
    asked = Asked(prefetch_review(kube, clock, timeout))
    eventually(lambda: kube.reading == 5, "the look-ups")
    clock.advance(seconds - 0.5)
    assert not asked.said
    clock.advance(0.5)
    asked.join(20)
    (verdict,) = asked.said
    assert (verdict["allowed"], verdict["status"]["code"]) == (False, 500)
    assert (
        "cannot judge this now: the Kubernetes API did not answer" in verdict["status"]["message"]
    )
    clock.advance(60)
    eventually(lambda: kube.reading == 0, "the end of the look-ups that nobody waits for")


def test_a_slow_server_gets_so_many_questions_and_no_more(clock: SteppedClock) -> None:
    """Whoever comes later waits for a free thread, and hears when there was none in time."""
    kube = slow(clock, 6)
    inquiries = Inquiries(kube, clock, at_once=1)

    def ask(seconds: float) -> Asked:
        def find() -> object:
            answer = inquiries.open(seconds).ask(lambda kube: kube.get(NODES, "node-a"))
            return answer()["metadata"]["name"]

        return Asked(find)

    first = ask(20)
    eventually(lambda: kube.reading == 1, "the first look-up")
    second, hasty = ask(20), ask(2)
    eventually(lambda: clock.waiting == 4, "everybody's wait")
    clock.advance(2)
    hasty.join(20)
    assert hasty.said == ["too much is asked of the Kubernetes API at once"]
    clock.advance(4)
    first.join(20)
    eventually(lambda: kube.reading == 1, "the second look-up")
    clock.advance(6)
    second.join(20)
    assert (first.said, second.said) == (["node-a"], ["node-a"])


def test_a_mistake_in_a_look_up_is_its_askers(clock: SteppedClock) -> None:
    """It is raised where the answer is wanted, and its thread is free again."""
    inquiries = Inquiries(ClusterKube(), clock, at_once=1)
    for _ in range(2):
        answer = inquiries.open(8).ask(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            answer()


def test_a_machine_without_threads_is_said(
    clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up that cannot begin is one that could not be made, and the next one can."""
    inquiries = Inquiries(ClusterKube(), clock, at_once=1)

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(Unreachable):
            inquiries.open(8).ask(lambda _: 1)
    assert inquiries.open(8).ask(lambda _: 1)() == 1
