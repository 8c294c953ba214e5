"""Where a chain of redirects leads, and how far a credential goes along."""

from __future__ import annotations

import pytest

from gpustack_delivery.adapters.redirects import MAX_REDIRECTS, Chain, RedirectRefused
from gpustack_delivery.redaction import Token

START = "https://hub.example/a/b"
TOKEN = Token("canary")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "url", "kept"),
    [
        ("/c?d=1#e", "https://hub.example/c?d=1", True),
        ("c", "https://hub.example/a/c", True),
        ("https://HUB.example/c", "https://HUB.example/c", True),
        ("https://hub.example:443/c", "https://hub.example:443/c", True),
        ("https://hub.example:8443/c", "https://hub.example:8443/c", False),
        ("https://cdn.hub.example/c", "https://cdn.hub.example/c", False),
        ("https://hub.example./c", "https://hub.example./c", False),
        ("//other.example/c", "https://other.example/c", False),
        ("http://hub.example/c", "http://hub.example/c", False),
        ("http://hub.example:443/c", "http://hub.example:443/c", False),
        ("https://me:pw@hub.example/c", "https://hub.example/c", True),
        ("/caf\u00c3\u00a9 x", "https://hub.example/caf%C3%A9%20x", True),
    ],
)
def test_one_redirect(status: int, location: str, url: str, *, kept: bool) -> None:
    """A credential stays with its host and port and never leaves https; case makes no host."""
    chain = Chain(START, TOKEN)
    assert chain.follow(status, location)
    assert chain.url == url
    assert chain.token == (TOKEN if kept else None)


def test_credential_is_never_taken_up_again() -> None:
    """A chain that leaves the host and comes back comes back without the credential."""
    chain = Chain(START, TOKEN)
    chain.follow(302, "https://elsewhere.example/")
    chain.follow(302, START)
    assert chain.url == START
    assert chain.token is None


def test_upgrade_to_https_changes_the_port() -> None:
    """From http to https the port changes and the credential stays behind; on one port it stays."""
    plain = Chain("http://hub.example/", TOKEN)
    plain.follow(301, "https://hub.example/")
    assert plain.token is None
    ported = Chain("http://hub.example:8080/", TOKEN)
    ported.follow(301, "https://hub.example:8080/")
    assert ported.token == TOKEN


@pytest.mark.parametrize(
    ("status", "location"), [(200, "/c"), (304, "/c"), (300, "/c"), (302, None), (302, "")]
)
def test_other_answers_are_final(status: int, location: str | None) -> None:
    """Only the five redirect statuses with a Location lead on."""
    chain = Chain(START, TOKEN)
    assert not chain.follow(status, location)
    assert chain.url == START


def test_chain_is_bounded() -> None:
    """Ten redirects are followed, the eleventh is refused."""
    chain = Chain(START, None)
    for hop in range(MAX_REDIRECTS):
        assert chain.follow(302, f"/{hop}")
    with pytest.raises(RedirectRefused, match="too many"):
        chain.follow(302, "/more")


@pytest.mark.parametrize(
    "location", ["ftp://x/", "file:///etc/passwd", "https://[x/", "https://h:99999/"]
)
def test_redirect_to_nowhere_is_refused(location: str) -> None:
    """Another scheme, no host or an unreadable URL ends the chain, without repeating the URL."""
    with pytest.raises(RedirectRefused) as caught:
        Chain(START, None).follow(302, location)
    assert location not in str(caught.value)
