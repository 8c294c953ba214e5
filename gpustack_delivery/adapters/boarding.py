"""urllib3's connections as ours: aboard their thread's flight, and read in their thread's time.

`http` makes its requests to hubs and peers over them, `kube` those to the Kubernetes API. What
urllib3 would say of its own retries is left out: whoever made the request says what came of it.
"""

from __future__ import annotations

import logging
import ssl
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from gpustack_delivery.adapters.deadlines import PunctualResponse
from gpustack_delivery.adapters.flights import TlsSocket, connected, current_flight


def take_over(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """Let a pool manager make our connections from now on, and return it."""
    # At DEBUG urllib3 logs request targets, and the query of a signed URL is a secret; at WARNING
    # it tells, with the address of an object in it, what a line of ours tells as well.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    manager.pool_classes_by_scheme = _POOL_CLASSES
    return manager


class _Boarding:
    """A connection that names its socket to its thread's flight before it waits for anything."""

    sock: Any
    response_class: Any = PunctualResponse

    def _new_conn(self: Any) -> Any:
        return connected((self._dns_host, self.port), self.timeout, self.socket_options or ())

    def getresponse(self) -> Any:
        flight = current_flight()
        if flight is not None:
            flight.board(self.sock)
        return super().getresponse()  # type: ignore[misc]  # the connection class beside this one


class _Connection(_Boarding, HTTPConnection): ...


class _TlsConnection(_Boarding, HTTPSConnection):
    def connect(self) -> None:
        if self.ssl_context is None:
            self.ssl_context = self._own_context()
        super().connect()
        # Peers are unverified on purpose (`verify=False`): no warning on every connection.
        self.is_verified = True

    def _own_context(self) -> ssl.SSLContext:
        """Return the context that urllib3 would make, but for its sockets, which are not aboard."""
        context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
        context.sslsocket_class = TlsSocket
        if not (self.ca_certs or self.ca_cert_dir or self.ca_cert_data):
            context.load_default_certs()
        return context


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOL_CLASSES: Final = {"http": _Pool, "https": _TlsPool}
