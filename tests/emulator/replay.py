"""Plays recorded exchanges of a real server against the emulated one, and says where they differ.

A recording is one session: exchanges in order, on one server. `Session.play` sends each request
(substituting uids, versions and continue tokens by our own, bound as answers come in) and compares
status, headers, body or watch events. What a recording does not show (objects made beforehand, what
somebody else did while a watch was open) comes in as hooks by exchange name.

    RESULTS = results("02-crud", hooks)          # once a module, in a fixture
    @pytest.mark.parametrize("name", names("02-crud"))
    def test_exchange(name, played): played.check(name)

An exchange that is known to differ stands in `deviations.yaml` with its reason, and is expected to
fail, strictly.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
import yaml

from emulator.api import Api
from emulator.api_server import ApiServer
from gpustack_delivery.httpd import Headers, Request, Response
from tests.emulator.comparison import Bindings, differences

FOLDER = Path(__file__).parent
NOW = 1_767_225_600.0
Json = dict[str, Any]


class SteppingClock:
    """A clock whose waits with a deadline pass at once; the time of day stands still."""

    def __init__(self) -> None:
        self._monotonic = 0.0

    def now(self) -> float:
        """Return the one moment of this clock."""
        return NOW

    def monotonic(self) -> float:
        """Return the sum of all waits."""
        return self._monotonic

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Let a deadline pass; without one, wait for the notification."""
        if seconds is None:
            condition.wait()
        else:
            self._monotonic += seconds


@dataclass(frozen=True, slots=True)
class Hook:
    """What happens around one exchange.

    `before` runs before its request, `during` while its watch is open, and `observe` answers for an
    exchange that recorded no request: it returns what is to be compared.
    """

    before: Callable[[Session], None] | None = None
    during: Callable[[Session], None] | None = None
    observe: Callable[[Session], Any] | None = None


_NOTHING = Hook()


def exchanges(recording: str) -> list[Json]:
    """Return the exchanges of a recording."""
    text = (FOLDER / "golden" / f"{recording}.json").read_text("utf-8")
    found: list[Json] = json.loads(text)["exchanges"]
    return found


def deviations(recording: str) -> Mapping[str, str]:
    """Return the known deviations of a recording: exchange name to reason."""
    table = yaml.safe_load((FOLDER / "deviations.yaml").read_text("utf-8"))
    found: Mapping[str, str] = table.get(recording, {})
    return found


def cases(recording: str) -> list[Any]:
    """Return one pytest parameter for each exchange; known deviations are strict xfails."""
    known = dict(deviations(recording))
    parameters = []
    for exchange in exchanges(recording):
        name = exchange["name"]
        reason = known.pop(name, None)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        parameters.append(pytest.param(name, id=name, marks=marks))
    if known:
        raise LookupError(
            f"deviations.yaml names exchanges that {recording} lacks: {sorted(known)}"
        )
    return parameters


@dataclass
class Session:
    """One recording being played on one server."""

    api: Api
    server: ApiServer
    bindings: Bindings = field(default_factory=lambda: Bindings(NOW))
    callers: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # recorded name -> headers
    found: dict[str, list[str]] = field(default_factory=dict)

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send one request of our own, as the recording's clients do."""
        path, _, query = path.partition("?")
        raw = (
            b""
            if body is None
            else body
            if isinstance(body, bytes)
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        sent = dict(headers or {})
        if raw:
            sent.setdefault("Content-Type", "application/json")
        target = f"{path}?{query}" if query else path
        return self.server.handle(
            Request(method, target, path, query, Headers(list(sent.items())), raw)
        )

    def make(self, method: str, path: str, body: Any = None, content_type: str = "") -> Json:
        """Send one request that has to succeed, and return its body."""
        headers = {"Content-Type": content_type} if content_type else {}
        response = self.send(method, path, body, headers)
        assert isinstance(response.body, bytes)
        assert response.status < 300, response.body
        found: Json = json.loads(response.body)
        return found

    def play(self, recording: str, hooks: Mapping[str, Hook]) -> Session:
        """Play every exchange; what differs is kept for `check`."""
        played = exchanges(recording)
        unknown = hooks.keys() - {exchange["name"] for exchange in played}
        assert not unknown, f"hooks for exchanges that {recording} lacks: {sorted(unknown)}"
        for exchange in played:
            self.play_one(exchange, hooks.get(exchange["name"], _NOTHING))
        return self

    def play_one(self, exchange: Json, hook: Hook = _NOTHING) -> None:
        """Play one exchange; what differs is kept for `check`."""
        if hook.before:
            hook.before(self)
        if "request" in exchange:
            self.found[exchange["name"]] = self._exchange(exchange, hook)
        else:
            self.found[exchange["name"]] = self._observation(exchange, hook)

    def check(self, name: str) -> None:
        """Fail with everything that differs in one exchange."""
        assert not self.found[name], "\n".join(self.found[name])

    def _observation(self, exchange: Json, hook: Hook) -> list[str]:
        if hook.observe is None:
            return ["nothing was observed: the test has no hook for it"]
        recorded = {key: value for key, value in exchange.items() if key not in ("name", "note")}
        return differences(recorded, hook.observe(self), self.bindings)

    def _exchange(self, exchange: Json, hook: Hook) -> list[str]:
        request, recorded = exchange["request"], exchange["response"]
        path, _, query = request["path"].partition("?")
        pairs = [
            (k, self.bindings.parameter(k, v)) for k, v in parse_qsl(query, keep_blank_values=True)
        ]
        headers = {**request.get("headers", {}), **self.callers.get(request.get("as", ""), {})}
        body = self._body(request)
        target = f"{path}?{urlencode(pairs)}" if pairs else path
        response = self.send(request["method"], target, body, headers)
        if "events" in recorded:
            return self._watched(recorded, response, hook)
        assert isinstance(response.body, bytes)
        received = self._received(response)
        expected = self._expected(recorded)
        if expected["headers"].get("Content-Type") == "application/yaml":
            for one in (expected, received):
                one["body"] = yaml.load(one["body"], Loader=yaml.BaseLoader)  # noqa: S506 - plain text
        if not isinstance(recorded.get("body"), str) and "itemNames" in (
            recorded.get("body") or {}
        ):
            received["body"] = _names(received["body"])
        return differences(expected, received, self.bindings)

    def _body(self, request: Json) -> Any:
        if "bodyBytes" in request:
            filler = {
                "apiVersion": "rig.example.io/v1",
                "kind": "Widget",
                "metadata": {"name": "big"},
            }
            rest = request["bodyBytes"] - len(
                json.dumps({**filler, "spec": {"size": 2, "free": {"a": ""}}})
            )
            return {**filler, "spec": {"size": 2, "free": {"a": "x" * rest}}}
        if "rawBody" in request:
            return self.bindings.sent_text(request["rawBody"])
        body = request.get("body")
        return self.bindings.sent_text(body) if isinstance(body, str) else self.bindings.sent(body)

    def _watched(self, recorded: Json, response: Response, hook: Hook) -> list[str]:
        if isinstance(response.body, bytes):
            events = [json.loads(response.body)]
        else:
            body: Any = response.body
            if hook.during:
                hook.during(self)
            if not recorded["streamClosedByServer"]:
                body.close()
            events = [json.loads(line) for line in body]
        expected = {"status": recorded["status"], "events": recorded["events"]}
        return differences(expected, {"status": response.status, "events": events}, self.bindings)

    def _expected(self, recorded: Json) -> Json:
        expected = {"status": recorded["status"], "headers": recorded.get("headers", {})}
        if recorded.get("body") not in (None, ""):
            expected["body"] = recorded["body"]
        return expected

    def _received(self, response: Response) -> Json:
        kept: dict[str, Any] = {}
        for name, value in response.headers:
            if name in ("Warning", "Retry-After", "X-Content-Type-Options") or (
                name == "Content-Type" and value != "application/json"
            ):
                before = kept.get(name)
                kept[name] = (
                    value
                    if before is None
                    else [*(before if isinstance(before, list) else [before]), value]
                )
        received: Json = {"status": response.status, "headers": kept}
        body: Any = response.body
        if kept.get("Content-Type", "").startswith(("text/", "application/yaml")):
            received["body"] = body.decode()
        elif body:
            received["body"] = json.loads(body)
        return received


def _names(body: Json) -> Json:
    if "items" not in body:
        return body
    return {"kind": body["kind"], "itemNames": [one["metadata"]["name"] for one in body["items"]]}
