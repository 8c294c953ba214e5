"""Events: written once, counted after that, and never in the way."""

from __future__ import annotations

from gpustack_delivery.errors import Forbidden
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import EVENTS, MODEL_ARTIFACTS, NODE_MODEL_STORES
from gpustack_delivery.worker.events import NORMAL, WARNING, Events
from tests.unit.fakes import ManualClock
from tests.unit.worker.world import ClusterKube

ABOUT = Metadata("model", "team", "uid-1")


def test_a_repeated_event_is_counted() -> None:
    """The same Event twice is one object with a count; another message is another object."""
    kube, clock = ClusterKube(), ManualClock()
    events = Events(kube, clock)
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "AccessDenied", "HTTP 403")
    clock.advance(60)
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "AccessDenied", "HTTP 403")
    events.tell(MODEL_ARTIFACTS, ABOUT, NORMAL, "Resolved", "x" * 5000)
    denied, resolved = sorted(kube.all(EVENTS), key=lambda event: event["reason"])
    assert (denied["count"], denied["type"]) == (2, "Warning")
    assert denied["firstTimestamp"] < denied["lastTimestamp"]
    assert denied["metadata"]["namespace"] == "team"
    assert denied["involvedObject"] == {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "ModelArtifact",
        "namespace": "team",
        "name": "model",
        "uid": "uid-1",
    }
    assert len(resolved["message"]) == 1024


def test_cluster_scoped_objects_have_their_events_in_default() -> None:
    """An object without a namespace is spoken of where Kubernetes looks for it."""
    kube = ClusterKube()
    Events(kube, ManualClock()).tell(NODE_MODEL_STORES, Metadata("n"), WARNING, "Bad", "why")
    assert kube.all(EVENTS)[0]["metadata"]["namespace"] == "default"


def test_an_expired_event_is_written_anew() -> None:
    """The server forgets Events after an hour; the next one is a new object."""
    kube = ClusterKube()
    events = Events(kube, ManualClock())
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "Bad", "why")
    kube.remove(EVENTS, kube.all(EVENTS)[0]["metadata"]["name"], "team")
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "Bad", "why")
    assert [event["count"] for event in kube.all(EVENTS)] == [1]


def test_a_failure_costs_nothing_else() -> None:
    """What cannot be written is left out, and told the next time."""
    kube = ClusterKube()
    events = Events(kube, ManualClock())
    kube.trouble = [Forbidden("no", code=403)]
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "Bad", "why")
    assert kube.all(EVENTS) == []
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "Bad", "why")
    assert len(kube.all(EVENTS)) == 1


def test_memory_is_bounded() -> None:
    """However many different Events there are, only the latest are remembered."""
    kube = ClusterKube()
    events = Events(kube, ManualClock())
    for number in range(600):
        events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "Bad", str(number))
    events.tell(MODEL_ARTIFACTS, ABOUT, WARNING, "Bad", "0")
    assert len(kube.all(EVENTS)) == 601
