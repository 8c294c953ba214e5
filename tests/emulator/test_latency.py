"""Nothing the emulator sends waits in the kernel for an acknowledgement of what it sent before."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.request
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from emulator.clock import ManualClock
from emulator.faults import Relay
from emulator.hubs import Proxy
from gpustack_delivery.httpd import Request, Response, Server
from tests.emulator.access_rig import certificate
from tests.emulator.aggregation_rig import ROOT, aggregated
from tests.emulator.hooked_api import hooked_api

_PATIENCE_SECONDS = 30.0


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the connections on which something is sent while the kernel may put it off."""
    found: list[str] = []

    def watch(kind: type[socket.socket], name: str) -> None:
        send = getattr(kind, name)

        def watched(self: socket.socket, *args: Any) -> Any:
            internet = self.family in {socket.AF_INET, socket.AF_INET6}
            if internet and not self.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
                found.append(f"{self.getsockname()} to {self.getpeername()}")
            return send(self, *args)

        monkeypatch.setattr(kind, name, watched)

    for kind in (socket.socket, ssl.SSLSocket):
        for name in ("send", "sendall"):
            watch(kind, name)
    return found


def _answer(request: Request) -> Response:
    return Response(200, body=request.body or b"served")


def test_webhooks_are_called_at_once(held_back: list[str]) -> None:
    """A review leaves right behind the head of its request."""
    with hooked_api() as rig:
        rig.configure()
        rig.create()
        assert rig.hook.requests
    assert held_back == []


def test_requests_are_passed_on_at_once(held_back: list[str]) -> None:
    """So do the checks of an APIService, and a body on its way to the server behind it."""
    with aggregated() as session:
        session.serve()
        headers = certificate("kubernetes-admin", "system:masters")
        session.send("POST", f"{ROOT}/namespaces/t1/gizmos", {"kind": "Gizmo"}, headers)
        assert session.backend.requests
    assert held_back == []


def test_the_network_between_programs_does_not_dawdle(held_back: list[str]) -> None:
    """A relay passes on what it has, both ways."""
    with Server(_answer, name="far") as far, Relay(("127.0.0.1", far.port)) as relay:
        host, port = relay.address
        request = urllib.request.Request(f"http://{host}:{port}/", data=b"x" * 3000)
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310
            assert answer.read() == b"x" * 3000
    assert held_back == []


@pytest.mark.parametrize("tunnelled", [False, True])
def test_a_forward_proxy_does_not_dawdle(held_back: list[str], tunnelled: bool) -> None:  # noqa: FBT001 - a parameter
    """What the proxy sends, to clients and to servers, leaves at once."""
    with Server(_answer, name="far") as far, Proxy(clock=ManualClock()) as proxy:
        address = urlsplit(proxy.url)
        client = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=_PATIENCE_SECONDS
        )
        with closing(client):
            if tunnelled:
                client.set_tunnel("127.0.0.1", far.port)
            client.request("POST", "/" if tunnelled else f"{far.url}/", b"body")
            assert client.getresponse().read() == b"body"
    assert held_back == []
