"""Every answer a source may give, and what becomes of the attempt and of the file."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from gpustack_delivery.errors import AttemptFault, Reason
from tests.unit.node.downloading.site import SEGMENT, Site, pattern
from tests.unit.origin import HANG_UP, Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
CONTENT = pattern(SEGMENT * 5 + 100)
PAGE = b"<html>sign in</html>"


def whole(wire: Wire, content: bytes = CONTENT) -> None:
    """Answer with everything, as a server does that knows no ranges."""
    wire.respond(200, content)


def chunked(wire: Wire, content: bytes, status: int = 200, **headers: str) -> None:
    """Answer without a length."""
    wire.respond(status, b"", Content_Length="", Transfer_Encoding="chunked", **headers)
    for at in range(0, len(content), 10_000):
        piece = content[at : at + 10_000]
        wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    wire.send(b"0\r\n\r\n")


def ended(site: Site, content: bytes = CONTENT) -> AttemptFault:
    """Fetch a file that cannot be had and return why."""
    with pytest.raises(AttemptFault) as caught:
        site.fetch(site.target("f", content))
    return caught.value


@pytest.mark.parametrize("status", [401, 403, 404])
def test_refusal_is_not_repeated(serve: Serve, status: int) -> None:
    """One request, then AccessDenied with the status as its detail."""
    site, origin = serve(lambda seen, wire: wire.respond(status, b"no"))
    fault = ended(site)
    assert (fault.reason, str(fault)) == (Reason.ACCESS_DENIED, f"HTTP {status}")
    assert len(origin.seen) == 1


@pytest.mark.parametrize("status", [204, 400, 409, 416, 429, 500, 502, 503])
def test_failing_source_is_asked_six_times(serve: Serve, status: int) -> None:
    """A first request and five retries, then SourceUnavailable."""
    site, origin = serve(lambda seen, wire: wire.respond(status))
    fault = ended(site)
    assert (fault.reason, str(fault)) == (Reason.SOURCE_UNAVAILABLE, f"HTTP {status}")
    assert len(origin.seen) == 6


@pytest.mark.parametrize("status", [416, 429, 502])
def test_one_failure_is_survived(serve: Serve, status: int) -> None:
    """A failure in the middle costs one retry of one range."""
    failed: list[int] = []

    def handler(seen: Seen, wire: Wire) -> None:
        if seen.byte_range[0] == SEGMENT * 2 and not failed:
            failed.append(status)
            wire.respond(status)
        else:
            wire.respond_range(seen, CONTENT)

    site, origin = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert len(origin.seen) == 7


@pytest.mark.parametrize(
    "span", ["", "bytes 1-9/*", "bytes */*", "items 0-9/10", "bytes 0-9", "bytes -0-9/100"]
)
def test_wrong_range_is_not_used(serve: Serve, span: str) -> None:
    """A 206 that does not begin where it should, or does not say where, brings nothing."""
    site, _ = serve(lambda seen, wire: wire.respond(206, CONTENT, Content_Range=span))
    fault = ended(site)
    assert fault.reason is Reason.SOURCE_UNAVAILABLE
    assert str(fault) == "another range than asked for"


def test_multipart_ranges_are_not_used(serve: Serve) -> None:
    """A 206 of several parts has no range of its own; its framing is never taken for content."""
    site, _ = serve(
        lambda seen, wire: wire.respond(
            206, CONTENT, Content_Type="multipart/byteranges; boundary=x"
        )
    )
    assert ended(site).reason is Reason.SOURCE_UNAVAILABLE


@pytest.mark.parametrize("total", [len(CONTENT) - 1, len(CONTENT) + 1, 0])
def test_another_total_is_a_mismatch(serve: Serve, total: int) -> None:
    """A 206 of a file of another size fails the attempt at once and leaves no file."""

    def handler(seen: Seen, wire: Wire) -> None:
        first, last = seen.byte_range
        wire.respond(206, CONTENT[first : last + 1], Content_Range=f"bytes {first}-{last}/{total}")

    site, origin = serve(handler)
    fault = ended(site)
    assert fault.reason is Reason.INTEGRITY_MISMATCH
    assert str(total) in str(fault)
    assert len(origin.seen) == 1
    assert not (site.tree / "f").exists()


def test_unknown_total_is_accepted(serve: Serve) -> None:
    """A total of `*` says nothing, and the range is used."""

    def handler(seen: Seen, wire: Wire) -> None:
        first, last = seen.byte_range
        wire.respond(206, CONTENT[first : last + 1], Content_Range=f"bytes {first}-{last}/*")

    site, _ = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT


@pytest.mark.parametrize("way", ["declared", "chunked", "unframed"])
def test_source_without_ranges_is_used_in_one_request(serve: Serve, way: str) -> None:
    """A 200 to the first range is read to its end, segment after segment."""

    def handler(seen: Seen, wire: Wire) -> object:
        if way == "declared":
            whole(wire)
        elif way == "chunked":
            chunked(wire, CONTENT)
        else:
            wire.respond(200, CONTENT, Content_Length="")
            return HANG_UP
        return None

    site, origin = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert len(origin.seen) == 1
    assert site.received == len(CONTENT)


def test_source_that_stops_honouring_ranges(serve: Serve) -> None:
    """Once ranges are ignored, what lies before is skipped, never appended, and the rest used."""

    def handler(seen: Seen, wire: Wire) -> None:
        if seen.byte_range[0] < SEGMENT * 2:
            wire.respond_range(seen, CONTENT)
        else:
            whole(wire)

    site, _ = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT)


def test_whole_answer_that_breaks_is_taken_up_by_skipping(serve: Serve) -> None:
    """A 200 that breaks in the middle is followed by another whose beginning is passed over."""
    broken: list[Seen] = []

    def handler(seen: Seen, wire: Wire) -> object:
        if len(broken) < 2:
            broken.append(seen)
            wire.respond(200, CONTENT[: SEGMENT * 2 + 50], Content_Length=str(len(CONTENT)))
            return HANG_UP
        whole(wire)
        return None

    site, origin = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT)
    assert [seen.byte_range[0] for seen in origin.seen] == [0, SEGMENT * 2 + 50, SEGMENT * 2 + 50]


@pytest.mark.parametrize("way", ["declared", "chunked", "chunked and longer"])
@pytest.mark.parametrize("size", [300, SEGMENT * 5 + 100])
def test_page_in_place_of_a_file(serve: Serve, size: int, way: str) -> None:
    """A proxy's page with status 200 fails by its size, is named, and never becomes the file."""
    content = pattern(size)
    kind = "text/html; charset=utf-8"

    def handler(seen: Seen, wire: Wire) -> None:
        if way == "declared":
            wire.respond(200, PAGE, Content_Type=kind)
        else:
            chunked(wire, PAGE if way == "chunked" else PAGE * 10_000, Content_Type=kind)

    site, _ = serve(handler)
    fault = ended(site, content)
    assert fault.reason is Reason.INTEGRITY_MISMATCH
    assert "bytes" in str(fault) or "digest" in str(fault)
    if way == "declared":
        assert str(fault) == f"a web page of {len(PAGE)} bytes came in place of a file of {size}"
    assert not (site.tree / "f").exists()


@pytest.mark.parametrize("status", [200, 206])
def test_compressed_body_is_not_taken_for_content(serve: Serve, status: int) -> None:
    """A body compressed on the way, though nobody asked for it, is of no use."""
    packed = gzip.compress(CONTENT)
    span = f"bytes 0-{SEGMENT - 1}/{len(CONTENT)}"
    site, origin = serve(
        lambda seen, wire: wire.respond(status, packed, Content_Encoding="gzip", Content_Range=span)
    )
    fault = ended(site)
    assert fault.reason is Reason.SOURCE_UNAVAILABLE
    assert "compressed" in str(fault)
    assert all(seen.headers["accept-encoding"] == "identity" for seen in origin.seen)


def test_chunked_ranges_are_used(serve: Serve) -> None:
    """A 206 without a length is read to the range's end."""

    def handler(seen: Seen, wire: Wire) -> None:
        first, last = seen.byte_range
        part = CONTENT[first : last + 1]
        chunked(wire, part, 206, Content_Range=f"bytes {first}-{last}/{len(CONTENT)}")

    site, _ = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT


@pytest.mark.parametrize("way", ["declared", "chunked", "hang up"])
def test_short_body_goes_on_from_its_last_byte(serve: Serve, way: str) -> None:
    """A range that ends early is continued with the first missing byte."""
    cut: set[int] = set()

    def handler(seen: Seen, wire: Wire) -> object:
        first, last = seen.byte_range
        if first % SEGMENT or first in cut:
            wire.respond_range(seen, CONTENT)
            return None
        cut.add(first)
        part = CONTENT[first : first + 77]
        span = f"bytes {first}-{last}/{len(CONTENT)}"
        if way == "declared":
            wire.respond(206, part, Content_Range=span)
        elif way == "chunked":
            chunked(wire, part, 206, Content_Range=span)
        else:
            wire.respond(206, part, Content_Range=span, Content_Length=str(last - first + 1))
            return HANG_UP
        return None

    site, origin = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert site.received == len(CONTENT)
    starts = {seen.byte_range[0] for seen in origin.seen}
    assert {0, 77, SEGMENT, SEGMENT + 77} <= starts


def test_long_body_is_cut(serve: Serve) -> None:
    """Bytes past the range are not content of this range, and not of the next one either."""

    def handler(seen: Seen, wire: Wire) -> None:
        first, last = seen.byte_range
        span = f"bytes {first}-{last}/{len(CONTENT)}"
        wire.respond(206, CONTENT[first : last + 1] + b"more" * 100, Content_Range=span)

    site, _ = serve(handler)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT


@pytest.mark.parametrize("at", [0, SEGMENT * 3 + 1, len(CONTENT) - 1])
def test_flipped_byte_is_found(serve: Serve, at: int) -> None:
    """Content of the right size with one wrong bit fails, and only its own file is discarded."""
    other = pattern(SEGMENT * 2, 7)
    flipped = bytearray(CONTENT)
    flipped[at] ^= 1

    def handler(seen: Seen, wire: Wire) -> None:
        wire.respond_range(seen, other if seen.target == "/other" else bytes(flipped))

    site, _ = serve(handler)
    site.fetch(site.target("other", other))
    with pytest.raises(AttemptFault) as caught:
        site.fetch(site.target("other", other), site.target("f", CONTENT))
    assert caught.value.reason is Reason.INTEGRITY_MISMATCH
    assert "sha256 digest" in str(caught.value)
    assert not (site.tree / "f").exists()
    assert site.content("other") == other
    assert site.resumable(site.target("f", CONTENT), site.target("other", other)) == len(other)


def test_flipped_byte_of_a_small_file_never_reaches_the_disk(serve: Serve) -> None:
    """A small file is written only when it is right."""
    content = pattern(100)
    site, _ = serve(lambda seen, wire: wire.respond_range(seen, content[::-1]))
    assert ended(site, content).reason is Reason.INTEGRITY_MISMATCH
    assert not (site.tree / "f").exists()


@pytest.mark.parametrize("digest", ["sha256", "gitsha1"])
def test_empty_file_is_verified_too(serve: Serve, digest: str) -> None:
    """A manifest that gives an empty file another digest does not get one."""
    site, origin = serve(lambda seen, wire: wire.respond(200))
    right = site.target("f", b"", digest)
    wrong = site.target("f", b"x", digest).entry.digest
    entry = type(right.entry)("f", 0, wrong)
    with pytest.raises(AttemptFault) as caught:
        site.fetch(type(right)(entry, right.url, right.destination))
    assert caught.value.reason is Reason.INTEGRITY_MISMATCH
    assert origin.seen == []


def test_hub_that_refuses_everything_over_a_size_serves_ranges(serve: Serve) -> None:
    """Every request names a range, so a hub that serves large files by range alone serves us."""

    def handler(seen: Seen, wire: Wire) -> None:
        if "range" in seen.headers:
            wire.respond_range(seen, CONTENT)
        else:
            wire.respond(400)

    site, _ = serve(handler)
    site.fetch(site.target("f", CONTENT), site.target("f2", CONTENT))
    assert site.content("f2") == CONTENT
