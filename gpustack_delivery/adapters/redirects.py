"""Following redirects by hand, so that one rule decides where a credential goes.

A credential travels only while every hop stays with the host and port it was given for and never
leaves https; the first hop that does not hold to this drops it, and no later hop takes it up again,
not even one that leads back. A chain has at most ten redirects.

`adapters/http.py` walks every chain with this, for listings and for downloads alike.
Rules: NS-DL-22, NS-DL-23.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from gpustack_delivery.redaction import Token

MAX_REDIRECTS: Final = 10
_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_PORTS: Final = {"http": 80, "https": 443}


class RedirectRefused(Exception):
    """A redirect that leads nowhere we go; the text says why, without any URL."""


class Chain:
    """One request on its way: where it goes next, and whether the credential still goes with it."""

    def __init__(self, url: str, token: Token | None) -> None:
        self.url = url
        self.token = token
        self.trusted = True  # nothing secret goes along any more once this is False
        self._redirects = 0

    def follow(self, status: int, location: str | None) -> bool:
        """Take a redirect; False when the answer is none.

        Raises:
            RedirectRefused: one too many, or one to something that is not http or https.
        """
        if status not in _STATUSES or not location:
            return False
        if self._redirects == MAX_REDIRECTS:
            raise RedirectRefused("too many redirects")
        self._redirects += 1
        target = _resolve(self.url, location)
        if not same_place(self.url, target):
            self.token, self.trusted = None, False
        self.url = target
        return True


def _resolve(url: str, location: str) -> str:
    """Return the absolute target, without user, password and fragment."""
    # Header bytes are read as latin-1: what is not ASCII is some encoding's raw bytes.
    escaped = quote(location.encode("latin-1", "replace"), safe=_ASCII)
    try:
        parts = urlsplit(urljoin(url, escaped))
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise RedirectRefused("a redirect that cannot be followed") from None
    if parts.scheme not in _PORTS or not host:
        raise RedirectRefused("a redirect that cannot be followed")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()


_ASCII: Final = "".join(chr(code) for code in range(0x21, 0x7F))


def same_place(before: str, after: str) -> bool:
    """Say whether a credential for one URL may go to another: host, port, and https kept.

    Raises:
        ValueError, KeyError: the second is no http or https URL.
    """
    old, new = urlsplit(before), urlsplit(after)
    if old.scheme == "https" and new.scheme == "http":
        return False
    return (old.hostname, old.port or _PORTS[old.scheme]) == (
        new.hostname,
        new.port or _PORTS[new.scheme],
    )
