"""What the server reads, what it refuses, and that refusing is all that hostile bytes achieve."""

from __future__ import annotations

import http.client
import re
import socket
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustack_delivery.httpd import Limits, Request, Response, Server, everywhere
from tests.unit.httpd.conftest import GET, PATIENCE_SECONDS, Serve, Talk, echo, hear

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def statuses(answer: bytes) -> list[int]:
    """Return the status of every response in a byte stream."""
    return [int(status) for status in STATUS.findall(answer)]


def test_get_is_served(serve: Serve, talk: Talk) -> None:
    """A plain GET reaches the handler with path and query apart and still encoded."""
    answer = talk(serve(), b"GET /a%20b?x=%31&y HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nGET /a%20b x=%31&y ")
    assert b"Content-Length: 19\r\n" in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", 400),  # space before the colon
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),  # bare line feeds
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /#top HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS to a plain port
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n", 413),
    ],
)
def test_malformed_is_refused(serve: Serve, talk: Talk, request_bytes: bytes, status: int) -> None:
    """A malformed or oversized request gets its status, once, and the connection ends."""
    server = serve()
    answer = talk(server, request_bytes + b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
    assert statuses(answer) == [status]
    assert b"Connection: close\r\n" in answer
    assert statuses(talk(server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")) == [200]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400),
        (b"Content-Length: 3\r\nContent-Length: 3\r\n", 400),
        (b"Content-Length: 3, 3\r\n", 400),
        (b"Content-Length: +3\r\n", 400),
        (b"Content-Length: -3\r\n", 400),
        (b"Content-Length: 0x3\r\n", 400),
        (b"Content-Length: \xb2\r\n", 400),  # a digit to str.isdigit, not to anybody else
        (b"Content-Length:\r\n", 400),
        (b"Content-Length: " + b"1" * 5000 + b"\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: gzip, chunked\r\n", 501),
        (b"Transfer-Encoding: identity\r\n", 501),
        (b"Transfer-Encoding: \x0bchunked\r\n", 400),
    ],
)
def test_ambiguous_length_is_refused(serve: Serve, talk: Talk, fields: bytes, status: int) -> None:
    """A request whose length two parties could read differently is refused before its body."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n"
    smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    assert statuses(talk(serve(), head + smuggled)) == [status]


def test_transfer_encoding_needs_http_1_1(serve: Serve, talk: Talk) -> None:
    """HTTP/1.0 knows no chunks, so a 1.0 request in chunks is refused."""
    request = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert statuses(talk(serve(), request)) == [400]


@pytest.mark.parametrize(
    "chunks",
    [
        b"3\r\nabc\r\n0\r\n\r\n",
        b"1\r\na\r\n2;name=value\r\nbc\r\n000\r\nTrailer: x\r\n\r\n",
        b"1 \r\na\r\n02\r\nbc\r\n0\r\n\r\n",
    ],
)
def test_chunked_body_is_joined(serve: Serve, talk: Talk, chunks: bytes) -> None:
    """Chunks become one body; extensions and trailers are read and dropped."""
    head = b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = talk(serve(), head + chunks + b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
    assert statuses(answer) == [200, 200]
    assert b"PUT /c  abc" in answer


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        (b"x\r\nabc\r\n0\r\n\r\n", 400),
        (b"0x3\r\nabc\r\n0\r\n\r\n", 400),
        (b"+3\r\nabc\r\n0\r\n\r\n", 400),
        (b"3\nabc\r\n0\r\n\r\n", 400),
        (b"3\r\nabcdef\r\n0\r\n\r\n", 400),  # longer than its size
        (b"3;\x00\r\nabc\r\n0\r\n\r\n", 400),
        (b"\r\nabc", 400),
        (b"ffffffffffffffffffff\r\n", 400),
        (b"1;" + b"x" * 5000 + b"\r\na\r\n0\r\n\r\n", 400),
        (b"0\r\n" + b"Trailer: x\r\n" * 6000 + b"\r\n", 431),
    ],
)
def test_malformed_chunks_are_refused(serve: Serve, talk: Talk, chunks: bytes, status: int) -> None:
    """A chunk that is not exactly as long as it says, or says it oddly, ends the connection."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert statuses(talk(serve(), head + chunks)) == [status]


def test_pipelined_requests_are_answered_in_order(serve: Serve, talk: Talk) -> None:
    """Requests sent in one go are answered one after the other."""
    requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(20))
    answer = talk(serve(), requests)
    assert re.findall(rb"GET /(\d+)", answer) == [b"%d" % n for n in range(20)]


def test_bytes_that_arrive_one_by_one(serve: Serve) -> None:
    """Where the network cuts a request does not matter."""
    request = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    with socket.create_connection(("127.0.0.1", serve().port), PATIENCE_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(request)):
            sock.sendall(request[position : position + 1])
        assert hear(sock).endswith(b"POST /p  body")


def test_forms_of_the_target(serve: Serve, talk: Talk) -> None:
    """An absolute target loses scheme and authority; OPTIONS may ask about the whole server."""
    server = serve()
    absolute = b"GET http://proxy:1/a?b HTTP/1.1\r\nHost: a\r\n\r\n"
    assert talk(server, absolute).endswith(b"GET /a b ")
    bare = b"GET http://proxy HTTP/1.1\r\nHost: a\r\n\r\n"
    assert talk(server, bare).endswith(b"GET /  ")
    assert talk(server, b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").endswith(b"OPTIONS *  ")


def test_headers_are_a_case_insensitive_multimap(serve: Serve, talk: Talk) -> None:
    """Fields keep order and spelling, compare without case, and do not print their values."""
    seen: list[Request] = []

    def handler(request: Request) -> Response:
        seen.append(request)
        return Response()

    talk(serve(handler), b"GET / HTTP/1.1\r\nhost: a\r\nX-Two: 1\r\nx-two:  2 \r\n\r\n")
    headers = seen[0].headers
    assert headers.get("HOST") == "a"
    assert headers.get("none") is None
    assert headers.get("none", "default") == "default"
    assert headers.get_all("X-TWO") == ["1", "2"]
    assert list(headers.items()) == [("host", "a"), ("X-Two", "1"), ("x-two", "2")]
    assert "x-TWO" in headers
    assert repr(headers) == "Headers(host, X-Two, x-two)"


def test_expect_continue(serve: Serve) -> None:
    """The client that waits for permission gets it before it sends the body."""
    with socket.create_connection(("127.0.0.1", serve().port), PATIENCE_SECONDS) as sock:
        sock.sendall(
            b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ok")
        assert hear(sock).endswith(b"PUT /  ok")


def test_expect_continue_of_a_body_too_large(serve: Serve, talk: Talk) -> None:
    """Permission is refused for a body over the limit."""
    server = serve(limits=Limits(body_bytes=10))
    request = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n"
    assert statuses(talk(server, request)) == [413]


def test_answer_survives_an_oversized_upload(serve: Serve) -> None:
    """A client still sending a refused body reads the refusal, not a reset."""
    server = serve(limits=Limits(body_bytes=10))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", "/", body=b"x" * 500_000)
        assert connection.getresponse().status == 413
    finally:
        connection.close()


def test_slow_head_is_answered_408_and_blocks_nobody(serve: Serve, talk: Talk) -> None:
    """A client that dribbles its head is cut off by the whole head's deadline."""
    server = serve(limits=Limits(header_seconds=0.3))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
        assert statuses(talk(server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")) == [200]
        sock.settimeout(0.02)
        answer = b""
        while not answer:
            try:
                answer = sock.recv(1000)
            except TimeoutError:
                sock.sendall(b"X")  # never quiet, never done
        assert statuses(answer) == [408]


def test_slow_body_is_answered_408(serve: Serve) -> None:
    """A body that never arrives is given up."""
    server = serve(limits=Limits(body_seconds=0.1))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
        assert statuses(hear(sock)) == [408]


def test_silent_clients_are_let_go_without_a_word(serve: Serve) -> None:
    """A client that never speaks, or has nothing more to say, is disconnected silently."""
    server = serve(limits=Limits(header_seconds=0.1, idle_seconds=0.1))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        assert hear(sock) == b""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert statuses(hear(sock)) == [200]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bodies=st.lists(st.lists(st.binary(min_size=1, max_size=40), max_size=4), max_size=4),
    cuts=st.lists(st.integers(min_value=1, max_value=60), max_size=12),
)
def test_framing_does_not_depend_on_the_network(
    serve: Serve, bodies: list[list[bytes]], cuts: list[int]
) -> None:
    """Requests in chunks or with a length are read the same, wherever chunks and packets end."""
    seen: list[bytes] = []

    def handler(request: Request) -> Response:
        seen.append(request.body)
        return Response()

    stream = b""
    for number, pieces in enumerate(bodies):
        head = b"PUT / HTTP/1.1\r\nHost: a\r\n"
        if number % 2:
            stream += head + b"Transfer-Encoding: chunked\r\n\r\n"
            stream += b"".join(b"%X\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            stream += b"0\r\n\r\n"
        else:
            body = b"".join(pieces)
            stream += head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    server = serve(handler)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in cuts:
            sock.sendall(stream[:cut])
            stream = stream[cut:]
        sock.sendall(stream)
        sock.shutdown(socket.SHUT_WR)
        assert statuses(hear(sock)) == [200] * len(bodies)
    server.stop()
    assert seen == [b"".join(pieces) for pieces in bodies]


FRAGMENTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"HEAD /x?y HTTP/1.0\r\n", b"Host: a\r\n",
        b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"\r\n", b"\n", b"\r", b"0\r\n\r\n",
        b"5\r\nhello\r\n", b"hello", b"\x00", b"\xff" * 40, b": ", b" ", b"HTTP/9.9",
    ]
)  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.one_of(FRAGMENTS, st.binary(max_size=30)), max_size=12))
def test_hostile_bytes_never_kill_the_server(serve: Serve, talk: Talk, pieces: list[bytes]) -> None:
    """Whatever is sent, the answers are well-formed statuses, no thread dies, others are served."""
    died: list[object] = []
    hook, threading.excepthook = threading.excepthook, died.append
    try:
        server = serve()
        answer = talk(server, b"".join(pieces))
        server.stop()
    finally:
        threading.excepthook = hook
    assert not died
    assert not answer or answer.startswith(b"HTTP/1.1 ")
    assert set(statuses(answer)) <= {100, 200, 400, 408, 413, 417, 431, 501, 505}


@pytest.mark.needs("ipv6")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_everywhere_is_both_families(address: str) -> None:
    """Pods have addresses of either family, and what listens everywhere answers at both."""
    with (
        Server(echo, name="test", host=everywhere()) as server,
        socket.create_connection((address, server.port), PATIENCE_SECONDS) as sock,
    ):
        sock.sendall(GET)
        sock.shutdown(socket.SHUT_WR)
        assert hear(sock).startswith(b"HTTP/1.1 200 ")
