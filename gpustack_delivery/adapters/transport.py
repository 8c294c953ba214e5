"""What every request of ours shares: its faults, its headers and the certificates it trusts.

Failures are told by a few words that name no host, URL or tenant, because they end in events and in
a cluster-wide status. `adapters/http.py` raises and uses all of this; the hubs and the download
engine catch the faults. Rules: NS-FR-01, NS-FR-08.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

from gpustack_delivery.adapters.flights import TlsSocket
from gpustack_delivery.adapters.redirects import Chain
from gpustack_delivery.errors import ConfigurationFault, Fault

USER_AGENT: Final = "gpustack-operator"


class TransportFault(Fault):
    """No usable answer came; the text is a few words without host, URL or tenant."""


class CredentialFault(TransportFault):
    """The credential cannot be sent at all: it holds what a header cannot carry."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Header names are looked up in any case; `url` is where it came from."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


def request_headers(headers: Mapping[str, str] | None, chain: Chain) -> dict[str, str]:
    """Return a request's headers: the caller's, who we are, and the credential if one goes along.

    A caller's own Authorization header obeys the same rule as a token.

    Raises:
        CredentialFault: the credential would break the header.
    """
    sent = {"User-Agent": USER_AGENT, **(headers or {})}
    if not chain.trusted:
        sent.pop("Authorization", None)
    if chain.token:
        value = chain.token.reveal()
        # HTTP libraries print a header that they refuse, so a bad one must not reach them.
        if not all("!" <= character <= "~" for character in value):
            raise CredentialFault("a credential that no header can carry")
        sent["Authorization"] = f"Bearer {value}"
    return sent


def proxy_headers(proxy: str) -> dict[str, str]:
    """Return the headers a proxy itself gets: its own user and password, if its URL has them."""
    parts = urlsplit(proxy)
    if not parts.username:
        return {}
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": "Basic " + b64encode(credentials.encode()).decode()}


@lru_cache(maxsize=8)
def tls_context(ca_pem: str, *, verify: bool) -> ssl.SSLContext:
    """Return the TLS terms of every connection: at least 1.2, the system's CAs and the given ones.

    Reading the system's CAs costs more than many a request, so it is done once for the same terms.

    Raises:
        ConfigurationFault: the given text holds no certificate.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = TlsSocket
    if ca_pem:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError):
            raise ConfigurationFault(
                "the CA bundle must hold certificates in PEM form; check its key ca.crt"
            ) from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def told(error: Exception) -> TransportFault:
    """Return a failure in few words; the log's detail names classes and error numbers, no texts."""
    kinds = list(_lineage(error))
    names = [type(kind).__name__ for kind in kinds]
    codes = [
        errno.errorcode.get(kind.errno or 0, "") for kind in kinds if isinstance(kind, OSError)
    ]
    if not _TIMEOUTS.isdisjoint(names):
        words = "a timeout"
    elif "SSLCertVerificationError" in names:
        words = "a certificate that is not trusted"
    elif "SSLError" in names:
        words = "a TLS failure"
    elif any(isinstance(kind, socket.gaierror) for kind in kinds):
        words = "a host name that cannot be resolved"
    elif any(isinstance(kind, ConnectionRefusedError) for kind in kinds):
        words = "a connection that was refused"
    else:
        words = "a connection failure"
    if "ProxyError" in names:
        refusals = filter(None, (_REFUSED_TUNNEL.match(str(kind)) for kind in kinds))
        refused = next(refusals, None)
        words = f"the proxy answered HTTP {refused[1]}" if refused else f"the proxy: {words}"
    return TransportFault(words, detail=" ".join([">".join(names), *filter(None, codes)]))


# Only so does http.client tell a proxy's status; what follows it is the proxy's own text.
_REFUSED_TUNNEL: Final = re.compile(r"Tunnel connection failed: (\d{3})\b")
# By name, because urllib3 derives a refused connection from its timeouts, for history's sake.
_TIMEOUTS: Final = frozenset({"TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"})


def _lineage(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all it wraps: causes, contexts, and errors that libraries keep inside."""
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        current = queue.pop(0)
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            queue += [current.__cause__, current.__context__, getattr(current, "reason", None)]
            queue += current.args
