"""The worker under measurement: a process, its CPU and memory, and every request it makes."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from pathlib import Path
from typing import Final, Self

from emulator.cluster import Cluster
from emulator.faults.requests import WRITES
from emulator.hubs.gate import Gate
from emulator.routes import Route
from gpustack_delivery.httpd import Response

NAMESPACE: Final = "gpustack-system"
RELEASE: Final = "gpustack-delivery"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-worker"
PATIENCE_SECONDS: Final = 240.0
QUIET_SECONDS: Final = 3.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Census:
    """Counts requests by verb and resource; an effect that changes nothing about them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.last_at = time.monotonic()

    def strike(self, route: Route, answer: Callable[[], Response], gate: Gate) -> Response:
        """Count a request, and let it be answered. The worker's own Lease is no work."""
        resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
        if route.plural != "leases":
            with self._lock:
                self._counts[f"{route.verb} {resource or 'others'}"] += 1
                self.last_at = time.monotonic()
        return answer()

    def counts(self) -> Counter[str]:
        """Return what was counted so far."""
        with self._lock:
            return Counter(self._counts)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stretch of work took: until it was reached, and until the worker was quiet again."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of requests."""
        return sum(self.requests.values())

    @property
    def writes(self) -> int:
        """Return the number of requests that write."""
        found = self.requests.items()
        return sum(count for what, count in found if what.partition(" ")[0] in WRITES)


class WorkerProcess:
    """One worker on a cluster, from `with` to its end."""

    def __init__(self, cluster: Cluster, hub_url: str) -> None:
        self._cluster = cluster
        self._census = Census()
        self._hub_url = hub_url
        self._port = _free_port()

    def __enter__(self) -> Self:
        """Start it, and return when its webhooks answer."""
        self._cluster.faults.add(self._census, user=ACCOUNT)
        service = (NAMESPACE, f"{RELEASE}-worker")
        self._cluster.webhooks.routes[service] = ("127.0.0.1", self._port)
        command = [sys.executable, "-m", "tests.performance.scale.leaping"]
        command += ["--kubeconfig", str(self._cluster.kubeconfig(ACCOUNT))]
        command += ["--namespace", NAMESPACE, "--host", "127.0.0.1"]
        command += ["--model-manager-service-account", f"{RELEASE}-model-manager"]
        command += ["--webhook-port", str(self._port), "--webhook-configuration", RELEASE]
        # An hour that passes in six leaps must not look like a leader that died.
        command += ["--lease-seconds", "3600", "--log-level", "error"]
        environment = os.environ | {
            "GPUSTACK_MODEL_ARTIFACT_HUGGINGFACE_ENDPOINT": self._hub_url,
            "GPUSTACK_MODEL_ARTIFACT_DELIVERY_MODE": "Node",
        }
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.until(self._answers, "the worker's webhooks")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.communicate()

    def measure(self, act: Callable[[], object], reached: Callable[[], bool], what: str) -> Cost:
        """Do something and measure what it sets off, until the worker is quiet again."""
        before, spent, began = self._census.counts(), self.cpu_seconds(), time.monotonic()
        act()
        self.until(reached, what)
        seconds = time.monotonic() - began
        self.rest()
        done = self._census.counts() - before
        return Cost(seconds, self.cpu_seconds() - spent, dict(done))

    def leap(self, seconds: float) -> None:
        """Let time pass in the worker's process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def rest(self) -> None:
        """Return when the worker has asked for nothing for a while."""
        self.until(
            lambda: time.monotonic() - self._census.last_at >= QUIET_SECONDS, "the worker's rest"
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition. Raises RuntimeError when it does not come true."""
        deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
        while not condition():
            if self._process.poll() is not None:
                raise RuntimeError(f"the worker ended with status {self._process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not after {PATIENCE_SECONDS:.0f} s: {what}")
            pause.wait(0.05)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text("ascii")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_mib(self) -> float:
        """Return the most memory that the process has had."""
        text = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        (line,) = (line for line in text.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def pass_seconds(self, share: float) -> dict[str, float]:
        """Return by controller how long so many of its passes took at most, as buckets tell it."""
        buckets: dict[str, list[tuple[float, float]]] = {}
        name = "gpustack_worker_reconcile_duration_seconds_bucket"
        for line in self._get("/metrics").decode().splitlines():
            if line.startswith(name):
                labels, _, count = line.removeprefix(name).rpartition(" ")
                pairs = dict(pair.split("=") for pair in labels.strip("{}").split(","))
                found = buckets.setdefault(pairs["controller"].strip('"'), [])
                found.append((float(pairs["le"].strip('"')), float(count)))
        return {
            controller: next(bound for bound, count in found if count >= share * found[-1][1])
            for controller, found in buckets.items()
        }

    def _answers(self) -> bool:
        try:
            return self._get("/readyz") == b"ok\n"
        except OSError:
            return False

    def _get(self, path: str) -> bytes:
        kind = "ValidatingWebhookConfiguration"
        found = self._cluster.client.get("admissionregistration.k8s.io/v1", kind, RELEASE)
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))
        context = ssl.create_default_context(cadata=bundle.decode() or self._cluster.ca_pem)
        connection = HTTPSConnection("127.0.0.1", self._port, context=context, timeout=20)
        with closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
