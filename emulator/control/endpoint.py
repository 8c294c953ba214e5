"""The control endpoint: an HTTP server on loopback that takes commands from whoever has its token.

GET  /        the commands
GET  /faults  the rules for API requests, and how often each has struck
POST /do      one command a line; the first that cannot be done ends it
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Self

from emulator.cluster import Cluster
from emulator.control.commands import run, usage
from emulator.control.values import CommandError
from gpustack_delivery.httpd import Request, Response, Server

_TEXT = ("Content-Type", "text/plain; charset=utf-8")


class Endpoint:
    """The endpoint of one cluster, from `start` to `stop`."""

    def __init__(self, cluster: Cluster) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cluster = cluster
        self._server = Server(self._answer, name="control")

    @property
    def url(self) -> str:
        """Return where it listens."""
        return self._server.url

    def start(self) -> Self:
        """Listen."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Listen no more."""
        self._server.stop(drain_seconds=1.0)

    def write(self, path: Path) -> None:
        """Write address and token into a file that only its owner reads."""
        path.touch(mode=0o600)
        path.write_text(json.dumps({"url": self.url, "token": self.token}), encoding="utf-8")

    def _answer(self, request: Request) -> Response:
        given = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return _text(401, "send the token of this cluster's control file as a bearer token")
        match (request.method, request.path):
            case ("GET", "/"):
                return _text(200, "\n".join(usage()))
            case ("GET", "/faults"):
                return Response(200, [("Content-Type", "application/json")], self._faults())
            case ("POST", "/do"):
                return self._do(request.body.decode(errors="replace"))
        return _text(404, "there are GET /, GET /faults and POST /do")

    def _do(self, text: str) -> Response:
        lines = [line for line in text.splitlines() if line.strip()]
        done = []
        try:
            for line in lines:
                done.append(run(self._cluster, line))
        except CommandError as error:
            return _text(400, "\n".join([*done, str(error)]))
        return _text(200, "\n".join(done))

    def _faults(self) -> bytes:
        rules = [
            {"fault": type(rule.effect).__name__, **asdict(rule)}
            for rule in self._cluster.faults.rules()
        ]
        return json.dumps(rules).encode() + b"\n"


def _text(status: int, text: str) -> Response:
    return Response(status, [_TEXT], f"{text}\n".encode())
