"""Heads of answers: cut after each of their bytes, and those that come before the answer's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpustack_delivery.adapters.http import Http, TransportFault
from tests.unit.node.downloading.site import SEGMENT, Site, pattern
from tests.unit.origin import HANG_UP, Origin, Seen, Wire

HEADS: Final = {
    "a part": b"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-9/1234\r\nContent-Length: 10\r\n\r\n",
    "all": b"HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 1234\n\n",
    "a redirect": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /signed?by=us\r\n\r\n",
    "a refusal": b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nX-Error-Code: RevisionNotFound\r\n\r\n",
    "an interim one": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}
CONTENT: Final = pattern(SEGMENT * 2 + 5)


@pytest.fixture
def http() -> Iterator[Http]:
    """Give requests without any proxy of the machine's."""
    http = Http(environment={})
    yield http
    http.close()


@pytest.mark.parametrize("way", ["call", "stream"])
@pytest.mark.parametrize("what", HEADS)
def test_half_a_head_is_no_answer(http: Http, what: str, way: str) -> None:
    """Not one that is cut in a number or a name, nor one that lacks its last empty line alone."""
    head = HEADS[what]
    cuts = [head[:length] for length in range(len(head))]

    def answer(_: Seen, wire: Wire) -> object:
        wire.send(remaining.pop(0))
        return HANG_UP

    remaining = list(cuts)
    with Origin(answer) as origin:
        for _ in cuts:
            with pytest.raises(TransportFault):
                http.call("GET", origin.url) if way == "call" else http.stream(origin.url)
        assert all(seen.target == "/" for seen in origin.seen)


@pytest.mark.parametrize("way", ["call", "stream"])
def test_interim_answers_are_none(http: Http, way: str) -> None:
    """A hub or a proxy on the way may send any number of them, early hints for instance."""
    interim = b"".join(b"HTTP/1.1 %d Wait\r\nLink: </x>\r\n\r\n" % code for code in (103, 100, 199))

    def answer(_: Seen, wire: Wire) -> None:
        wire.send(interim + b"HTTP/1.1 206 Part\r\nContent-Length: 2\r\n\r\nok")

    with Origin(answer) as origin:
        for _ in range(2):  # the connection is as good as before
            if way == "call":
                whole = http.call("GET", origin.url)
                assert (whole.status, whole.body, whole.headers.get("Link")) == (206, b"ok", None)
            else:
                stream, view = http.stream(origin.url), memoryview(bytearray(9))
                assert (stream.status, bytes(view[: stream.read_into(view)])) == (206, b"ok")
                stream.close()


def test_no_progress_is_lost_by_a_head_that_is_cut(tmp_path: Path) -> None:
    """A size that lacks digits is not another file's: nothing is thrown away, and it is resumed."""
    cuts: Iterator[int] = iter(())

    def answer(seen: Seen, wire: Wire) -> object:
        first, last = seen.byte_range
        head = f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-{last}/{len(CONTENT)}\r\n"
        if first and (end := next(cuts, None)) is not None:
            wire.send(head.encode()[:end])
            return HANG_UP
        wire.respond_range(seen, CONTENT)
        return None

    for cut in range(-8, 0):
        cuts = iter((cut, cut))
        with Origin(answer) as origin:
            site = Site(tmp_path / str(cut), origin.url)
            site.fetch(site.target("model", CONTENT))
            assert site.content("model") == CONTENT
            assert site.received == len(CONTENT)
            site.close()
