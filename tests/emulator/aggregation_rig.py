"""A server with an aggregator, and the program behind its APIService, as in recording 25."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.aggregation import Aggregation
from emulator.aggregation.front_proxy import FrontProxy
from emulator.api_server import ApiServer, Doors
from emulator.client import Client
from emulator.clock import ManualClock
from emulator.contracts import Caller
from emulator.discovery import Discovery, ServerInfo
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context
from tests.emulator.access_rig import (
    ADDRESS,
    CERTIFICATE,
    VERSION,
    Certified,
    SecuredSession,
    secured,
)
from tests.emulator.comparison import differences
from tests.emulator.replay import Hook, Json

RECORDED_PORT = "19443"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
ROOT = "/apis/agg.example.io/v1"
RESOURCES = [
    {
        "name": "gizmos",
        "singularName": "gizmo",
        "namespaced": True,
        "kind": "Gizmo",
        "verbs": ["get", "list"],
    }
]
_LIST = {"kind": "GizmoList", "apiVersion": "agg.example.io/v1", "metadata": {}, "items": []}
_NOTHING = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "the server could not find the requested resource",
    "reason": "NotFound",
    "details": {},
    "code": 404,
}


class _Reached(ApiServer):
    """A server that is asked over loopback."""

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        return super().handle(replace(request, client=("127.0.0.1", 40000)))


class Backend:
    """The recordings' aggregated server on a port of our own; keeps what it was asked."""

    def __init__(self, authority: Authority, hosts: list[str], client_ca: str | None) -> None:
        self.authority = authority
        self.requests: list[Request] = []
        self.resources: list[Json] = list(RESOURCES)
        self.answer: Callable[[Request], Response | None] = lambda _: None
        tls = server_context(authority.issue("agg", hosts), client_ca=client_ca)
        self.server = Server(self._handle, name="backend", tls=tls)

    @property
    def bundle(self) -> str:
        """Return what an APIService trusts to reach this server."""
        return base64.b64encode(self.authority.certificate_pem.encode()).decode()

    def _handle(self, request: Request) -> Response:
        if request.headers.get("X-Remote-User") != "system:kube-aggregator":
            self.requests.append(request)
        given = self.answer(request)
        if given is not None:
            return given
        if request.path == ROOT:
            listed = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": "agg.example.io/v1",
                "resources": self.resources,
            }
            return answered(200, listed)
        found = request.path.endswith("/gizmos")
        return answered(200, _LIST) if found else answered(404, _NOTHING)


def answered(status: int, body: Any) -> Response:
    """Return a JSON answer."""
    return Response(status, [("Content-Type", "application/json")], json.dumps(body).encode())


@dataclass
class AggregatedSession(SecuredSession):
    """A session whose server has an aggregator; what its backend was sent is compared too."""

    aggregation: Aggregation = field(init=False)
    backend: Backend = field(init=False)
    stranger: Authority = field(default_factory=lambda: Authority("stranger"))
    gate: threading.Condition = field(default_factory=threading.Condition)  # for streams
    _audits: list[str] = field(default_factory=list)

    def rest(self) -> None:
        """Let the aggregator look at every change."""
        assert isinstance(self.clock, ManualClock)
        self.clock.rest()

    def serve(self) -> None:
        """Put the backend behind a Service by a route, and an APIService before it."""
        port = {"port": self.backend.server.port, "protocol": "TCP", "name": "https"}
        service = {"metadata": {"name": "agg"}, "spec": {"ports": [port]}}
        self.make("POST", "/api/v1/namespaces/default/services", service)
        self.webhooks.routes["default", "agg"] = ("127.0.0.1", self.backend.server.port)
        self.make("POST", SERVICES, self.service())
        self.rest()

    def service(self, *, trusted: bool = True) -> Json:
        """Return the recorded APIService with our port and certificate."""
        authority = self.backend.authority if trusted else self.stranger
        bundle = base64.b64encode(authority.certificate_pem.encode()).decode()
        service = {"namespace": "default", "name": "agg", "port": self.backend.server.port}
        spec = {
            "group": "agg.example.io", "version": "v1", "groupPriorityMinimum": 1000,
            "versionPriority": 15, "service": service, "caBundle": bundle,
        }  # fmt: skip
        return {"metadata": {"name": "v1.agg.example.io"}, "spec": spec}

    def send(self, method: str, path: str, body: Any = None, headers: Any = None) -> Response:
        """Send one request as the recordings' client did."""
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        response = super().send(method, path, body, sent)
        self._audits = [value for name, value in response.headers if name == "Audit-Id"]
        return response

    def _exchange(self, exchange: Json, hook: Hook) -> list[str]:
        self.backend.requests.clear()
        found = super()._exchange(exchange, hook)
        recorded = exchange.get("requestSeenByTheAggregatedServer")
        if recorded is None:
            return found
        seen = [self._as_recorded(_shown(one)) for one in self.backend.requests]
        if [one["headers"]["Audit-Id"] for one in seen] != self._audits:
            found.append("the audit ids of the request and of its answer differ")
        return found + differences(_opened(recorded), _opened(seen), self.bindings)

    def _body(self, request: Json) -> Any:
        body = super()._body(request)
        text = json.dumps(body).replace("<base64-pem>", self.backend.bundle)
        return json.loads(text.replace(RECORDED_PORT, str(self.backend.server.port)))

    def _received(self, response: Response) -> Json:
        received = self._as_recorded(super()._received(response))
        body = received.get("body")
        if isinstance(body, dict) and body.get("kind") == "Table":
            # The recording left the built-in groups out of this list.
            names = ("v1.agg.example.io", "v1.rig.example.io")
            body["rows"] = [row for row in body["rows"] if row["cells"][0] in names]
        return received

    def _as_recorded(self, value: Json) -> Json:
        text = json.dumps(value).replace(str(self.backend.server.port), RECORDED_PORT)
        for authority in (self.backend.authority, self.stranger):
            bundle = base64.b64encode(authority.certificate_pem.encode()).decode()
            text = text.replace(bundle, "<base64-pem>")
        found: Json = json.loads(text)
        return found


def _shown(request: Request) -> Json:
    """Return a request in the recordings' form."""
    headers: dict[str, Any] = {}
    for name, _ in request.headers.items():
        values = request.headers.get_all(name)
        headers[name] = values[0] if len(values) == 1 else values
    headers.pop(CERTIFICATE, None)  # stands for what TLS would have found
    return {"method": request.method, "path": request.path, "headers": headers}


def _opened(value: Any) -> Any:
    """Compare the uid in a token's id as the uid it is, and of a certificate's id the kind."""
    if isinstance(value, dict):
        return {name: _opened(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_opened(held) for held in value]
    if isinstance(value, str) and value.startswith("JTI="):
        return {"JTI": value.removeprefix("JTI=")}
    if isinstance(value, str) and value.startswith("X509SHA256="):
        return "X509SHA256"
    return value


@contextmanager
def aggregated(hosts: tuple[str, ...] = ("agg.default.svc",)) -> Iterator[AggregatedSession]:
    """Open a session on a server with an aggregator, and start the program behind it."""
    clock = ManualClock()
    with ExitStack() as stack:
        opened = stack.enter_context(secured(AggregatedSession, clock))
        assert isinstance(opened, AggregatedSession)
        proxy = FrontProxy(opened.security.features, "")
        caller = Caller(
            "system:apiserver", ("system:masters",), user_agent="kube-apiserver/emulator"
        )
        client = Client(opened.api, caller)
        opened.aggregation = Aggregation(client, clock, proxy, opened.webhooks.routes)
        opened.backend = Backend(Authority("agg-ca"), list(hosts), proxy.authority_pem)
        opened.backend.server.start()
        stack.callback(opened.backend.server.stop)
        opened.aggregation.start()
        stack.callback(opened.aggregation.stop)
        info = ServerInfo(VERSION, ADDRESS)
        discovery = Discovery(
            opened.api,
            info,
            opened.security.signer,
            opened.aggregation.remote_versions,
            opened.aggregation.specifications,
        )
        doors = Doors(Certified(opened.security), (discovery,), opened.aggregation)
        opened.server = _Reached(opened.api, doors)
        opened.rest()
        yield opened
