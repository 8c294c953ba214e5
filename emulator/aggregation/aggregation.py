"""The aggregator: which requests belong to another server, how they are passed on, and what that
server adds to discovery and OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from emulator.aggregation.availability import API_SERVICES, Availability, condition_of
from emulator.aggregation.backends import BackendFault, Backends, Outgoing, passed_on
from emulator.aggregation.emptying import Emptying
from emulator.aggregation.front_proxy import FrontProxy, names_somebody
from emulator.aggregation.local import LocalServices
from emulator.aggregation.specifications import Specifications
from emulator.client import Client
from emulator.contracts import Caller, Clock, Json
from emulator.discovery.merging import RemoteVersion
from emulator.services import Address, Routes, ServiceFault
from gpustack_delivery.httpd import Request, Response

_TEXT = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
]
_OPENAPI = "/openapi/v3/apis/"
_FORWARDED = frozenset(("host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-uri"))


class Aggregation:
    """APIServices of one API server, from `start` to `stop`. Thread-safe."""

    def __init__(self, client: Client, clock: Clock, proxy: FrontProxy, routes: Routes) -> None:
        """`client` acts as the API server itself; `routes` stand in for Services."""
        self._client, self._proxy = client, proxy
        self._store = client.api.store
        self._backends = Backends(self._store, routes, proxy)
        self._local = LocalServices(client)
        self.specifications = Specifications(self._backends, self._services)
        self._availability = Availability(client, clock, (self._backends, self._local), routes)

    def start(self) -> None:
        """Publish who the front proxy is, and begin to look after APIServices."""
        for document in self._proxy.objects():
            self._client.create(document)
        self._local.install()
        self._client.api.attach(Emptying(self._backends, self._remotes))
        self._availability.start()

    def stop(self) -> None:
        """End."""
        self._availability.stop()

    def idle(self) -> bool:
        """Say whether every change has been looked at."""
        return self._availability.idle()

    def remote_versions(self) -> Iterator[RemoteVersion]:
        """Yield what other servers serve, reachable or not."""
        return (remote for _, remote in self._remotes())

    def _services(self) -> Iterator[tuple[Json, bool]]:
        """Yield the APIServices of other servers, and whether each is available."""
        for found in self._store.all(API_SERVICES):
            if found["spec"].get("service"):
                yield found, _available(found)

    def _remotes(self) -> Iterator[tuple[Json, RemoteVersion]]:
        for found, available in self._services():
            spec = found["spec"]
            resources = self._availability.served(found["metadata"]["name"])
            yield (
                spec,
                RemoteVersion(
                    group=spec["group"],
                    version=spec["version"],
                    priorities=(spec["groupPriorityMinimum"], spec["versionPriority"]),
                    available=available,
                    resources=tuple(resources) if available else (),
                ),
            )

    def forward(self, caller: Caller, request: Request, audit_id: str) -> Response | None:
        """Return another server's answer, or None when no APIService claims the path."""
        path = request.path
        if path.startswith(_OPENAPI):
            path = "/" + path.removeprefix("/openapi/v3/")
        parts = path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis" or not parts[3]:
            return None
        name = f"{unquote(parts[3])}.{unquote(parts[2])}"
        found = self._store.get(API_SERVICES, "", name)
        if found is None or not found["spec"].get("service"):
            return None
        if request.headers.get("Upgrade"):
            text = "501: connections that change protocol are not emulated behind an APIService\n"
            return Response(501, list(_TEXT), text.encode())
        return self._passed_on(found, caller, request, audit_id)

    def _passed_on(
        self, api_service: Json, caller: Caller, request: Request, audit_id: str
    ) -> Response:
        if not _available(api_service):
            return _unavailable("service unavailable")
        spec = api_service["spec"]
        try:
            address = self._backends.address(spec)
            return self._backends.send(
                spec, address, self._outgoing(caller, request, address, audit_id)
            )
        except ServiceFault:
            return _unavailable("service unavailable")
        except BackendFault as fault:
            return _unavailable(f"error trying to reach service: {fault}")

    def _outgoing(
        self, caller: Caller, request: Request, address: Address, audit_id: str
    ) -> Outgoing:
        """Return the request as the other server gets it."""
        host = f"{address.host}:{address.port}"
        before = request.headers.get_all("X-Forwarded-For")
        kept = [
            (key, value)
            for key, value in passed_on(request.headers.items())
            if not names_somebody(key)
            and key.lower() not in _FORWARDED
            and key.lower() != "x-forwarded-for"
        ]
        headers = [
            ("Host", host),
            *kept,
            ("Audit-Id", audit_id),
            ("X-Forwarded-For", ", ".join([*before, request.client[0]])),
            ("X-Forwarded-Host", host),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Uri", request.path),
            *self._proxy.headers(caller),
        ]
        target = f"{request.path}?{request.query}" if request.query else request.path
        return Outgoing(request.method, target, tuple(headers), request.body)


def _available(api_service: Json) -> bool:
    condition = condition_of(api_service)
    return condition is not None and condition["status"] == "True"


def _unavailable(text: str) -> Response:
    return Response(503, list(_TEXT), f"{text}\n".encode())
