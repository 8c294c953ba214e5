"""How answers leave: framing, files, streams, failures, and who hears of them."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack_delivery.httpd import FileSlice, Request, Response, Server
from tests.unit.httpd.conftest import GET, PATIENCE_SECONDS, Feed, Serve, Talk


def connect(server: Server) -> http.client.HTTPConnection:
    """Return a client of the standard library."""
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)


def test_head_is_answered_like_get_without_the_body(
    serve: Serve, talk: Talk, tmp_path: Path
) -> None:
    """HEAD names the length GET would have, sends no more, and closes what it does not send."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    files = []
    feed = Feed()

    def handler(request: Request) -> Response:
        if request.path == "/file":
            files.append(path.open("rb"))
            return Response(200, [], FileSlice(files[-1], 0, 100))
        if request.path == "/feed":
            return Response(200, [], feed, live=True)
        if request.path == "/declared":
            return Response(200, [("Content-Length", "64424509440")])
        return Response(200, [], b"body")

    server = serve(handler)
    for target, field in [
        (b"/bytes", b"Content-Length: 4\r\n"),
        (b"/file", b"Content-Length: 100\r\n"),
        (b"/feed", b"Transfer-Encoding: chunked\r\n"),
        (b"/declared", b"Content-Length: 64424509440\r\n"),
    ]:
        answer = talk(server, b"HEAD " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert field in answer
        assert answer.endswith(b"\r\n\r\n")
        assert answer.count(b"Content-Length") <= 1
    assert files[0].closed
    assert feed.closed.is_set()


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body(serve: Serve, talk: Talk, status: int) -> None:
    """204 and 304 have neither body nor length, and the connection lives on."""
    answer = talk(serve(lambda _: Response(status)), GET + GET)
    assert answer.count(b"HTTP/1.1 %d " % status) == 2
    assert b"Content-Length" not in answer


def test_large_bytes_arrive_whole(serve: Serve) -> None:
    """A body of many pieces arrives as it was."""
    body = bytes(range(256)) * 8000
    connection = connect(serve(lambda _: Response(200, [], body)))
    try:
        connection.request("GET", "/")
        assert connection.getresponse().read() == body
    finally:
        connection.close()


def test_file_slice_is_sent_and_closed(serve: Serve, tmp_path: Path) -> None:
    """Exactly the slice arrives, its file is closed, and the connection lives on."""
    path = tmp_path / "file"
    content = bytes(range(256)) * 40000
    path.write_bytes(content)
    files = []

    def handler(request: Request) -> Response:
        start, end = (int(number) for number in request.query.split("-"))
        files.append(path.open("rb"))
        return Response(200, [], FileSlice(files[-1], start, end - start))

    connection = connect(serve(handler))
    try:
        for start, end in [(0, 0), (0, 1), (5, 3_000_000), (0, len(content))]:
            connection.request("GET", f"/?{start}-{end}")
            assert connection.getresponse().read() == content[start:end]
    finally:
        connection.close()
    assert all(file.closed for file in files)


def test_file_that_shrank_ends_short(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file shorter than promised cuts the connection: the client must not take it for whole."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    server = serve(lambda _: Response(200, [], FileSlice(path.open("rb"), 0, 2000)))
    connection = connect(server)
    try:
        connection.request("GET", "/")
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            connection.getresponse().read()
    finally:
        connection.close()
    server.stop()
    assert "ended 1000 bytes early" in caplog.text


def test_iterator_is_sent_in_chunks(serve: Serve, talk: Talk) -> None:
    """Each piece is a chunk, an empty piece is no end, and the connection lives on."""
    answer = talk(serve(lambda _: Response(200, [], iter([b"ab", b"", b"c" * 20]))), GET + GET)
    assert answer.count(b"\r\n\r\n2\r\nab\r\n14\r\n" + b"c" * 20 + b"\r\n0\r\n\r\n") == 2


def test_iterator_for_http_1_0_ends_with_the_connection(serve: Serve, talk: Talk) -> None:
    """A client that knows no chunks gets the bare pieces."""
    server = serve(lambda _: Response(200, [], iter([b"ab", b"c"])))
    answer = talk(server, b"GET / HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nabc")
    assert b"Transfer-Encoding" not in answer


@pytest.mark.parametrize("pieces", [[b"ab"], [b"ab", b"cd"]])
def test_iterator_that_breaks_its_length(
    serve: Serve, talk: Talk, pieces: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """An iterator with a declared length that yields less or more never overruns it."""
    server = serve(lambda _: Response(200, [("Content-Length", "3")], iter(pieces)))
    answer = talk(server, GET + GET)
    assert answer.count(b"HTTP/1.1") <= 1
    assert len(answer.partition(b"\r\n\r\n")[2]) < 3
    server.stop()
    assert "was to have 3 bytes" in caplog.text


def test_iterator_with_a_length(serve: Serve, talk: Talk) -> None:
    """An iterator that keeps its declared length is sent without chunks."""
    server = serve(lambda _: Response(200, [("Content-Length", "3")], iter([b"ab", b"c"])))
    answer = talk(server, GET + GET)
    assert answer.count(b"Content-Length: 3\r\n\r\nabc") == 2


def test_iterator_that_fails_is_cut_and_closed(
    serve: Serve, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream whose source fails ends without its last chunk, is closed, and the log says why."""
    closed = threading.Event()

    def source() -> Iterator[bytes]:
        try:
            yield b"ab"
            raise RuntimeError("the source broke")
        finally:
            closed.set()

    server = serve(lambda _: Response(200, [], source()))
    assert b"0\r\n\r\n" not in talk(server, GET)
    assert closed.is_set()
    server.stop()
    assert "the source broke" in caplog.text


def test_handler_failure_is_500_and_the_connection_lives_on(
    serve: Serve, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler's exception is an answer and a log line, and says nothing to the client."""

    def handler(request: Request) -> Response:
        if request.path == "/fail":
            raise RuntimeError("secret reason")
        return Response(200, [], b"fine")

    server = serve(handler)
    answer = talk(server, b"GET /fail?signature=x HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"fine")
    assert b"secret reason" not in answer
    assert "GET /fail failed" in caplog.text
    assert "signature" not in caplog.text


@pytest.mark.parametrize(
    "response",
    [
        Response(200, [("X-Split", "a\r\nSet-Cookie: b")]),
        Response(200, [("X\r\nY", "a")]),
        Response(200, [("X-Wide", "\u2713")]),
        Response(200, [("Transfer-Encoding", "chunked")]),
        Response(200, [("Content-Length", "7")], b"four"),
        Response(200, [("Content-Length", "many")], b"four"),
    ],
)
def test_impossible_answers_become_500(serve: Serve, talk: Talk, response: Response) -> None:
    """A header that would break the framing never reaches the wire."""
    answer = talk(serve(lambda _: response), GET)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"Set-Cookie" not in answer


def test_close_by_client_or_handler(serve: Serve, talk: Talk) -> None:
    """Either side may ask for the connection's end, and the second request is then not served."""
    server = serve(lambda _: Response(200, [("Connection", "close")]))
    answer = talk(server, GET + GET)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert answer.count(b"Connection: close\r\n") == 1
    asked = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n"
    assert talk(serve(), asked + GET).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    ("error", "reset"), [(ConnectionResetError, True), (ConnectionAbortedError, False)]
)
def test_iterator_may_break_the_connection_off(
    serve: Serve, caplog: pytest.LogCaptureFixture, error: type[ConnectionError], *, reset: bool
) -> None:
    """A body that breaks off on purpose resets the connection or ends it, and nobody complains."""

    def source() -> Iterator[bytes]:
        yield b"ab"
        raise error

    server = serve(lambda _: Response(200, [("Content-Length", "9")], source()))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(GET)
        try:
            while sock.recv(1000):
                pass
            ended_by_reset = False
        except ConnectionResetError:
            ended_by_reset = True
    server.stop()
    assert ended_by_reset == reset
    assert not caplog.records


def test_done_hears_how_much_was_sent(serve: Serve, talk: Talk, tmp_path: Path) -> None:
    """`done` is called once per answer with its body's bytes, whole or not, framing not counted."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    counts: list[int] = []

    def takeover(sock: socket.socket, _: bytes) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def handler(request: Request) -> Response:
        done = counts.append
        if request.path == "/bytes":
            return Response(200, [], b"four", done=done)
        if request.path == "/file":
            return Response(200, [], FileSlice(path.open("rb"), 10, 100), done=done)
        if request.path == "/chunks":
            return Response(200, [], iter([b"ab", b"c"]), done=done)
        if request.path == "/short":
            return Response(200, [("Content-Length", "9")], iter([b"ab"]), done=done)
        return Response(body=takeover, done=done)

    server = serve(handler)
    for name in (b"bytes", b"file", b"chunks", b"short", b"takeover"):
        talk(server, b"GET /" + name + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    talk(server, b"HEAD /bytes HTTP/1.1\r\nHost: a\r\n\r\n")
    assert counts == [4, 100, 3, 2, 0, 0]


def test_takeover_owns_the_connection(serve: Serve, talk: Talk) -> None:
    """A takeover gets the socket and the bytes already read, and the connection closes after it."""

    def takeover(sock: socket.socket, rest: bytes) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + rest.upper())

    server = serve(lambda _: Response(body=takeover))
    assert talk(server, GET + b"hello").endswith(b"\r\n\r\nHELLO")
