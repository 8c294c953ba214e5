"""HTTP to hubs and peers: pools, proxies, certificates and the credential rule in one place.

An `Http` carries out one configuration (`spec.hub`): which proxy, which targets go without it, and
which CA certificates are trusted beside the system's. It makes two kinds of request. `call` is for
answers that fit in memory, such as listings, and goes through `requests`. `stream` is for file
content and goes through urllib3, reading straight into the caller's buffers. A `Flight` lets
another thread end either at any moment, even while it waits for the first byte.

This is the only importer of `requests`; `huggingface`, `modelscope` and the download
engine call it. Rules: NS-DL-11, NS-DL-22, NS-DL-23, NS-FR-01, NS-FR-08.
"""

from __future__ import annotations

import http.client
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from gpustack_delivery.adapters.boarding import take_over
from gpustack_delivery.adapters.deadlines import due_in
from gpustack_delivery.adapters.flights import Flight, aboard, landing
from gpustack_delivery.adapters.gathering import Gatherer
from gpustack_delivery.adapters.proxies import ProxyRule
from gpustack_delivery.adapters.redirects import Chain, RedirectRefused
from gpustack_delivery.adapters.transport import (
    Answer,
    CredentialFault,
    TransportFault,
    proxy_headers,
    request_headers,
    tls_context,
    told,
)
from gpustack_delivery.redaction import Token

__all__ = ["Answer", "CredentialFault", "Flight", "Http", "Stream", "TransportFault"]

BODY_LIMIT_BYTES: Final = 16 << 20
TIMEOUT_SECONDS: Final = 30.0
_POOLS: Final = 16
_CONNECTIONS: Final = 64  # the most that download.concurrency can ask for
_DRAINED_BYTES: Final = 64 << 10


class Stream:
    """An answer whose body is read piece by piece, by one thread.

    Attributes:
        status: the HTTP status.
        headers: its headers, names looked up in any case.
        url: where the answer came from, after all redirects; it may be signed, so never say it.
        declared_bytes: how long the body says it is; None when it does not say.
        delimited: whether the end of the body shows; without it an early end looks like the end.
    """

    def __init__(self, response: urllib3.HTTPResponse, url: str, flight: Flight | None) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url = url
        self.declared_bytes = None if response.chunked else response.length_remaining
        self.delimited = response.chunked or self.declared_bytes is not None
        self._response = response
        self._flight = flight
        self._remaining = self.declared_bytes
        self._body: Any = getattr(response, "_fp", None)
        reader = getattr(self._body, "fp", None)
        self._gatherer = None if reader is None else Gatherer(reader)

    def read_into(self, view: memoryview) -> int:
        """Read what has arrived, at most a view's length; 0 means that the body has ended.

        Raises:
            TransportFault: the connection broke, stayed silent, or ended before the body did.
        """
        with _failures():
            if self._response.chunked:
                data = self._response.read1(len(view), decode_content=False) or b""
                view[: len(data)] = data
                count = len(data)
            elif self._remaining == 0 or self._gatherer is None:
                count = 0
            else:
                count = self._gatherer.read_into(view[: self._remaining])
                if self._remaining is not None:
                    if count == 0:
                        raise TransportFault("a body that ended early")
                    self._remaining -= count
        return count

    def close(self) -> None:
        """Give the connection back when the body was read to its declared end; else close it."""
        if self._flight is not None:
            self._flight.land()
        if self._remaining == 0 and not self._response.chunked:
            self._body.close()  # the reader alone; its connection stays open
            self._response.release_conn()
        self._response.close()


class Http:
    """Requests under one configuration; safe for any number of threads.

    Args:
        proxy: the proxy of https targets; "" leaves the choice to the process environment.
        no_proxy: the targets that go without it, as Go programs read such a list.
        ca_pem: CA certificates that are trusted beside the system's.
        verify: False for peers, whose self-signed certificates prove nothing: their content must.
        environment: stands for the process environment.
        timeout_seconds: how long a call may take, and a stream's other end be silent.

    Raises:
        ConfigurationFault: the proxy or the certificates cannot be used.
    """

    def __init__(
        self,
        *,
        proxy: str = "",
        no_proxy: str = "",
        ca_pem: str = "",
        verify: bool = True,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._verify = verify
        self._timeout = timeout_seconds
        self._context = tls_context(ca_pem, verify=verify)
        if proxy:
            self._proxies = ProxyRule.configured(proxy, no_proxy)
        else:
            surroundings = os.environ if environment is None else environment
            self._proxies = ProxyRule.of_environment(surroundings)
        self._lock = threading.Lock()
        self._managers: dict[str, urllib3.PoolManager] = {}
        self._session = _Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _SessionAdapter(self._context))

    def call(
        self,
        method: str,
        url: str,
        *,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        follow: bool = True,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> Answer:
        """Make a small request and return its whole answer, whatever its status.

        It travels on the thread's flight, if the thread is `flights.aboard` one.

        Raises:
            TransportFault: no answer, one that took over 30 seconds, or a body over the limit.
        """
        chain = Chain(url, token)
        with _failures(), landing(), due_in(self._timeout):
            while True:
                proxy = self._proxies.proxy_for(chain.url)
                with self._session.request(
                    method,
                    chain.url,
                    headers=request_headers(headers, chain),
                    proxies={"http": proxy, "https": proxy} if proxy else {},
                    allow_redirects=False,
                    stream=True,
                    timeout=self._timeout,
                    verify=self._verify,
                ) as response:
                    status, found = response.status_code, response.headers
                    if not (follow and chain.follow(status, found.get("Location"))):
                        body = _read_body(response.raw, limit_bytes)
                        return Answer(status, found, body, chain.url)

    def stream(
        self,
        url: str,
        *,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        flight: Flight | None = None,
    ) -> Stream:
        """Ask for content and return its answer, whatever its status, with the body still to read.

        Raises:
            TransportFault: no answer came, or the flight was aborted.
        """
        chain = Chain(url, token)
        with aboard(flight), _failures():
            while True:
                response = self._manager(self._proxies.proxy_for(chain.url)).urlopen(
                    "GET",
                    chain.url,
                    headers={**request_headers(headers, chain), "Accept-Encoding": "identity"},
                    redirect=False,
                    retries=False,
                    preload_content=False,
                    decode_content=False,
                    timeout=self._timeout,
                )
                assert isinstance(response, urllib3.HTTPResponse)  # noqa: S101 - for mypy
                if not _follows(chain, response):
                    return Stream(response, chain.url, flight)

    def close(self) -> None:
        """Close idle connections; requests that run keep theirs until they end."""
        self._session.close()
        with self._lock:
            managers, self._managers = self._managers, {}
        for manager in managers.values():
            manager.clear()

    def _manager(self, proxy: str) -> urllib3.PoolManager:
        with self._lock:
            if proxy not in self._managers:
                self._managers[proxy] = _pool_manager(proxy, self._context)
            return self._managers[proxy]


class _Session(requests.Session):
    """A session that leaves redirects to `Chain`; left to itself it reads their bodies first."""

    def get_redirect_target(self, resp: Any) -> None:
        return None


class _SessionAdapter(HTTPAdapter):
    """Gives `requests` our TLS context, which it would otherwise mix with a bundle of its own."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_connections=_POOLS, pool_maxsize=_POOLS)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)
        take_over(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        kwargs.update(ssl_context=self._context, proxy_ssl_context=self._context)
        manager = super().proxy_manager_for(proxy, **kwargs)
        return take_over(manager)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        conn.cert_reqs = self._context.verify_mode


def _pool_manager(proxy: str, context: ssl.SSLContext) -> urllib3.PoolManager:
    shape: Any = {"num_pools": _POOLS, "maxsize": _CONNECTIONS, "ssl_context": context}
    manager = urllib3.PoolManager(**shape)
    if proxy:
        shape.update(proxy_headers=proxy_headers(proxy), proxy_ssl_context=context)
        manager = urllib3.ProxyManager(proxy, **shape)
    return take_over(manager)


def _follows(chain: Chain, response: urllib3.HTTPResponse) -> bool:
    """Take a redirect, keeping its connection where what is left of its body is small."""
    if not chain.follow(response.status, response.headers.get("Location")):
        return False
    if response.length_remaining is not None and response.length_remaining <= _DRAINED_BYTES:
        response.drain_conn()
        response.release_conn()
    else:
        response.close()
    return True


def _read_body(raw: Any, limit_bytes: int) -> bytes:
    body = bytearray()
    while piece := raw.read1(64 << 10, decode_content=True):
        body += piece
        if len(body) > limit_bytes:
            raise TransportFault(f"a body over {limit_bytes >> 20} MiB")
    return bytes(body)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn every way a transfer can fail into a `TransportFault`.

    The causes are not chained: their texts hold URLs, and those may be signed.
    """
    try:
        yield
    except RedirectRefused as refusal:
        raise TransportFault(str(refusal)) from None
    except (HTTPError, http.client.HTTPException, OSError, ValueError) as error:
        raise told(error) from None  # what `requests` raises is an OSError
