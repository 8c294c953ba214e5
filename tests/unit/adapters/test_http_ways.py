"""The way to a server: certificates, proxies, and requests that are brought down on the way."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator

import pytest

from gpustack_delivery.adapters.http import Flight, Http, Stream, TransportFault
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.redaction import Token
from tests.unit.origin import HANG_UP, Handler, Origin, Seen, Wire, tls_terms

TOKEN = Token("hf_canary")
CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def http() -> Iterator[Http]:
    """Give requests without any proxy of the machine's."""
    http = Http(environment={})
    yield http
    http.close()


def read_all(stream: Stream, into: bytearray | None = None) -> bytes:
    """Read a body to its end through a small buffer."""
    body = bytearray() if into is None else into
    with memoryview(bytearray(70_000)) as view:
        while count := stream.read_into(view):
            body += view[:count]
    return bytes(body)


@pytest.mark.parametrize("way", ["call", "stream"])
def test_untrusted_certificate_is_named(http: Http, way: str) -> None:
    """A server whose CA nobody gave is not spoken to; with its CA, or unverified, it is."""
    terms, ca_pem = tls_terms()
    trusting = Http(ca_pem=ca_pem, environment={})
    careless = Http(verify=False, environment={})
    with Origin(lambda seen, wire: wire.respond(200, b"ok"), tls=terms) as origin:
        with pytest.raises(TransportFault, match="a certificate that is not trusted"):
            http.call("GET", origin.url) if way == "call" else http.stream(origin.url)
        for client in (trusting, careless):
            if way == "call":
                assert client.call("GET", origin.url).body == b"ok"
            else:
                stream = client.stream(origin.url)
                assert read_all(stream) == b"ok"
                stream.close()
    trusting.close()
    careless.close()


def test_bundle_is_trusted_beside_the_systems() -> None:
    """Adding a CA removes none."""
    _, ca_pem = tls_terms()
    before = ssl.create_default_context().cert_store_stats()["x509_ca"]
    client = Http(ca_pem=ca_pem, environment={})
    assert client._context.cert_store_stats()["x509_ca"] == before + 1
    client.close()


@pytest.mark.parametrize("ca_pem", ["not a certificate", "-----BEGIN CERTIFICATE-----\nzz\n"])
def test_bundle_that_is_none_is_refused(ca_pem: str) -> None:
    """A bundle without a readable certificate is a fault of the configuration."""
    with pytest.raises(ConfigurationFault, match=r"ca\.crt"):
        Http(ca_pem=ca_pem, environment={})


def tunnel_to(target: Origin) -> Handler:
    """Return a proxy's handler that connects every CONNECT request to one server."""

    def handler(seen: Seen, wire: Wire) -> str:
        assert seen.method == "CONNECT"
        wire.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        wire.splice(target.port)
        return HANG_UP

    return handler


@pytest.mark.parametrize("way", ["call", "stream"])
def test_https_goes_through_the_proxy_by_name(way: str) -> None:
    """The proxy is asked to connect by name, sees no credential, and excepted names pass it by."""
    terms, ca_pem = tls_terms("hub.example")
    with (
        Origin(lambda seen, wire: wire.respond(200, b"ok"), tls=terms) as hub,
        Origin(tunnel_to(hub)) as proxy,
    ):
        client = Http(proxy=proxy.url, no_proxy="direct.example", ca_pem=ca_pem, environment={})
        if way == "call":
            assert client.call("GET", "https://hub.example/x", token=TOKEN).body == b"ok"
        else:
            stream = client.stream("https://hub.example/x", token=TOKEN)
            assert read_all(stream) == b"ok"
            stream.close()
        with pytest.raises(TransportFault, match=r"a host name|a connection"):
            client.call("GET", "https://direct.example:1/x")
        client.close()
        assert [seen.target for seen in proxy.seen] == ["hub.example:443"]
        assert "authorization" not in proxy.seen[0].headers
        assert hub.seen[0].headers["authorization"] == "Bearer hf_canary"


@pytest.mark.parametrize("way", ["call", "stream"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 canary\r\nContent-Length: 0\r\n\r\n", "the proxy answered HTTP 407"),
        (b"HTTP/1.1 502 canary\r\nContent-Length: 0\r\n\r\n", "the proxy answered HTTP 502"),
        (None, "the proxy: a connection that was refused"),
    ],
)
def test_what_a_proxy_refuses_is_said_to_be_the_proxys(
    way: str, answer: bytes | None, words: str
) -> None:
    """By its status alone: whoever reads of it must not look for the fault at the hub."""

    def refuse(_: Seen, wire: Wire) -> object:
        wire.send(answer or b"")
        return HANG_UP

    with Origin(refuse) as proxy:
        url = proxy.url if answer else "http://127.0.0.1:1"
        client = Http(proxy=url, environment={})
        target = "https://hub.example/x"
        with pytest.raises(TransportFault) as raised:
            client.call("GET", target) if way == "call" else client.stream(target)
        client.close()
    assert (str(raised.value), "canary" in raised.value.detail) == (words, False)


def test_environment_proxy_may_carry_credentials() -> None:
    """A proxy from the environment gets its user and password, for plain http in absolute form."""
    with Origin(lambda seen, wire: wire.respond(200, b"ok")) as proxy:
        where = proxy.url.replace("http://", "http://me:p%40ss@")
        client = Http(environment={"HTTP_PROXY": where})
        stream = client.stream("http://hub.example/x")
        assert read_all(stream) == b"ok"
        stream.close()
        client.close()
        (seen,) = proxy.seen
        assert seen.target == "http://hub.example/x"
        assert seen.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("when", ["before", "no answer", "mid body"])
def test_flight_is_brought_down_at_any_moment(when: str, *, tls: bool) -> None:
    """An aborted request ends at once: before it starts, while it waits, and within its body."""
    terms, ca_pem = tls_terms()

    def handler(seen: Seen, wire: Wire) -> str:
        if when == "mid body":
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n12345")
        reached.set()
        wire.wait_for_hangup()
        return HANG_UP

    def bring_down() -> None:
        reached.wait()
        flight.abort()

    def ask() -> None:
        stream = client.stream(origin.url, flight=flight)
        try:
            read_all(stream)
        finally:
            stream.close()

    reached = threading.Event()
    client = Http(ca_pem=ca_pem, environment={})
    flight = Flight()
    if when == "before":
        flight.abort()
    with Origin(handler, tls=terms if tls else None) as origin:
        watchdog = threading.Thread(target=bring_down)
        watchdog.start()
        with pytest.raises(TransportFault):
            ask()
        reached.set()
        watchdog.join()
        assert flight.aborted
    client.close()


def test_landed_flight_harms_nobody(http: Http) -> None:
    """Aborting after the body was read leaves the connection to its next request."""
    with Origin(lambda seen, wire: wire.respond(200, b"ok")) as origin:
        flight = Flight()
        stream = http.stream(origin.url, flight=flight)
        assert read_all(stream) == b"ok"
        stream.close()
        flight.abort()
        again = http.stream(origin.url, flight=Flight())
        assert read_all(again) == b"ok"
        again.close()
        assert origin.connections == 1
