"""The mirror: a complete list, then every change, through hang-ups and forgotten versions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from gpustack_delivery.errors import Forbidden, Unreachable
from gpustack_delivery.mirror import Key, Mirror
from gpustack_delivery.ports import Change, Selection
from gpustack_delivery.vocabulary.resources import CONFIG_MAPS, Json
from tests.unit.fakes import FakeKube, ManualClock, eventually, gone

Seen = list[tuple[Key, str | None, str | None]]


def config_map(name: str, value: str) -> Json:
    """Return a ConfigMap with one value."""
    return {"metadata": {"name": name, "namespace": "ns"}, "data": {"value": value}}


def value_of(body: Json) -> str:
    """Decode a ConfigMap into its value; one without it cannot be read."""
    value: str = body["data"]["value"]
    return value


class Stage:
    """A mirror under test with its world."""

    def __init__(self) -> None:
        self.kube = FakeKube(page_size=2)
        self.clock = ManualClock()
        self.seen: Seen = []
        self.mirror = Mirror(self.kube, self.clock, Selection(CONFIG_MAPS, "ns"), value_of)
        self.mirror.subscribe(lambda key, old, new: self.seen.append((key, old, new)))

    def start(self) -> None:
        """Start and wait until it watches."""
        self.mirror.start()
        eventually(lambda: self.kube.watches, "a watch")

    def values(self) -> dict[str, str]:
        """Return the copy by name."""
        return {name: value for (_, name), value in self.mirror.items().items()}


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Yield a stage and stop its mirror."""
    made = Stage()
    yield made
    made.mirror.stop()


def test_every_page_of_the_first_list_is_there_when_it_is_synced(stage: Stage) -> None:
    """Five objects in pages of two, then one watch from the list's version."""
    for n in range(5):
        stage.kube.put(CONFIG_MAPS, config_map(f"m{n}", str(n)))
    assert not stage.mirror.synced
    stage.start()
    assert stage.mirror.synced
    assert stage.values() == {f"m{n}": str(n) for n in range(5)}
    assert stage.mirror.get("m3", "ns") == "3"
    assert stage.mirror.get("m3") is None
    assert stage.kube.calls.count("list configmaps") == 3


def test_changes_reach_copy_and_listeners(stage: Stage) -> None:
    """Added, modified and deleted, each told once with what was before."""
    stage.start()
    stage.kube.put(CONFIG_MAPS, config_map("a", "1"))
    stage.kube.put(CONFIG_MAPS, config_map("a", "2"))
    stage.kube.put(CONFIG_MAPS, config_map("a", "2"))
    stage.kube.remove(CONFIG_MAPS, "a", "ns")
    eventually(lambda: len(stage.seen) == 3, "three changes")
    key = ("ns", "a")
    assert stage.seen == [(key, None, "1"), (key, "1", "2"), (key, "2", None)]
    assert stage.values() == {}


def test_a_watch_that_ends_is_taken_up_from_the_last_version(stage: Stage) -> None:
    """Bookmarks move the version too, and nothing is listed again."""
    stage.start()
    watch = stage.kube.watches[0][1]
    watch.changes.put(Change("BOOKMARK", {"metadata": {"resourceVersion": "777"}}))
    stage.kube.break_watches()
    eventually(lambda: "watch configmaps 777" in stage.kube.calls, "the second watch")
    assert stage.kube.calls.count("list configmaps") == 1


@pytest.mark.parametrize("as_event", [True, False])
def test_a_forgotten_version_means_listing_again(stage: Stage, *, as_event: bool) -> None:
    """As an event of the stream or as an answer: what vanished is told as deleted."""
    stage.kube.put(CONFIG_MAPS, config_map("old", "1"))
    stage.start()
    with stage.kube.lock:
        del stage.kube.objects["configmaps", "ns", "old"]
        stage.kube.objects["configmaps", "ns", "new"] = config_map("new", "2")
        stage.kube.objects["configmaps", "ns", "new"]["metadata"]["resourceVersion"] = "500"
        if not as_event:
            watch = stage.kube.watches[0][1]
            watch.changes.put(Change("BOOKMARK", {"metadata": {"resourceVersion": "3"}}))
            stage.kube.trouble = [gone()]
    stage.clock.advance(60)
    stage.kube.break_watches(gone() if as_event else None)
    eventually(lambda: stage.values() == {"new": "2"}, "the second list")
    assert (("ns", "old"), "1", None) in stage.seen
    assert (("ns", "new"), None, "2") in stage.seen


def test_failures_wait_and_keep_the_copy(stage: Stage) -> None:
    """While the API is away the last copy answers; the pause is waited out on the clock."""
    stage.kube.put(CONFIG_MAPS, config_map("a", "1"))
    stage.start()
    stage.kube.trouble = [Unreachable("away", code=503)]
    stage.kube.break_watches(Unreachable("cut"))
    stage.kube.put(CONFIG_MAPS, config_map("a", "2"))
    assert stage.values() == {"a": "1"}
    assert stage.mirror.synced
    watches = stage.kube.calls.count

    def advanced_and_watching() -> bool:
        stage.clock.advance(5)
        return bool(stage.kube.watches) and watches("watch configmaps 101") >= 2

    eventually(advanced_and_watching, "another watch")


def test_an_outage_is_told_when_it_begins_and_ends(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """However often a mirror tries, each kind of trouble has one line, and its end another."""
    caplog.set_level(logging.INFO)
    away, forbidden = Unreachable("away"), Forbidden("may not", code=403)
    stage.kube.trouble = [away, away, away, forbidden, forbidden]
    stage.mirror.start()

    def told(*levels: str) -> Callable[[], bool]:
        def holds() -> bool:
            stage.clock.advance(60)
            return [record.levelname for record in caplog.records] == list(levels)

        return holds

    eventually(told("WARNING", "WARNING", "INFO"), "the outage and its end")
    assert not stage.kube.trouble
    stage.kube.break_watches(away)
    eventually(told("WARNING", "WARNING", "INFO", "WARNING", "INFO"), "the next outage")


def test_a_server_that_hangs_up_at_once_is_not_hammered(stage: Stage) -> None:
    """Without any change a new watch waits for the clock."""
    stage.start()
    stage.kube.break_watches()
    eventually(lambda: stage.clock._waiting, "the pause")
    assert len(stage.kube.calls) == 2
    stage.clock.advance(2)
    eventually(lambda: len(stage.kube.calls) == 3, "the next watch")


def test_an_object_that_cannot_be_read_is_absent_and_harms_no_other(stage: Stage) -> None:
    """From a list and from a watch alike."""
    stage.kube.put(CONFIG_MAPS, {"metadata": {"name": "odd", "namespace": "ns"}})
    stage.kube.put(CONFIG_MAPS, config_map("good", "1"))
    stage.start()
    stage.kube.put(CONFIG_MAPS, {"metadata": {"name": "good", "namespace": "ns"}})
    stage.kube.put(CONFIG_MAPS, config_map("last", "1"))
    eventually(lambda: stage.values() == {"last": "1"}, "the readable object")


def test_waiting_for_the_first_list_ends_with_it_or_with_the_time(stage: Stage) -> None:
    """A caller that waits hears False when the API stays away."""
    assert not stage.mirror.wait_synced(0)
    stage.start()
    assert stage.mirror.wait_synced(60)


def test_a_mirror_stops_before_it_started_and_twice() -> None:
    """Stopping is always allowed."""
    stage = Stage()
    stage.mirror.stop()
    assert not stage.mirror.wait_synced(60)
    started = Stage()
    started.start()
    started.mirror.stop()
    started.mirror.stop()
