"""The API on a socket: TLS, streams, many watches, and what no resource answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from emulator.api import ADMIN, Api, Steps, Target
from emulator.api_server import ApiServer, Doors
from emulator.clock import SystemClock
from emulator.contracts import Caller
from emulator.patches import FieldPatcher
from emulator.routes import Route
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
WATCHES = 500


def _proxy(caller: Caller, target: Target, route: Route, _: Request) -> Response:
    said = {"who": caller.name, "node": target.name, "path": route.rest, "verb": route.verb}
    return Response(200, [("Content-Type", "application/json")], json.dumps(said).encode())


@pytest.fixture
def api() -> Iterator[Api]:
    """Give a model on the machine's clock."""
    opened = Api(SystemClock(), Steps(patcher=FieldPatcher()))
    yield opened
    opened.close()


@pytest.fixture
def server(api: Api) -> Iterator[Server]:
    """Serve the model, plain, on a free port."""
    doors = Doors(connectors={("", "nodes", "proxy"): _proxy})
    opened = Server(ApiServer(api, doors).handle, name="test-api")
    opened.start()
    yield opened
    opened.stop()


def ask(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send one request; return status and JSON, or text."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        raw = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(raw) if is_json else raw.decode()
    finally:
        connection.close()


class Stream:
    """A watch on a socket of its own; `head` and `line` read what the server sends."""

    def __init__(self, server: Server, query: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._file = self._socket.makefile("rb")
        request = f"GET {MAPS}?watch=1&{query} HTTP/1.1\r\nHost: x\r\n\r\n"
        self._socket.sendall(request.encode())

    def head(self) -> bytes:
        """Return the status line, and read to the end of the head."""
        status = self._file.readline()
        while self._file.readline() not in (b"\r\n", b""):
            pass
        return status

    def line(self) -> Any:
        """Return the next event."""
        size = int(self._file.readline(), 16)
        chunk = self._file.read(size + 2)
        return json.loads(chunk) if size else None

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()


def test_serves_over_tls(api: Api) -> None:
    """A client that trusts the authority gets its answer over TLS."""
    authority = Authority("test")
    context = server_context(authority.issue("api", hosts=["127.0.0.1"]))
    server = Server(ApiServer(api).handle, name="test-api", tls=context)
    server.start()
    try:
        trust = ssl.create_default_context(cadata=authority.certificate_pem)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, context=trust, timeout=30
        )
        connection.request("GET", "/api/v1/namespaces/default")
        assert json.loads(connection.getresponse().read())["metadata"]["name"] == "default"
        connection.close()
    finally:
        server.stop()


def test_hundreds_of_watches_see_one_write(api: Api, server: Server) -> None:
    """Five hundred open watches all get the event of one write, and leave nothing behind."""
    with ExitStack() as stack:
        streams = [Stream(server, f"resourceVersion={api.store.version}") for _ in range(WATCHES)]
        for stream in streams:
            stack.callback(stream.close)
        assert {stream.head() for stream in streams} == {b"HTTP/1.1 200 OK\r\n"}
        status, made = ask(server, "POST", MAPS, {"metadata": {"name": "one"}})
        assert status == 201
        events = [stream.line() for stream in streams]
        assert all(event["type"] == "ADDED" for event in events)
        assert {event["object"]["metadata"]["uid"] for event in events} == {made["metadata"]["uid"]}


def test_stopping_the_server_ends_its_watches(api: Api, server: Server) -> None:
    """A watch ends as a stream ends when the server stops, and the model has no listener left."""
    stream = Stream(server, "")
    stream.head()
    server.stop()
    assert stream.line() is None
    stream.close()
    collection = api.store.collection(("", "configmaps"))
    assert collection is not None
    assert collection.listener_count == 0


@pytest.mark.parametrize(
    ("method", "path", "code", "message"),
    [
        ("GET", "/apis/nothing.example.io/v1/things", 404, "404 page not found\n"),
        ("GET", "/nothing", 404, "404 page not found\n"),
        ("GET", "/api/v1/nothings", 404, "the server could not find the requested resource"),
        ("PUT", MAPS, 405, "the server does not allow this method on the requested resource"),
        (
            "DELETE",
            "/api/v1/namespaces",
            405,
            "the server does not allow this method on the requested resource",
        ),
        ("GET", f"{MAPS}/x/status", 404, "the server could not find the requested resource"),
        ("POST", f"{PODS}/x/exec", 501, "the emulator does not implement pods/exec"),
        ("GET", f"{PODS}/x/log", 501, "the emulator does not implement pods/log"),
        ("POST", "/api/v1/pods", 400, "an empty namespace may not be set during creation"),
    ],
)
def test_says_what_is_not_served(
    server: Server, method: str, path: str, code: int, message: str
) -> None:
    """Paths and methods outside the API answer as the real server does."""
    body: Any = {"metadata": {}} if method == "POST" else None
    status, said = ask(server, method, path, body)
    assert status == code
    assert (said if isinstance(said, str) else said["message"]) == message


def test_a_connection_goes_to_its_connector(api: Api, server: Server) -> None:
    """A proxied path reaches the function that answers for the node."""
    api.create(ADMIN, Target(api.resource("", "v1", "nodes")), {"metadata": {"name": "node-a"}})
    _, said = ask(server, "GET", "/api/v1/nodes/node-a/proxy/configz")
    assert said == {
        "who": "system:anonymous", "node": "node-a", "path": "configz", "verb": "get",
    }  # fmt: skip


def test_a_fault_of_ours_is_an_answer(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the emulator itself fails, the client gets a Status 500, and the log the reason."""

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(api, "list", broken)
    status, said = ask(server, "GET", MAPS)
    assert (status, said["kind"], said["code"]) == (500, "Status", 500)
    assert "planted" in caplog.text
    assert "planted" not in said["message"]
