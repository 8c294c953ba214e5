"""The worker: who it is, its webhooks, and a leader's controllers.

Every replica serves the webhooks from its start on; the controllers run in the one replica that
holds the Lease. The worker learns its own identity first, because its webhooks cannot guard
anything without it, and refuses to start on a configuration that cannot be meant.

    options = WorkerOptions(namespace="gpustack-system", model_manager_service_account="plugin")
    worker = Worker(options, clock, kube)
    worker.start()

Rules: NS-OWN-12, NS-OWN-19, OP-SET-02.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from gpustack_delivery.errors import ConfigurationFault, Conflict, Unreachable
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.ports import Clock, Kube, Passage, PluginDownloads
from gpustack_delivery.worker.certificates import (
    Directory,
    InMemory,
    ServingCertificate,
    SharedSecret,
    Source,
)
from gpustack_delivery.worker.fence import FencedKube
from gpustack_delivery.worker.granting import Granting
from gpustack_delivery.worker.hubs import OpenHub, open_hub
from gpustack_delivery.worker.identity import learn_identity
from gpustack_delivery.worker.inquiries import Inquiries
from gpustack_delivery.worker.leader import Candidacy, Elector
from gpustack_delivery.worker.metrics import Metrics
from gpustack_delivery.worker.options import WorkerOptions
from gpustack_delivery.worker.public_api.service import Place, PublicApi, Ways
from gpustack_delivery.worker.term import Duties, Term
from gpustack_delivery.worker.trust import establish_all
from gpustack_delivery.worker.webhooks import LOOK_SECONDS, Principals, Webhooks

CERTIFICATE_SECONDS: Final = 60.0
_START_ATTEMPTS: Final = 30
_START_PAUSE_SECONDS: Final = 2.0

Made = TypeVar("Made")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """What only the public API needs: the way for others' requests, and to the plugins' ports."""

    passage: Passage
    plugins: PluginDownloads


class Worker:
    """One replica, from `start` to `stop`.

    Without `public` it serves no public API, whatever its options say.
    """

    def __init__(
        self,
        options: WorkerOptions,
        clock: Clock,
        kube: Kube,
        opened: OpenHub = open_hub,
        public: Aggregated | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._kube = kube
        self._open_hub = opened
        self._metrics = Metrics()
        self._source = self._certificate_source()
        self._certificate: ServingCertificate | None = None
        self._server: Server | None = None
        self._elector: Elector | None = None
        self._term: Term | None = None
        self._webhooks: Webhooks | None = None
        self._public = public
        self._public_api: PublicApi | None = None
        hasty = kube.within(LOOK_SECONDS)
        self._inquiries = Inquiries(hasty, clock)
        self._granting = Granting(hasty, clock)
        self._changed = threading.Condition()
        self._stopping = False
        self._keeper = threading.Thread(target=self._keep, name="certificate", daemon=True)

    def start(self) -> None:
        """Learn who we are, serve the webhooks, and stand for leader.

        Raises:
            ConfigurationFault: the identity, the certificate or the address cannot be had.
            ApiFault: the API server does not answer, or does not allow what a worker needs.
        """
        options = self._options
        username = self._patiently(lambda: learn_identity(self._kube, options.own_token))
        certificate = self._patiently(lambda: ServingCertificate(self._source, self._trust))
        self._certificate = certificate
        principals = Principals(username, options.plugin_username, options.namespace)
        self._granting.start()
        self._webhooks = Webhooks(
            self._inquiries,
            principals,
            self._metrics,
            self._granting,
            completes_volumes=options.completes_volumes,
        )
        self._server = self._listen(certificate)
        self._start_public_api()
        self._keeper.start()
        candidacy = Candidacy(
            options.namespace, options.webhook_service, options.replica, options.lease_seconds
        )
        self._elector = Elector(self._kube, self._clock, candidacy, self._lead, self._follow)
        self._elector.start()
        _log.info("serving as %s on port %d", username, self._server.port)

    def retire(self) -> None:
        """Say that the end is near: a start that waits gives up, and probes hear of it."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Give the leadership back, then stop serving; safe twice, and after a failed start."""
        self.retire()
        if self._elector is not None:
            self._elector.stop()
            self._elector = None
        if self._keeper.ident is not None:
            self._keeper.join()
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._public_api is not None:
            self._public_api.stop()
            self._public_api = None
        self._granting.stop()

    @property
    def url(self) -> str:
        """The webhooks' address, without a final slash."""
        if self._server is None:
            raise ConfigurationFault("the worker is not started")
        return self._server.url

    @property
    def ca_pem(self) -> str:
        """The CA certificates that the webhooks' callers verify it by."""
        if self._certificate is None:
            raise ConfigurationFault("the worker is not started")
        return self._certificate.ca_pem

    @property
    def public_api_port(self) -> int:
        """Where the public API listens, 0 while it does not."""
        return self._public_api.port if self._public_api else 0

    @property
    def leading(self) -> bool:
        """Whether this replica leads now."""
        elector = self._elector
        return elector is not None and elector.leading

    def _lead(self) -> None:
        """Begin a term; called when the Lease is won."""
        options = self._options
        duties = Duties(
            namespace=options.namespace,
            environment=dict(options.environment),
            open_hub=self._open_hub,
            webhook_configuration=options.webhook_configuration,
            ca_pem=lambda: self.ca_pem,
            prefetch_moved=self._inquiries.stir,
            runs_consumers=options.runs_consumers,
        )
        fenced = FencedKube(self._kube, lambda: self.leading)
        self._term = Term(fenced, self._clock, duties, self._metrics)
        self._term.start()
        self._metrics.led(leading=True)

    def _follow(self) -> None:
        """End the term; called when the Lease is lost or given back."""
        self._metrics.led(leading=False)
        term, self._term = self._term, None
        if term is not None:
            term.stop()

    def _handle(self, request: Request) -> Response:
        """Answer webhooks, metrics and probes."""
        webhooks = self._webhooks
        text = [("Content-Type", "text/plain; charset=utf-8")]
        match request.path.split("/")[1]:
            case "validate" | "mutate" if webhooks is not None:
                return webhooks.handle(request)
            case "metrics":
                return Response(200, text, self._metrics.render())
            case "readyz" if self._stopping:
                return Response(503, text, b"stopping\n")
            case "readyz" | "livez":
                return Response(200, text, b"ok\n")
        return Response(404, text, b"not found\n")

    def _keep(self) -> None:
        """Look after the certificate until the end."""
        while self._pause(CERTIFICATE_SECONDS):
            if self._certificate is not None:
                self._certificate.refresh()
            if self._public_api is not None:
                self._public_api.look()

    def _trust(self, ca_pem: str) -> None:
        if self._options.webhook_configuration:
            establish_all(self._kube, self._options.webhook_configuration, ca_pem)

    def _patiently(self, attempt: Callable[[], Made]) -> Made:
        """Try again while the API server does not answer, or others are faster; not for ever."""
        for _ in range(_START_ATTEMPTS):
            try:
                return attempt()
            except (Unreachable, Conflict) as fault:
                _log.warning("waiting for the Kubernetes API: %s %s", fault, fault.detail)
            if not self._pause(_START_PAUSE_SECONDS):
                break
        return attempt()

    def _pause(self, seconds: float) -> bool:
        """Wait; False if the worker is to stop."""
        deadline = self._clock.monotonic() + seconds
        with self._changed:
            while not self._stopping and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._changed, left)
            return not self._stopping

    def _listen(self, certificate: ServingCertificate) -> Server:
        options = self._options
        server = Server(
            self._handle,
            name="webhooks",
            host=options.host,
            port=options.webhook_port,
            tls=certificate.context,
        )
        try:
            return server.start()
        except OSError as error:
            message = f"cannot listen on {options.host} port {options.webhook_port}"
            raise ConfigurationFault(f"{message}: {error.strerror}") from None

    def _start_public_api(self) -> None:
        options, public = self._options, self._public
        if public is None or not options.public_api_service:
            return
        kept = options.public_api_service if options.webhook_configuration else ""
        place = Place(
            options.host, options.public_api_port, kept, options.namespace, options.environment
        )
        ways = Ways(self._kube, public.passage, public.plugins)
        self._public_api = PublicApi(place, ways, self._clock, self._source)
        self._public_api.start()

    def _certificate_source(self) -> Source:
        options = self._options
        if options.certificate_directory is not None:
            return Directory(options.certificate_directory)
        services = [
            f"{name}.{options.namespace}.svc"
            for name in (options.webhook_service, options.public_api_service)
            if name
        ]
        local = [f"{service}.cluster.local" for service in services]
        hosts = [*services, *local, "localhost", "127.0.0.1"]
        if not options.webhook_configuration:
            return InMemory(hosts)
        name = f"{options.webhook_configuration}-webhook"
        return SharedSecret(self._kube, options.namespace, name, hosts)
