"""Requests over real sockets: answers, bodies, redirects, credentials and failures."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Iterator

import pytest

from gpustack_delivery.adapters.http import CredentialFault, Http, Stream, TransportFault
from gpustack_delivery.redaction import Token
from tests.unit.origin import HANG_UP, Origin, Seen, Wire

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


def test_call_returns_status_headers_and_body(http: Http) -> None:
    """A small answer comes whole, with our name in the request and the credential as a bearer."""
    with Origin(lambda seen, wire: wire.respond(404, b"no", X_Error_Code="Gone")) as origin:
        answer = http.call("GET", f"{origin.url}/x?y=1", token=TOKEN)
    assert (answer.status, answer.body, answer.headers["x-error-code"]) == (404, b"no", "Gone")
    (seen,) = origin.seen
    assert (seen.method, seen.target) == ("GET", "/x?y=1")
    assert seen.headers["user-agent"] == "gpustack-operator"
    assert seen.headers["authorization"] == "Bearer hf_canary"


def test_call_without_a_credential_sends_none(http: Http) -> None:
    """No token, no header; cookies are not kept between requests."""
    with Origin(lambda seen, wire: wire.respond(200, Set_Cookie="a=b")) as origin:
        http.call("HEAD", origin.url)
        http.call("GET", origin.url)
    assert all("authorization" not in seen.headers for seen in origin.seen)
    assert all("cookie" not in seen.headers for seen in origin.seen)


def test_call_body_is_bounded_also_when_compressed(http: Http) -> None:
    """A body past the limit is refused while it is read, counted as it inflates."""
    bomb = gzip.compress(bytes(5 << 20))

    def handler(seen: Seen, wire: Wire) -> None:
        if seen.target == "/bomb":
            wire.respond(200, bomb, Content_Encoding="gzip")
        else:
            wire.respond(200, bytes(1 << 20))

    with Origin(handler) as origin:
        assert len(http.call("GET", origin.url, limit_bytes=1 << 20).body) == 1 << 20
        for target in ("/", "/bomb"):
            with pytest.raises(TransportFault, match="a body over 0 MiB"):
                http.call("GET", origin.url + target, limit_bytes=(1 << 20) - 1)


def test_call_follows_redirects_unless_told_not_to(http: Http) -> None:
    """A redirect is followed by default and returned as it is on request."""

    def handler(seen: Seen, wire: Wire) -> None:
        if seen.target == "/here":
            wire.respond(302, Location="/there")
        else:
            wire.respond(200, b"there")

    with Origin(handler) as origin:
        assert http.call("GET", f"{origin.url}/here").url == f"{origin.url}/there"
        answer = http.call("HEAD", f"{origin.url}/here", follow=False)
        assert (answer.status, answer.url) == (302, f"{origin.url}/here")


@pytest.mark.parametrize("way", ["call", "stream"])
def test_credential_stays_with_its_host(http: Http, way: str) -> None:
    """A redirect to another port is followed without the credential, and back without it too."""
    hub: Origin

    def elsewhere(seen: Seen, wire: Wire) -> None:
        wire.respond(307, Location=f"{hub.url}/end")

    def at_hub(seen: Seen, wire: Wire) -> None:
        if seen.target == "/end":
            wire.respond(200, b"end")
        else:
            wire.respond(302, b"moved", Location=f"{other.url}/signed?secret=1")

    with Origin(at_hub) as hub, Origin(elsewhere) as other:
        if way == "call":
            http.call("GET", f"{hub.url}/start", token=TOKEN)
        else:
            stream = http.stream(f"{hub.url}/start", token=TOKEN)
            assert read_all(stream) == b"end"
            stream.close()
        carried = [seen.headers.get("authorization") for seen in hub.seen]
        assert carried == ["Bearer hf_canary", None]
        assert [seen.headers.get("authorization") for seen in other.seen] == [None]


def test_callers_own_authorization_obeys_the_rule_too(http: Http) -> None:
    """A header that a caller made for a host is not sent to another one."""
    with Origin(lambda seen, wire: wire.respond(200, b"end")) as other:
        redirect = f"{other.url}/end"
        with Origin(lambda seen, wire: wire.respond(302, b"", Location=redirect)) as hub:
            http.call("GET", hub.url, headers={"Authorization": "Basic canary"})
        assert hub.seen[0].headers["authorization"] == "Basic canary"
        assert "authorization" not in other.seen[0].headers


def test_redirects_that_never_end_are_ended(http: Http) -> None:
    """Eleven requests are made, then the chain is given up."""
    with Origin(lambda seen, wire: wire.respond(302, Location="/again")) as origin:
        with pytest.raises(TransportFault, match="too many redirects"):
            http.call("GET", origin.url)
        assert len(origin.seen) == 11
        with pytest.raises(TransportFault, match="too many redirects"):
            http.stream(origin.url)


def test_stream_reads_a_declared_body_and_keeps_the_connection(http: Http) -> None:
    """Bodies read to their declared end share one connection; no compression is asked for."""
    with Origin(lambda seen, wire: wire.respond(206, CONTENT, Content_Range="x")) as origin:
        for _ in range(3):
            stream = http.stream(origin.url, headers={"Range": "bytes=0-9"})
            assert (stream.status, stream.declared_bytes) == (206, len(CONTENT))
            assert stream.headers["content-range"] == "x"
            assert read_all(stream) == CONTENT
            stream.close()
    assert origin.connections == 1
    assert origin.seen[0].headers["accept-encoding"] == "identity"
    assert origin.seen[0].headers["range"] == "bytes=0-9"


def test_stream_closed_early_gives_its_connection_up(http: Http) -> None:
    """What is left of an unread body can never be taken for the next answer."""
    with Origin(lambda seen, wire: wire.respond(200, CONTENT)) as origin:
        first = http.stream(origin.url)
        with memoryview(bytearray(10)) as view:
            assert first.read_into(view) > 0
        first.close()
        second = http.stream(origin.url)
        assert read_all(second) == CONTENT
        second.close()
    assert origin.connections == 2


def test_stream_of_a_chunked_body(http: Http) -> None:
    """A chunked body has no declared length, and its end shows."""

    def handler(seen: Seen, wire: Wire) -> None:
        wire.respond(200, Content_Length="", Transfer_Encoding="chunked")
        for at in range(0, len(CONTENT), 100_000):
            piece = CONTENT[at : at + 100_000]
            wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        wire.send(b"0\r\n\r\n")

    with Origin(handler) as origin:
        stream = http.stream(origin.url)
        assert (stream.declared_bytes, stream.delimited) == (None, True)
        assert read_all(stream) == CONTENT
        stream.close()


def test_stream_of_a_body_that_ends_with_its_connection(http: Http) -> None:
    """Without length and chunks the end is only the connection's end, and the stream says so."""

    def handler(seen: Seen, wire: Wire) -> str:
        wire.respond(200, CONTENT, Content_Length="")
        return HANG_UP

    with Origin(handler) as origin:
        stream = http.stream(origin.url)
        assert (stream.declared_bytes, stream.delimited) == (None, False)
        assert read_all(stream) == CONTENT
        stream.close()


@pytest.mark.parametrize(
    "broken",
    [
        b"Content-Length: 10\r\n\r\n12345",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n5\r\n12",
    ],
)
def test_body_that_ends_early_is_a_fault(http: Http, broken: bytes) -> None:
    """Every byte before the break is delivered, then the break is told."""

    def handler(seen: Seen, wire: Wire) -> str:
        wire.send(b"HTTP/1.1 200 OK\r\n" + broken)
        return HANG_UP

    with Origin(handler) as origin:
        stream = http.stream(origin.url)
        got = bytearray()
        with pytest.raises(TransportFault, match=r"a body that ended early|a connection failure"):
            read_all(stream, into=got)
        stream.close()
    assert got.startswith(b"12345")


def refusing() -> str:
    """Return the URL of a port that nobody listens on."""
    with Origin(lambda seen, wire: None) as origin:
        return origin.url


@pytest.mark.parametrize("way", ["call", "stream"])
@pytest.mark.parametrize("answer", [b"", b"no HTTP at all\r\n\r\n"])
def test_connection_failures_have_few_words(http: Http, way: str, answer: bytes) -> None:
    """A hang-up, an answer that is none and a closed port are told without host and URL."""

    def handler(seen: Seen, wire: Wire) -> str:
        wire.send(answer)
        return HANG_UP

    with Origin(handler) as origin:
        for url, words in (
            (f"{origin.url}/secret?signature=canary", "a connection failure"),
            (refusing(), "a connection that was refused"),
        ):
            with pytest.raises(TransportFault) as caught:
                http.call("GET", url) if way == "call" else http.stream(url)
            assert str(caught.value) == words
            assert "canary" not in caught.value.detail
            assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize("way", ["call", "stream"])
def test_a_name_without_an_address_is_told_as_such(
    http: Http, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it looks at the name and at DNS, not at the server."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(TransportFault, match=r"^a host name that cannot be resolved$"):
        http.call("GET", "http://hub.example/x") if way == "call" else http.stream(
            "http://hub.example/x"
        )


@pytest.mark.parametrize("value", ["with\nnewline", "with space", "snow\u2603", "tab\t"])
def test_credential_that_no_header_carries_is_never_sent(http: Http, value: str) -> None:
    """A token that would break the header is refused before any request, and not repeated."""
    with Origin(lambda seen, wire: wire.respond(200)) as origin:
        for ask in (http.call, lambda _, url, token: http.stream(url, token=token)):
            with pytest.raises(CredentialFault) as caught:
                ask("GET", origin.url, token=Token(value))
            assert value not in f"{caught.value!s}{caught.value.detail}"
    assert origin.seen == []


def test_debug_logging_shows_no_signed_url(http: Http, caplog: pytest.LogCaptureFixture) -> None:
    """Even with everything logged, the library below does not write request targets."""
    with (
        caplog.at_level(logging.DEBUG),
        Origin(lambda seen, wire: wire.respond(200, b"ok")) as origin,
    ):
        stream = http.stream(f"{origin.url}/x?signature=canary")
        read_all(stream)
        stream.close()
        http.call("GET", f"{origin.url}/x?signature=canary")
    assert "canary" not in caplog.text
