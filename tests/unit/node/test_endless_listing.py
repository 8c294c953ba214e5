"""A hub whose listing has no end: the attempt ends when it is to, and with a reason."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from gpustack_delivery.node.plugin import Plugin
from gpustack_delivery.node.reporter import World
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage
from tests.unit.origin import Origin, Seen, Wire


class EndlessHub:
    """Answers every page with one more file and a link to the next, a moment later."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __call__(self, seen: Seen, wire: Wire) -> None:
        """Answer a page."""
        number = next(self._numbers)
        page = [{"type": "file", "path": f"{number}", "size": 1, "oid": "a" * 40}]
        path = seen.target.partition("?")[0]
        link = f'<{path}?recursive=true&page={number}>; rel="next"'
        wire.hung_up(0.01)
        wire.respond(200, json.dumps(page).encode(), Link=link)


@pytest.fixture
def listing(stage: Stage) -> Iterator[str]:
    """Start a plugin on a real way to an endless hub, and an attempt; give its digest."""
    with Origin(EndlessHub()) as origin:
        stage.configure(hub={"huggingFaceEndpoint": origin.url})
        digest = stage.artifact()
        world = World(stage.clock, stage.kube, stage.mounts, stage.disk)
        stage.plugin = Plugin(stage.options(), world)
        stage.plugin.start()
        eventually(lambda: stage.publish(digest)[0] == "ABORTED", "an attempt")
        eventually(lambda: len(origin.seen) > 3, "a few pages")
        yield digest
        stage.stop()


def running(stage: Stage) -> list[object]:
    """Return the downloads that run."""
    found: list[object] = json.loads(stage.https("/model/downloads")[1])["downloads"]
    return found


def test_a_mount_that_waits_hears_a_reason(stage: Stage, listing: str) -> None:
    """Five minutes of listing are enough: then the attempt has failed, and says so."""
    for _ in range(10):
        stage.clock.advance(29)
        stage.publish(listing)
    stage.clock.advance(11)
    eventually(lambda: not running(stage), "the end of the attempt")
    code, message = stage.publish(listing)
    assert code == "UNAVAILABLE"
    assert "did not answer in full within 5 minutes" in message


def test_a_plugin_that_stops_waits_for_no_listing(stage: Stage, listing: str) -> None:
    """It stops as a kill would: nothing is recorded, and the next start asks again."""
    stage.stop()
    assert stage.plugin is None
