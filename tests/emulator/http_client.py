"""A client that has nothing but a kubeconfig: requests over HTTPS, watches line by line."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]


class HttpClient:
    """Sends each request on a connection of its own, with the token that the file has then."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def send(
        self, method: str, path: str, body: Json | None = None, content_type: str = ""
    ) -> tuple[int, Any]:
        """Return status and decoded body. Raises OSError or HTTPException without an answer."""
        with closing(self._ask(method, path, body, content_type)) as connection:
            response = connection.getresponse()
            content = response.read()
            is_json = (response.headers.get("Content-Type") or "").startswith("application/json")
            return response.status, json.loads(content) if is_json else content.decode()

    @contextmanager
    def watch(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """Open a watch; read it by `event`."""
        with closing(self._ask("GET", path, None, "")) as connection:
            response = connection.getresponse()
            assert response.status == 200
            yield response
            response.close()

    def _ask(
        self, method: str, path: str, body: Json | None, content_type: str
    ) -> http.client.HTTPSConnection:
        content = json.loads(self._kubeconfig.read_text("utf-8"))
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        trust = ssl.create_default_context(cadata=authority)
        address = urlsplit(cluster["server"])
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=trust, timeout=30
        )
        headers = {"Authorization": f"Bearer {user['token']}", "User-Agent": "tester/1"}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
        except BaseException:
            connection.close()
            raise
        return connection


def event(response: http.client.HTTPResponse) -> Json | None:
    """Return the next event of a watch; None when the server has ended it."""
    line = response.readline()
    found: Json | None = json.loads(line) if line else None
    return found
