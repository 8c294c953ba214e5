"""The public API's own server: from who the front proxy is to a Status for every refusal.

It listens on a port of its own, because only here is a client certificate asked for. The front
proxy's CA is read when the worker starts and looked at every minute; until it can be read, or while
the port is taken, the API is not served, which the log says. The worker's readiness does not depend
on it, nor does anything else the worker does.

Rules: VW-RES-01, VW-AUT-01, NS-OWN-09.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpustack_delivery.errors import (
    ApiFault,
    Conflict,
    DeliveryError,
    Forbidden,
    Invalid,
    Unreachable,
)
from gpustack_delivery.httpd import Limits, Request, Response, Server
from gpustack_delivery.ports import Clock, Kube, Passage, PluginDownloads
from gpustack_delivery.vocabulary.resources import CONFIG_MAPS
from gpustack_delivery.worker.certificates import ServingCertificate, Source
from gpustack_delivery.worker.public_api import discovery, targets
from gpustack_delivery.worker.public_api.access import Access
from gpustack_delivery.worker.public_api.front_proxy import (
    CONFIG_MAP,
    CONFIG_MAP_NAMESPACE,
    Caller,
    FrontProxy,
)
from gpustack_delivery.worker.public_api.models import Models
from gpustack_delivery.worker.public_api.openapi import ROOT, OpenApi
from gpustack_delivery.worker.public_api.progress import Deliveries
from gpustack_delivery.worker.public_api.registration import establish
from gpustack_delivery.worker.public_api.settings_api import SettingsApi
from gpustack_delivery.worker.public_api.settings_store import SettingsStore
from gpustack_delivery.worker.public_api.statuses import (
    Refused,
    document,
    no_such_path,
    refusal,
)
from gpustack_delivery.worker.public_api.targets import PROGRESS, Target

# The API server's own bound on a request is 3 MiB.
_LIMITS: Final = Limits(body_bytes=3 * 1024 * 1024, connections=2048)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ways:
    """What the public API reaches the world by."""

    kube: Kube
    passage: Passage
    plugins: PluginDownloads


@dataclass(frozen=True, slots=True)
class Place:
    """Where it listens, and whose Settings and plugins it speaks of.

    Attributes:
        host, port: to listen on; port 0 takes a free one.
        service: the Service whose APIServices are kept trusting the certificate, "" for none.
        namespace: the operator's.
        environment: where the Settings' seeds are read from.
    """

    host: str
    port: int
    service: str
    namespace: str
    environment: Mapping[str, str]


class PublicApi:
    """Serves the public API from `start` to `stop`."""

    def __init__(self, place: Place, ways: Ways, clock: Clock, certificate: Source) -> None:
        self._place = place
        self._ways = ways
        self._clock = clock
        self._source = certificate
        self._certificate: ServingCertificate | None = None
        self._access = Access(ways.passage)
        self._models = Models(ways.passage, clock)
        self._openapi = OpenApi(ways.passage)
        self._deliveries = Deliveries(ways.kube, ways.passage, clock, ways.plugins, place.namespace)
        store = SettingsStore(ways.kube, place.namespace, place.environment)
        self._settings = SettingsApi(ways.kube, clock, store)
        self._proxy: FrontProxy | None = None
        self._server: Server | None = None
        self._port = place.port

    def start(self) -> None:
        """Begin to serve if that is possible now, and else as soon as it is."""
        self._deliveries.start()
        self.look()

    def stop(self) -> None:
        """End it; safe before `start`, and not while `look` runs."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        self._deliveries.stop()

    @property
    def port(self) -> int:
        """The port it listens on, 0 while it never has on a free one."""
        return self._port

    def look(self) -> None:
        """Follow the front proxy's CA and our own certificate; the worker calls it every minute."""
        kube = self._ways.kube
        try:
            config_map = kube.get(CONFIG_MAPS, CONFIG_MAP, CONFIG_MAP_NAMESPACE)
            proxy = FrontProxy.from_wire(config_map)
            if self._certificate is not None:
                self._certificate.refresh()
            if proxy != self._proxy or self._server is None:
                self._serve(proxy)
            if self._certificate is not None:
                self._trust(self._certificate.ca_pem)
        except (DeliveryError, OSError, ValueError) as error:
            detail = getattr(error, "detail", "")
            _log.warning("the public API stays as it is: %s %s", error, detail)

    def _trust(self, ca_pem: str) -> None:
        place = self._place
        if place.service:
            establish(self._ways.kube, place.service, place.namespace, ca_pem)

    def _serve(self, proxy: FrontProxy) -> None:
        """Serve with a front proxy's CA. TLS cannot forget one it trusts, so it begins anew."""
        certificate = ServingCertificate(self._source, self._trust, proxy.ca_pem)
        before, self._server = self._server, None
        if before is not None:
            before.stop()
        server = Server(
            self._handle,
            name="public-api",
            host=self._place.host,
            port=self._port,
            tls=certificate.context,
            limits=_LIMITS,
        )
        self._certificate, self._proxy = certificate, proxy
        server.start()
        self._server, self._port = server, server.port
        _log.info("serving the public API on port %d", server.port)

    def _handle(self, request: Request) -> Response:
        try:
            return self._answer(request)
        except Refused as refused:
            return refusal(refused)
        except ApiFault as fault:
            _log.warning("the public API cannot answer: %s %s", fault, fault.detail)
            return refusal(_as_refused(fault))

    def _answer(self, request: Request) -> Response:
        proxy = self._proxy
        if proxy is None:
            raise Refused(503, "ServiceUnavailable", "the public API is starting; try again")
        caller = proxy.caller(request)
        if request.method == "GET" and (found := discovery.find(request.path)) is not None:
            return document(found)
        if request.path.startswith(ROOT):
            return self._openapi.answer(request)
        if not request.path.startswith("/apis/"):
            raise no_such_path()
        target = targets.parse(request)
        self._access.demand(caller, target.action)
        if target.subresource == PROGRESS:
            return document(self._deliveries.progress(target.namespace, target.name))
        if target.served.resource == targets.SETTINGS:
            return self._settings.answer(target, request)
        return self._models.answer(target, request, self._may_create(caller, target))

    def _may_create(self, caller: Caller, target: Target) -> Callable[[], bool]:
        action = replace(target.action, verb="create")
        return lambda: self._access.allows(caller, action)


def _as_refused(fault: ApiFault) -> Refused:
    """Return what a caller hears of a failure of the worker's own request."""
    match fault:
        case Unreachable():
            return Refused(503, "ServiceUnavailable", f"{fault}; try again")
        case Conflict():
            return Refused(409, "Conflict", f"{fault}; read it again")
        case Invalid():
            return Refused(422, "Invalid", fault.detail or str(fault))
        case Forbidden():
            message = "the worker itself may not do this: its rights do not fit its version"
            return Refused(500, "InternalError", message)
    return Refused(500, "InternalError", str(fault))
