"""The demo's stage: an emulated cluster with two nodes and a hub, and this implementation on it.

As root the nodes mount with the kernel, in a mount namespace of this process's own; otherwise in
an emulated table that answers the same questions.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Final, NoReturn, Self, TypeVar

from emulator.cluster import Cluster
from emulator.mounts import enter_private_namespace
from emulator.node import Node
from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.embedded import Embedded, EmbeddedPlugin, host_fault
from gpustack_delivery.errors import ConfigurationFault, Fault
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import Json

NODES: Final = ("node-a", "node-b")
DRIVER_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_STAY_SECONDS: Final = 1.0
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"

T = TypeVar("T")


class Stage:
    """Everything the story needs, from entering to leaving; nothing is left behind."""

    def __init__(self) -> None:
        self.kernel_mounts = _may_mount()
        self.cluster = Cluster(kernel_mounts=self.kernel_mounts, translate=host_fault)
        self.nodes: dict[str, Node] = {}
        self.plugins: dict[str, EmbeddedPlugin] = {}
        self._clock = SystemClock()
        self._kubectl = Http(ca_pem=self.cluster.ca_pem, environment={})
        # The plugin's certificate is its own; a scraper of the chart skips the check likewise.
        self._scraper = Http(verify=False, environment={})
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        """Start the cluster and the hub; `install` brings the implementation."""
        self._exits.callback(self._kubectl.close)
        self._exits.callback(self._scraper.close)
        try:
            self._exits.enter_context(self.cluster)
            self.hub = self.cluster.add_hub()
            for name in NODES:
                self.nodes[name] = self.cluster.add_node(name)
        except ValueError as error:
            self._exits.close()
            raise ConfigurationFault(str(error)) from error
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop everything, in the reverse order of its start."""
        self._exits.close()

    def install(self, settings: Mapping[str, str]) -> None:
        """Install the chart, set the Settings, start the worker and each node's plugin."""
        embedded = Embedded(self.cluster)
        self._exits.callback(embedded.close)
        embedded.install()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "gpustack-settings", "namespace": embedded.namespace},
            "stringData": dict(settings),
        }
        self.cluster.apply(secret)
        embedded.start_worker()
        for name, node in self.nodes.items():
            self.plugins[name] = embedded.start_plugin(node)
        self.until(self._registered, "the driver is registered on every node", DRIVER_SECONDS)

    def until(self, ask: Callable[[], T | None], what: str, seconds: float) -> T:
        """Return the first answer that is not None or False.

        Raises:
            Fault: it did not come within so many seconds.
        """
        deadline = self._clock.monotonic() + seconds
        condition = threading.Condition()
        while True:
            answer = ask()
            if answer is not None and answer is not False:
                return answer
            if self._clock.monotonic() > deadline:
                raise Fault(f"gave up after {seconds:.0f} s waiting until {what}")
            with condition:
                self._clock.wait(condition, _POLL_SECONDS)

    def stay(self) -> NoReturn:
        """Keep everything as it is, until a KeyboardInterrupt."""
        condition = threading.Condition()
        with condition:
            while True:  # in steps: an interrupt that another thread took wakes nobody here
                self._clock.wait(condition, _STAY_SECONDS)

    def table(self, path: str) -> Json:
        """Return the Table that kubectl would get for a path of the API.

        Raises:
            Fault: no table came in time.
        """
        return self.read(path, accept=_TABLE)

    def read(self, path: str, *, accept: str = "application/json") -> Json:
        """Return what kubectl would get for a path of the API.

        The aggregator answers 503 for the public API until it has found its Service's endpoint.

        Raises:
            Fault: no answer came in time.
        """
        config = json.loads(self.cluster.kubeconfig().read_text(encoding="utf-8"))
        server = config["clusters"][0]["cluster"]["server"]
        token = Token(config["users"][0]["user"]["token"])

        def ask() -> Json | None:
            headers = {"Accept": accept}
            answer = self._kubectl.call("GET", server + path, token=token, headers=headers)
            found: Json = json.loads(answer.body) if answer.status == HTTPStatus.OK else {}
            return found or None

        return self.until(ask, f"{path} answers", ANSWER_SECONDS)

    def metrics(self, node: str) -> str:
        """Return what a node's plugin tells a scraper."""
        return str(self._ask_plugin(node, "/metrics"), "utf-8")

    def downloads(self, node: str) -> list[Json]:
        """Return the downloads that run on a node now."""
        found: list[Json] = json.loads(self._ask_plugin(node, "/model/downloads"))["downloads"]
        return found

    def _ask_plugin(self, node: str, path: str) -> bytes:
        return self._scraper.call("GET", self.plugins[node].metrics_url + path).body

    def _registered(self) -> bool:
        return all(node.drivers for node in self.nodes.values())


def _may_mount() -> bool:
    """Enter a private mount namespace if that is allowed here."""
    try:
        enter_private_namespace()
    except OSError:
        return False
    return True
