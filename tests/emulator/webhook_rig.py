"""A webhook server for recordings: answers by path as the recorded one did, and keeps what it got.

Recorded addresses stay in the recordings; what our server says of its own address is brought back
to them before anything is compared.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from emulator.contracts import Json
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context

RECORDED_ADDRESS = "127.0.0.1:19443"
RECORDED_DEAD_ADDRESS = "127.0.0.1:19444"
DENIAL = {"message": "lease widget-x is held by node-b", "code": 403, "reason": "Forbidden"}
_LABEL = [{"op": "add", "path": "/metadata/labels", "value": {"mutated": "yes"}}]


def _patched() -> Json:
    patch = base64.b64encode(json.dumps(_LABEL).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


ANSWERS: Mapping[str, Callable[[], Json]] = {
    "/allow": lambda: {"allowed": True},
    "/deny": lambda: {"allowed": False, "status": DENIAL},
    "/deny-plain": lambda: {"allowed": False, "status": {"message": "plain denial message"}},
    "/deny-nomsg": lambda: {"allowed": False},
    "/deny-422": lambda: {
        "allowed": False,
        "status": {"message": "field spec.size is immutable", "code": 422, "reason": "Invalid"},
    },
    "/warn": lambda: {
        "allowed": True,
        "warnings": ["this is a webhook warning", "second warning"],
    },
    "/wronguid": lambda: {"allowed": True, "uid": "00000000-0000-0000-0000-000000000000"},
    "/mutate": _patched,
}


class RecordedHook:
    """The recordings' webhook server, on a port of our own."""

    def __init__(self, hosts: Sequence[str] = ("127.0.0.1",)) -> None:
        self.authority = Authority("rig")
        self.stranger = Authority("stranger")
        self.requests: list[Request] = []
        self.released = threading.Event()
        pair = self.authority.issue("hook", hosts)
        self.server = Server(self._handle, name="hook", tls=server_context(pair))
        self.server.start()
        gone = Server(self._handle, name="gone", tls=server_context(pair))
        gone.start()
        self.dead_address = gone.url.removeprefix("https://")
        gone.stop()

    @property
    def address(self) -> str:
        """Return host:port."""
        return self.server.url.removeprefix("https://")

    def _handle(self, request: Request) -> Response:
        self.requests.append(request)
        if request.path == "/error500":
            return Response(500)
        if request.path == "/slow":
            self.released.wait(30)
        answer = ANSWERS.get(request.path, ANSWERS["/allow"])()
        review = json.loads(request.body)["request"]
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": review["uid"], **answer},
        }
        return Response(200, [("Content-Type", "application/json")], json.dumps(body).encode())

    def config(self, recorded: Json, *, trusted: bool = True) -> Json:
        """Return a recorded clientConfig with our address and our certificate in it."""
        authority = self.authority if trusted else self.stranger
        changed = dict(recorded)
        if "url" in changed:
            changed["url"] = changed["url"].replace(RECORDED_ADDRESS, self.address)
            changed["url"] = changed["url"].replace(RECORDED_DEAD_ADDRESS, self.dead_address)
        changed["caBundle"] = base64.b64encode(authority.certificate_pem.encode()).decode()
        return changed

    def as_recorded(self, text: str) -> str:
        """Return text with the recorded addresses in place of ours."""
        text = text.replace(self.address, RECORDED_ADDRESS)
        return text.replace(self.dead_address, RECORDED_DEAD_ADDRESS)

    def received(self) -> list[Json]:
        """Return what came in since the last call, in the recordings' form."""
        taken, self.requests = self.requests, []
        return [self._shown(request) for request in taken]

    def _shown(self, request: Request) -> Json:
        headers = {name: self.as_recorded(value) for name, value in request.headers.items()}
        body: Any = json.loads(request.body)
        return {
            "httpMethod": request.method,
            "httpPath": request.target,
            "httpHeaders": headers,
            "body": body,
        }


@contextmanager
def recorded_hook(*hosts: str) -> Iterator[RecordedHook]:
    """Run the server, with a certificate for its address or for these hosts."""
    hook = RecordedHook(hosts or ("127.0.0.1",))
    try:
        yield hook
    finally:
        hook.released.set()
        hook.server.stop()
