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

from gpustack_delivery.adapters.deadlines import PunctualResponse, due_in
from gpustack_delivery.errors import HostFault

PATH: Final = "/model/downloads"
MAX_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16


class PluginPort:
    """Asks plugins; satisfies `ports.PluginDownloads`."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def read(self, address: str, port: int, *, timeout_seconds: float) -> bytes:
        """Return the body of a plugin's running downloads.

        Raises:
            HostFault: there was no good answer in time, or one that is too large.
        """
        connection = http.client.HTTPSConnection(
            address, port, timeout=timeout_seconds, context=self._tls
        )
        connection.response_class = PunctualResponse
        try:
            with closing(connection), due_in(timeout_seconds):
                connection.request("GET", PATH, headers={"Accept": "application/json"})
                response = connection.getresponse()
                if response.status != 200:
                    raise HostFault(f"the plugin answered {response.status}")
                return _body(response)
        except (OSError, http.client.HTTPException) as error:
            raise HostFault("the plugin does not answer", detail=type(error).__name__) from None


def _body(response: http.client.HTTPResponse) -> bytes:
    body = b""
    while piece := response.read1(_PIECE_BYTES):
        body += piece
        if len(body) > MAX_BYTES:
            raise HostFault("the plugin's answer is too large")
    return body
