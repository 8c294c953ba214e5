"""The HTTPS call to a webhook: where it is, whom to trust, how long to wait, and what its answer
means. A webhook names a URL, or a Service, which `services` finds.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from emulator.admission.matching import Reader
from emulator.admission.review import ReviewFault
from emulator.contracts import Json
from emulator.services import Address, Routes, ServiceFault, connect, reason, resolve, server_name

DEFAULT_TIMEOUT_SECONDS = 10
_MESSAGES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, "
        "but may still be processing the request"
    ),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook is reached, and how messages show it."""

    address: Address
    url: str


class Caller:
    """Posts reviews. `routes` maps (namespace, service) to the (host, port) that stands for it."""

    def __init__(self, reader: Reader, routes: Routes) -> None:
        """`routes` is read at each call; its owner may change it."""
        self._reader, self._routes = reader, routes

    def post(self, client: Json, review: Json, timeout_seconds: int) -> Any:
        """Return the JSON that a webhook answers. Raises ReviewFault with the reason otherwise."""
        url, name = _url(client)
        full = f"{url}?timeout={timeout_seconds}s"
        endpoint = self._endpoint(client, full, name)
        try:
            status, headers, body = _exchange(endpoint, client, review, timeout_seconds)
        except OSError as fault:
            text = reason(fault, endpoint.address)
            raise ReviewFault(f'failed to call webhook: Post "{full}": {text}') from None
        except http.client.HTTPException:
            raise ReviewFault(f'failed to call webhook: Post "{full}": EOF') from None
        if not 200 <= status < 300:
            raise ReviewFault(f"failed to call webhook: {_status_reason(status, headers, body)}")
        try:
            return json.loads(body)
        except ValueError as fault:
            raise ReviewFault(f"failed to call webhook: {fault}") from None

    def _endpoint(self, client: Json, url: str, name: str) -> Endpoint:
        parts = urlsplit(url)
        port = parts.port or 443
        service = client.get("service")
        if not service:
            host = parts.hostname or ""
            return Endpoint(Address(host, port, host), url)
        try:
            host, port = resolve(
                self._reader, self._routes, service["namespace"], service["name"], port
            )
        except ServiceFault as fault:
            raise ReviewFault(f'failed to call webhook: Post "{url}": {fault}') from None
        return Endpoint(Address(host, port, name), url)


def _url(client: Json) -> tuple[str, str]:
    """Return the URL of a webhook without query, and the host name in it."""
    service = client.get("service")
    if service:
        name = server_name(service["namespace"], service["name"])
        return f"https://{name}:{service.get('port', 443)}{service.get('path') or ''}", name
    url = str(client.get("url", ""))
    return url, urlsplit(url).hostname or ""


def _exchange(
    endpoint: Endpoint, client: Json, review: Json, timeout_seconds: int
) -> tuple[int, http.client.HTTPMessage, bytes]:
    parts = urlsplit(endpoint.url)
    body = msgspec.json.encode(review)
    connection = connect(endpoint.address, _trusting(client), timeout_seconds)
    try:
        connection.putrequest(
            "POST", f"{parts.path or '/'}?{parts.query}", skip_host=True, skip_accept_encoding=True
        )
        for name, value in (
            ("Host", parts.netloc),
            ("User-Agent", "kube-apiserver-admission"),
            ("Content-Length", str(len(body))),
            ("Accept", "application/json, */*"),
            ("Content-Type", "application/json"),
            ("Accept-Encoding", "gzip"),
        ):
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        if response.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        return response.status, response.headers, content
    finally:
        connection.close()


def _trusting(client: Json) -> ssl.SSLContext:
    bundle = client.get("caBundle")
    if not bundle:
        return ssl.create_default_context()
    return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())


def _status_reason(status: int, headers: http.client.HTTPMessage, body: bytes) -> str:
    if status in _MESSAGES:
        return _MESSAGES[status]
    message = "unknown"
    if (headers.get("Content-Type") or "").startswith("text/"):
        message = body.decode(errors="replace").strip()
    if status >= 500:
        quoted = json.dumps(message)
        return f"an error on the server ({quoted}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"
