"""Answers that never end: whatever a hub trickles or floods, a call is over when its time is."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from gpustack_delivery.adapters.http import Http, TransportFault
from gpustack_delivery.adapters.plugin_port import PluginPort
from gpustack_delivery.errors import HostFault
from tests.unit.origin import Origin, Seen, Wire, tls_terms

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_ZIPPED = _OK + b"Content-Encoding: gzip\r\n\r\n"

ENDLESS = {
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a status line": (b"HTTP/1.1 200 ", b"a"),
    "a header": (_OK + b"X: ", b"a"),
    "a body": (_OK + b"Content-Length: 1000000000000\r\n\r\n", b"a"),
    "a chunk's extension": (_CHUNKED + b"5;", b"a"),
    "trailers": (_CHUNKED + b"0\r\n", b"a: b\r\n"),
    "compressed nothing": (_ZIPPED, gzip.compress(b"")),
}


@pytest.fixture
def http() -> Iterator[Http]:
    """Give requests that have a moment each, without any proxy of the machine's."""
    http = Http(environment={}, timeout_seconds=0.2)
    yield http
    http.close()


def endless(first: bytes, again: bytes, wire: Wire) -> None:
    """Send a beginning, and then the same bytes until the client is gone."""
    wire.send(first)
    while not wire.hung_up(0.01):
        wire.send(again)


@pytest.mark.parametrize("what", ENDLESS)
def test_call_ends_in_time_whatever_trickles_in(http: Http, what: str) -> None:
    """Each part of an answer may come byte by byte for ever, and none outlasts the call's time."""
    with (
        Origin(lambda seen, wire: endless(*ENDLESS[what], wire)) as origin,
        pytest.raises(TransportFault, match="a timeout"),
    ):
        http.call("GET", origin.url)


def test_proxy_that_never_opens_the_tunnel_is_a_timeout() -> None:
    """A proxy's own answer is under the same clock as the target's."""
    with Origin(lambda seen, wire: endless(*ENDLESS["a header"], wire)) as proxy:
        http = Http(environment={"HTTPS_PROXY": proxy.url}, timeout_seconds=0.2)
        with pytest.raises(TransportFault, match="a timeout"):
            http.call("GET", "https://hub.invalid/")
        http.close()


@pytest.mark.parametrize("what", ["interim answers", "a header", "a body", "trailers"])
def test_plugin_that_trickles_is_given_up(what: str) -> None:
    """The worker asks plugins for their progress, and none of them holds it for long."""
    terms, _ = tls_terms()
    with (
        Origin(lambda seen, wire: endless(*ENDLESS[what], wire), terms) as plugin,
        pytest.raises(HostFault),
    ):
        PluginPort().read("127.0.0.1", plugin.port, timeout_seconds=0.3)


def test_body_of_a_redirect_is_never_read(http: Http) -> None:
    """A redirect may declare any body: the next place is asked without waiting for it."""

    def handler(seen: Seen, wire: Wire) -> None:
        if seen.target == "/there":
            wire.respond(200, b"here")
            return
        head = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 1000000000000\r\n\r\n"
        endless(head, b"a", wire)

    with Origin(handler) as origin:
        assert http.call("GET", origin.url).body == b"here"
