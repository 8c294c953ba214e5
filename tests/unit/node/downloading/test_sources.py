"""Where files come from: signed URLs that a hub redirects to, and the credential left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpustack_delivery.errors import AttemptFault, Reason
from gpustack_delivery.node.downloading.fetching import Fetcher, Segment, Source, Terms
from gpustack_delivery.redaction import Token
from tests.unit.node.downloading.site import SEGMENT, Site, pattern
from tests.unit.origin import Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
CONTENT = pattern(SEGMENT * 5 + 100)
PAGE = b"<html>sign in</html>"


def ended(site: Site, content: bytes = CONTENT) -> AttemptFault:
    """Fetch a file that cannot be had and return why."""
    with pytest.raises(AttemptFault) as caught:
        site.fetch(site.target("f", content))
    return caught.value


def hub_and_cdn(
    serve: Serve, cdn_answer: Callable[[Seen, Wire], object]
) -> tuple[Site, Origin, Origin]:
    """Return a site whose hub redirects to signed URLs of another server."""
    _, cdn = serve(cdn_answer)
    signatures: list[str] = []

    def hub(seen: Seen, wire: Wire) -> None:
        signatures.append(f"{cdn.url}/blob?signature={len(signatures)}")
        wire.respond(302, Location=signatures[-1])

    site, origin = serve(hub)
    site.credential = lambda: Token("canary")
    return site, origin, cdn


def test_signed_url_is_asked_for_once(serve: Serve) -> None:
    """Where a hub redirects to serves the file's other ranges and never sees the credential."""
    site, hub, cdn = hub_and_cdn(serve, lambda seen, wire: wire.respond_range(seen, CONTENT))
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert len(hub.seen) == 1
    assert hub.seen[0].headers["authorization"] == "Bearer canary"
    assert all("authorization" not in seen.headers for seen in cdn.seen)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 503])
def test_expired_signed_url_is_resolved_again(serve: Serve, status: int) -> None:
    """A signed URL that no longer works is not a refusal: the hub is asked for a new one.

    Nor is a server behind the hub that stays ill for longer than a source is tried.
    """

    def cdn_answer(seen: Seen, wire: Wire) -> None:
        if seen.target.endswith("=0") and seen.byte_range[0] > 0:
            wire.respond(status)
        else:
            wire.respond_range(seen, CONTENT)

    site, hub, _ = hub_and_cdn(serve, cdn_answer)
    site.fetch(site.target("f", CONTENT))
    assert site.content("f") == CONTENT
    assert len(hub.seen) >= 2


class Forgotten(Source):
    """A source whose signed URL another fetcher forgets as soon as this one has looked at it."""

    def __init__(self, url: str, signed_url: str) -> None:
        self._signed = [signed_url]
        super().__init__(url, len(CONTENT))

    @property
    def signed_url(self) -> str:
        """Return the URL once."""
        return self._signed.pop() if self._signed else ""

    @signed_url.setter
    def signed_url(self, value: str) -> None:
        pass


def test_a_signed_url_that_is_forgotten_meanwhile_is_used_or_not(serve: Serve) -> None:
    """The fetchers of a file share it, and each may find that it no longer works."""
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    terms = Terms(
        http=site.http,
        limits=site.limits,
        clock=site.clock,
        over=lambda: False,
        pause=lambda seconds: None,
        credential=lambda: None,
        received=lambda count: None,
    )
    source = Forgotten(f"{origin.url}/f", f"{origin.url}/blob?signature=0")
    segment = Segment(source, 0, memoryview(bytearray(SEGMENT)))
    Fetcher(terms).fetch(segment, lambda body: None)
    assert segment.view == CONTENT[:SEGMENT]
    assert [seen.target for seen in origin.seen] == ["/blob?signature=0"]


def test_fresh_signed_url_that_is_refused_is_a_refusal(serve: Serve) -> None:
    """When every new URL of the hub's is refused too, the attempt ends as denied."""
    site, hub, cdn = hub_and_cdn(serve, lambda seen, wire: wire.respond(403))
    fault = ended(site)
    assert (fault.reason, str(fault)) == (Reason.ACCESS_DENIED, "HTTP 403")
    assert (len(hub.seen), len(cdn.seen)) == (6, 6)


def test_credential_is_asked_for_before_each_request(serve: Serve) -> None:
    """A rotated credential reaches the next range."""
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    tokens = iter(range(100))
    site.credential = lambda: Token(f"t{next(tokens)}")
    site.fetch(site.target("f", CONTENT))
    sent = [seen.headers["authorization"] for seen in origin.seen]
    assert len(set(sent)) == len(sent) == 6


def test_credential_that_cannot_be_sent_is_a_refusal(serve: Serve) -> None:
    """A token with a line end in it is AccessDenied without a request, and is not repeated."""
    site, origin = serve(lambda seen, wire: wire.respond_range(seen, CONTENT))
    site.credential = lambda: Token("can\nary")
    fault = ended(site)
    assert fault.reason is Reason.ACCESS_DENIED
    assert "ary" not in f"{fault}{fault.detail}".replace("carry", "")
    assert origin.seen == []
