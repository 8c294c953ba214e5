"""One term of leadership: copies first, and controllers once every copy is whole.

A term begins without blocking whoever began it and ends at any moment, also while its copies are
still being read. The next term is another object with copies of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gpustack_delivery.adapters.patience import Patience
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.worker.artifacts import Artifacts
from gpustack_delivery.worker.bindings import Bindings
from gpustack_delivery.worker.consumers import Consumers
from gpustack_delivery.worker.controller import Observer
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.errands import Errands
from gpustack_delivery.worker.events import Events
from gpustack_delivery.worker.hubs import Hubs, OpenHub
from gpustack_delivery.worker.node_stores import NodeStores
from gpustack_delivery.worker.prefetches import Prefetches, Warming
from gpustack_delivery.worker.residents import Residents
from gpustack_delivery.worker.settings import Settings
from gpustack_delivery.worker.stores import Stores
from gpustack_delivery.worker.trust import Trust

_SYNC_SECONDS: Final = 30.0

_log = logging.getLogger(__name__)


class Part(Protocol):
    """What a term starts when its copies are whole, and stops at its end."""

    def start(self) -> None:
        """Begin to work."""

    def stop(self) -> None:
        """Let the work under way end."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What a leader needs to know besides the API.

    Attributes:
        namespace: the operator's.
        environment: where the Settings' seeds are read from.
        open_hub: how hubs are reached.
        webhook_configuration: the configurations to keep trusting, "" for none.
        ca_pem: returns the CA certificates to be trusted.
        prefetch_moved: told whenever a ModelPrefetch was stored, changed or removed.
        runs_consumers: whether ModelDeployments and Instances are ours to run.
    """

    namespace: str
    environment: dict[str, str]
    open_hub: OpenHub
    webhook_configuration: str
    ca_pem: Callable[[], str]
    prefetch_moved: Callable[[], None]
    runs_consumers: bool = False


class Term:
    """Everything a leader runs, from `start` to `stop`."""

    def __init__(self, kube: Kube, clock: Clock, duties: Duties, observer: Observer) -> None:
        events = Events(kube, clock)
        self._copies = Copies(kube, clock)
        self._settings = Settings(kube, clock, duties.namespace, duties.environment, events)
        hubs = Hubs(kube, duties.namespace, self._settings.values, duties.open_hub)
        errands = Errands(kube, self._copies, hubs, events, Patience(clock))
        residents = Residents(self._copies)
        self._parts: list[Part] = [
            NodeStores(kube, clock, observer, self._copies, self._settings),
            Artifacts(kube, clock, observer, self._copies, errands, self._settings),
            Stores(kube, clock, observer, self._copies),
            Bindings(kube, clock, observer, self._copies, residents),
            Prefetches(
                kube, clock, observer, Warming(self._copies, residents, self._settings, events)
            ),
        ]
        if duties.runs_consumers:
            self._parts.append(Consumers(kube, clock, observer, self._copies, self._settings))
        if duties.webhook_configuration:
            self._parts.append(
                Trust(kube, clock, observer, duties.webhook_configuration, duties.ca_pem)
            )
        self._copies.prefetches.subscribe(lambda _key, _old, _new: duties.prefetch_moved())
        self._started: list[Part] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="term", daemon=True)

    def start(self) -> None:
        """Begin to read, and to work as soon as everything is read."""
        self._settings.start()
        self._copies.start()
        self._thread.start()

    def stop(self) -> None:
        """End all of it; passes under way are let end."""
        self._stopping = True
        self._settings.stop()
        self._copies.stop()
        self._thread.join()
        for part in reversed(self._started):
            part.stop()

    def _run(self) -> None:
        while not (
            self._settings.wait_synced(_SYNC_SECONDS) and self._copies.wait_synced(_SYNC_SECONDS)
        ):
            if self._stopping:
                return
            _log.warning("still reading the cluster's objects; nothing is changed before")
        for part in self._parts:
            if self._stopping:
                return
            self._started.append(part)
            part.start()
