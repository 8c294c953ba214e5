"""A watch that is passed on outlives the silence of a kind at rest, and ends when it should."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from gpustack_delivery.errors import ApiFault, Silent, Unreachable
from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.ports import Errand
from gpustack_delivery.worker.public_api.models import Models
from gpustack_delivery.worker.public_api.targets import parse
from gpustack_delivery.worker.public_api.watching import Events
from tests.unit.fakes import ManualClock

PATH = "/apis/worker.gpustack.ai/v1/namespaces/team-a/modelartifacts"


def event(kind: str, name: str, version: str) -> bytes:
    """Return a line of the stored version's watch."""
    metadata = {"name": name, "resourceVersion": version}
    api_version = "worker.gpustack.ai/v1alpha1"
    body = {"kind": "ModelArtifact", "apiVersion": api_version, "metadata": metadata}
    return json.dumps({"type": kind, "object": body}).encode()


class Answer:
    """One answer of the API server: some lines, and how it goes on."""

    def __init__(self, *lines: bytes, then: ApiFault | None = None, status: int = 200) -> None:
        self.status = status
        self.closed = False
        self.before_the_end: Callable[[], None] = lambda: None
        self._lines = lines
        self._then = then

    def header(self, _name: str) -> str:
        """Return no header."""
        return ""

    def read(self) -> bytes:
        """Return an empty Status."""
        return b"{}"

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, then end or raise."""
        yield from self._lines
        self.before_the_end()
        if self._then is not None:
            raise self._then

    def close(self) -> None:
        """Note it."""
        self.closed = True


class Server:
    """Answers one watch after the other; each ends after as much silence as is waited through."""

    def __init__(self, *answers: Answer) -> None:
        self.clock = ManualClock()
        self.asked: list[dict[str, str]] = []
        self._answers = list(answers)

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Answer:
        """Note the query and give the next answer."""
        self.asked.append(dict(parse_qsl(urlsplit(errand.target).query)))
        answer = self._answers.pop(0)
        answer.before_the_end = lambda: self.clock.advance(timeout_seconds)
        return answer

    def watch(self, query: str) -> Events:
        """Return what a client gets that watches with some query."""
        query = f"watch=1&{query}"
        request = Request("GET", f"{PATH}?{query}", PATH, query, Headers())
        response = Models(self, self.clock).answer(parse(request), request, lambda: False)
        assert isinstance(response.body, Events)
        return response.body


def told(events: Events) -> list[str]:
    """Return the names and types of a watch's events until it ends."""
    told = [json.loads(line) for line in events]
    return [f"{one['type']} {one['object']['metadata']['name']}" for one in told]


def silent(*lines: bytes) -> Answer:
    """Return an answer that falls silent after some lines."""
    return Answer(*lines, then=Silent("silent"))


def test_a_watch_goes_on_after_a_silence_from_the_newest_version() -> None:
    """It is taken up where it was; the beginning comes in the order of names, not of versions."""
    begin = (event("ADDED", "a", "900"), event("ADDED", "b", "500"))
    server = Server(silent(*begin), silent(), Answer(event("MODIFIED", "a", "910")))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=400"
    events = server.watch(f"{query}&labelSelector=x%3Dy&timeoutSeconds=400")
    assert told(events) == ["ADDED a", "ADDED b", "MODIFIED a"]
    always = {"watch": "true", "labelSelector": "x=y", "allowWatchBookmarks": "true"}
    assert server.asked[0] == dict(parse_qsl(query)) | always | {"timeoutSeconds": "400"}
    again = always | {"resourceVersion": "900"}
    assert server.asked[1:] == [
        {**again, "timeoutSeconds": "250"},
        {**again, "timeoutSeconds": "100"},
    ]


def test_a_watch_that_was_told_nothing_asks_again_as_it_did() -> None:
    """Whoever starts from a version, or from whatever there is, misses nothing."""
    for begin in ({}, {"resourceVersion": "0"}, {"resourceVersion": "400"}):
        server = Server(silent(), Answer(event("ADDED", "a", "500")))
        assert told(server.watch(urlencode(begin))) == ["ADDED a"]
        asked = {name: server.asked[1].get(name) for name in begin}
        assert asked == begin


def test_a_bookmark_that_nobody_wants_moves_the_version_all_the_same() -> None:
    """The stored version's bookmarks say where to go on."""
    bookmark = event("BOOKMARK", "", "700")
    server = Server(silent(bookmark), Answer())
    assert told(server.watch("resourceVersion=400")) == []
    assert server.asked[1]["resourceVersion"] == "700"


@pytest.mark.parametrize(("asked", "seconds"), [("300", 300), ("", 1800), ("x", 1800)])
def test_a_watch_ends_when_its_time_is_over(asked: str, seconds: int) -> None:
    """As long as it was asked for, and half an hour if for nothing: rights are asked anew then."""
    server = Server(*(silent() for _ in range(seconds)))
    assert told(server.watch(f"timeoutSeconds={asked}")) == []
    assert (server.clock.monotonic(), len(server.asked)) == (seconds, seconds / 150)


@pytest.mark.parametrize(
    "answer",
    [Answer(), Answer(then=Unreachable("broke")), Answer(status=403), Answer(status=503)],
    ids=["ended", "broke", "forbidden", "unavailable"],
)
def test_whatever_else_ends_the_stored_watch_ends_the_clients(answer: Answer) -> None:
    """Only silence is bridged; the rest is the client's to hear and to take up again."""
    server = Server(silent(event("ADDED", "a", "1")), answer)
    assert told(server.watch("")) == ["ADDED a"]
    assert len(server.asked) == 2


def test_a_close_that_meets_a_new_beginning_ends_that_too() -> None:
    """A client that hangs up while the watch is taken up again leaves no connection behind."""
    late = Answer()
    server = Server(silent(), late)
    events = server.watch("")
    pass_on = server.pass_on

    def hang_up(errand: Errand, *, timeout_seconds: float) -> Answer:
        events.close()
        return pass_on(errand, timeout_seconds=timeout_seconds)

    server.pass_on = hang_up  # type: ignore[method-assign]  # a client hangs up just then
    assert told(events) == []
    assert late.closed
