"""Reads a running plugin's own port: what it is downloading right now.

The port's certificate is self-signed by contract and the answer is public among the cluster's
Pods, so no certificate is checked, no credential is sent, and no proxy stands between.

Rules: NS-MET-09, VW-PRG-02.
"""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing
from typing import Final

from gpustack_delivery.errors import HostFault
from gpustack_delivery.ports import Clock

PATH: Final = "/model/downloads"
MAX_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16


class PluginPort:
    """Asks plugins; satisfies `ports.PluginDownloads`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def read(self, address: str, port: int, *, timeout_seconds: float) -> bytes:
        """Return the body of a plugin's running downloads.

        Raises:
            HostFault: there was no good answer in time, or one that is too large.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        connection = http.client.HTTPSConnection(
            address, port, timeout=timeout_seconds, context=self._tls
        )
        try:
            with closing(connection):
                connection.request("GET", PATH, headers={"Accept": "application/json"})
                response = connection.getresponse()
                if response.status != 200:
                    raise HostFault(f"the plugin answered {response.status}")
                return self._body(response, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise HostFault("the plugin does not answer", detail=type(error).__name__) from None

    def _body(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        """Read it piece by piece: a plugin that trickles must not hold its reader for long."""
        body = b""
        while piece := response.read1(_PIECE_BYTES):
            body += piece
            if len(body) > MAX_BYTES:
                raise HostFault("the plugin's answer is too large")
            if self._clock.monotonic() > deadline:
                raise HostFault("the plugin's answer did not come in time")
        return body
