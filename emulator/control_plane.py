"""The API server with everything it is put together from, its controllers and the scheduler.

`Cluster` owns one. The parts know each other only here: access, admission, patches, discovery and
the connections that pass through the server.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Self

from emulator.access.security import Security, SecurityOptions
from emulator.admission import Chain, NodeRestriction, Policies, Webhooks
from emulator.aggregation import Aggregation
from emulator.aggregation.front_proxy import FrontProxy
from emulator.api import Api
from emulator.api_server import ApiServer, Doors
from emulator.client import Client
from emulator.contracts import Caller, Clock, Json, Target
from emulator.discovery import Discovery, ServerInfo
from emulator.errors import ApiError, failure
from emulator.faults.requests import RequestFaults
from emulator.node import Node, full_version
from emulator.node_lifecycle import NodeLifecycle
from emulator.paper import PaperNodes
from emulator.patches import FieldPatcher
from emulator.routes import Route
from emulator.scheduler import Scheduler
from emulator.state import Steps
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context

_HOSTS = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ACCOUNT_PREFIX = "system:serviceaccount:"
_TOKEN_SECONDS = 10 * 365 * 86400
_KUBELET_PATHS = {"configz", "healthz"}
_PLAIN_TEXT = "text/plain; charset=utf-8"


class ControlPlane:
    """One API server over HTTPS, its controllers and a scheduler, from `start` to `stop`."""

    def __init__(
        self,
        kubernetes: str,
        clock: Clock,
        nodes: Mapping[str, Node],
        seed: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            kubernetes: the version it plays, such as 1.30.
            nodes: the machines by name, whose kubelets the node proxy reaches; it may grow.
            seed: of uids and generated names.
        """
        self._kubernetes = kubernetes
        self._nodes = nodes
        self.authority = Authority("emulated-kubernetes")
        patcher, self.webhooks, restriction = FieldPatcher(), Webhooks(), NodeRestriction()
        policies = Policies()
        admission = Chain(restriction, policies, self.webhooks)
        options = SecurityOptions(kubernetes=kubernetes)
        self.security = Security(clock, patcher, options, admission)
        steps = Steps(self.security.authorizer, admission, patcher)
        self.api = Api(clock, steps, root_ca=self.authority.certificate_pem, seed=seed)
        if not self.security.features.bookmarks_at_rest:
            self.api.keep_silent_at_rest()
        self.paper_nodes = PaperNodes(self.api, clock, full_version(kubernetes))
        self.webhooks.bind(self.api.store, self.api)
        policies.bind(self.api.store, self.api)
        restriction.bind(self.api.store)
        self.security.install(self.api)
        self.front_proxy = FrontProxy(self.security.features, self.authority.certificate_pem)
        self.aggregation = Aggregation(
            self._component("apiserver", "kube-apiserver"),
            clock,
            self.front_proxy,
            self.webhooks.routes,
        )
        self._scheduler = Scheduler(self._component("kube-scheduler"), clock)
        self._lifecycle = NodeLifecycle(self._component("kube-controller-manager"), clock)
        pair = self.authority.issue("kube-apiserver", _HOSTS)
        context = server_context(pair, client_ca=self.authority.certificate_pem)
        self._server = Server(self._answer, name="kube-apiserver", tls=context)
        self._front: ApiServer | None = None
        self.request_faults = RequestFaults(clock, self._who)

    def start(self) -> Self:
        """Serve."""
        self._server.start()
        info = ServerInfo(self._kubernetes, f"127.0.0.1:{self._server.port}")
        discovery = Discovery(
            self.api,
            info,
            self.security.signer,
            self.aggregation.remote_versions,
            self.aggregation.specifications,
        )
        doors = Doors(
            authenticator=self.security.authenticator,
            extras=(discovery,),
            aggregator=self.aggregation,
            connectors={("", "nodes", "proxy"): self._proxy},
        )
        self._front = ApiServer(self.api, doors)
        self.aggregation.start()
        self._scheduler.start()
        self._lifecycle.start()
        return self

    def stop(self) -> None:
        """End it all."""
        self._lifecycle.stop()
        self._scheduler.stop()
        self.aggregation.stop()
        self.api.close()
        self._server.stop(drain_seconds=1.0)

    def start_server(self) -> None:
        """Serve again after `stop_server`, at the same address."""
        self.request_faults.gate.shut = True
        self.api.store.begin_anew()
        self._server.start()

    def stop_server(self) -> None:
        """Break every connection and refuse new ones; controllers and what is stored stay."""
        self.request_faults.gate.shut = False
        self.request_faults.gate.open()
        self._server.stop(drain_seconds=0.0)

    @property
    def url(self) -> str:
        """Return where clients find the server."""
        return f"https://127.0.0.1:{self._server.port}"

    def kubeconfig(self, user: str, pod: tuple[str, str] | None) -> Json:
        """Return a client's configuration with a new token for a user.

        Raises:
            LookupError: the account, or the Pod that its token is to be bound to, does not exist.
        """
        name = "emulated"
        encoded = base64.b64encode(self.authority.certificate_pem.encode()).decode()
        cluster = {"server": self.url, "certificate-authority-data": encoded}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._token(user, pod)}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }

    def _token(self, user: str, pod: tuple[str, str] | None) -> str:
        """Return a token that outlives any test: whoever reads a file once cannot renew it."""
        if not user.startswith(_ACCOUNT_PREFIX):
            return self.security.user_token(user)
        namespace, _, name = user.removeprefix(_ACCOUNT_PREFIX).partition(":")
        bound = pod[1] if pod is not None else ""
        return self.security.account_token(namespace, name, pod=bound, seconds=_TOKEN_SECONDS)

    def _answer(self, request: Request) -> Response:
        if self._front is None:  # a client that guesses the port is faster than `start`
            return Response(503, [("Retry-After", "1")])
        return self.request_faults.respond(request, self._front.handle)

    def _who(self, request: Request) -> str:
        try:
            return self.security.authenticator.authenticate(request).name
        except ApiError:
            return ""

    def _component(self, name: str, manager: str = "") -> Client:
        """Return a client for a part of the control plane, which may do everything."""
        groups = ("system:masters", "system:authenticated")
        agent = f"{manager or name}/emulator"
        return Client(self.api, Caller(f"system:{name}", groups, user_agent=agent))

    def _proxy(self, _: Caller, target: Target, route: Route, request: Request) -> Response:
        """Pass a request on to a node's kubelet."""
        name = target.name.split(":")[0]
        self.api.get(Target(target.resource, name=name))
        node = self._nodes.get(name) or self.paper_nodes.get(name)
        configuration = node.configz() if node is not None else None
        if configuration is None:
            address = node.address if node is not None else name
            text = f"dial tcp {address}:10250: connect: connection refused"
            raise failure(503, "ServiceUnavailable", f"error trying to reach service: {text}")
        if request.method not in {"GET", "HEAD"} or route.rest not in _KUBELET_PATHS:
            return Response(404, [("Content-Type", _PLAIN_TEXT)], b"404 page not found\n")
        if route.rest == "healthz":
            return Response(200, [("Content-Type", _PLAIN_TEXT)], b"ok")
        body = json.dumps(configuration).encode()
        return Response(200, [("Content-Type", "application/json")], body)
