"""The plugin's HTTPS port: metrics, health, and the downloads that run right now.

/metrics            Prometheus' text format
/readyz             200 once mounts are answered, 503 with the reason before
/livez              200 while the process answers at all
/model/downloads    how far each running download is, for live progress between two status writes

The certificate is self-signed and made at the start: callers read numbers, they send no secret.

Rules: NS-MET-01, NS-MET-09.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gpustack_delivery.httpd import Limits, Request, Response, Server
from gpustack_delivery.httpd.certificates import self_signed, server_context
from gpustack_delivery.node.attempt import Progress
from gpustack_delivery.node.metrics import CONTENT_TYPE, Metrics

# Each costs a thread: a few probes and scrapers come, whatever else stays is closed for them.
_LIMITS: Final = Limits(body_bytes=0, connections=128)


class Endpoints:
    """The secure port, from `start` to `stop`.

    Args:
        address: host and port to listen on; port 0 takes a free one.
        metrics: what /metrics shows.
        unready: returns why mounts are not answered yet, "" when they are.
        running: returns how far each running download is, sorted by digest.
    """

    def __init__(
        self,
        address: tuple[str, int],
        metrics: Metrics,
        unready: Callable[[], str],
        running: Callable[[], tuple[Progress, ...]],
    ) -> None:
        host, port = address
        names = [host, "localhost", "127.0.0.1"] if host not in ("", "0.0.0.0", "::") else []  # noqa: S104
        context = server_context(self_signed(names or ["localhost", "127.0.0.1"]))
        self._metrics = metrics
        self._unready = unready
        self._running = running
        self._server = Server(
            self._handle, name="endpoints", host=host, port=port, tls=context, limits=_LIMITS
        )
        self._answers: dict[str, Callable[[], Response]] = {
            "/metrics": self._show_metrics,
            "/readyz": self._show_ready,
            "/livez": lambda: _text(200, "ok"),
            "/model/downloads": self._show_downloads,
        }

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._server.port

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._server.start()

    def stop(self) -> None:
        """Close; safe twice."""
        self._server.stop(drain_seconds=1.0)

    def _handle(self, request: Request) -> Response:
        answer = self._answers.get(request.path)
        if answer is None:
            return _text(404, "not found")
        if request.method not in ("GET", "HEAD"):
            refusal = _text(405, "method not allowed")
            refusal.headers.append(("Allow", "GET"))
            return refusal
        return answer()

    def _show_metrics(self) -> Response:
        return Response(200, [("Content-Type", CONTENT_TYPE)], self._metrics.text())

    def _show_ready(self) -> Response:
        reason = self._unready()
        return _text(503, reason) if reason else _text(200, "ok")

    def _show_downloads(self) -> Response:
        downloads = [
            {
                "digest": progress.digest,
                "downloadedBytes": progress.downloaded_bytes,
                "sizeBytes": progress.size_bytes or 0,
                "source": progress.source.value,
            }
            for progress in self._running()
        ]
        body = msgspec.json.encode({"downloads": downloads})
        return Response(200, [("Content-Type", "application/json")], body)


def _text(status: int, text: str) -> Response:
    return Response(status, [("Content-Type", "text/plain; charset=utf-8")], f"{text}\n".encode())
