"""An API with webhooks in the same process, and one webhook server for them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emulator.admission import Chain, NodeRestriction, Webhooks
from emulator.api import Api, Steps
from emulator.client import Client
from emulator.clock import ManualClock
from emulator.contracts import Caller, Json
from emulator.patches import FieldPatcher
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context

NAME = "check.rig.example.io"
NODE_A = Caller("system:node:node-a", ("system:nodes", "system:authenticated"))
Answer = Callable[[Json], Json]


class Hook:
    """A webhook server: keeps what it is sent, and answers as it is told."""

    def __init__(self, authority: Authority, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.requests: list[Request] = []
        self.answer: Answer = lambda _: {"allowed": True}
        self.raw: Response | None = None
        self.wait_for: threading.Event | None = None
        self.server = Server(
            self._handle, name="hook", tls=server_context(authority.issue("hook", list(hosts)))
        )
        self.server.start()

    def _handle(self, request: Request) -> Response:
        self.requests.append(request)
        if self.wait_for is not None:
            self.wait_for.wait(30)
        if self.raw is not None:
            return self.raw
        review = json.loads(request.body)
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }
        headers = [("Content-Type", "application/json")]
        return Response(200, headers, json.dumps(body).encode())

    @property
    def reviews(self) -> list[Json]:
        """Return the `request` of every review so far."""
        return [json.loads(request.body)["request"] for request in self.requests]


class Rig:
    """An API with webhooks, and one hook server for them."""

    def __init__(self) -> None:
        self.authority = Authority("test")
        self.hook = Hook(self.authority)
        self.webhooks, self.restriction = Webhooks(), NodeRestriction()
        admission = Chain(self.restriction, self.webhooks)
        self.api = Api(ManualClock(), Steps(admission=admission, patcher=FieldPatcher()))
        self.webhooks.bind(self.api.store, self.api)
        self.restriction.bind(self.api.store)
        self.client = Client(self.api)
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t1"}})

    def close(self) -> None:
        """Stop the server and the API."""
        if self.hook.wait_for is not None:
            self.hook.wait_for.set()
        self.hook.server.stop()
        self.api.close()

    def client_config(self, path: str = "/check", **changed: Any) -> Json:
        """Return a webhook's clientConfig for the hook server."""
        bundle = base64.b64encode(self.authority.certificate_pem.encode()).decode()
        return {"url": f"{self.hook.server.url}{path}", "caBundle": bundle, **changed}

    def configure(self, kind: str = "Validating", name: str = "rig-wh", **changed: Any) -> None:
        """Register a webhook for ConfigMaps."""
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["configmaps"],
            "scope": "*",
        }
        webhook: Json = {
            "name": NAME,
            "rules": [rule],
            "clientConfig": self.client_config(),
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }
        self.client.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [webhook | changed],
            }
        )

    def create(self, name: str = "a", caller: Caller | None = None, **metadata: Any) -> Json:
        """Create a ConfigMap."""
        client = self.client if caller is None else self.client.as_caller(caller)
        return client.create(config_map(name, **metadata))


def config_map(name: str, **metadata: Any) -> Json:
    """Return a ConfigMap of the test namespace."""
    metadata = {"name": name, "namespace": "t1", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}}


@contextmanager
def hooked_api() -> Iterator[Rig]:
    """Run one for the length of a block."""
    made = Rig()
    try:
        yield made
    finally:
        made.close()
