"""The artifacts' controller on a small cluster, held by the tests of its sides."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpustack_delivery.adapters.patience import Patience
from gpustack_delivery.errors import HubFault, Verdict
from gpustack_delivery.vocabulary.resources import (
    MODEL_ARTIFACTS,
    SECRETS,
    Json,
)
from gpustack_delivery.worker.artifacts import Artifacts
from gpustack_delivery.worker.copies import Copies
from gpustack_delivery.worker.errands import Errands
from gpustack_delivery.worker.events import Events
from gpustack_delivery.worker.hubs import Hubs
from gpustack_delivery.worker.settings import Settings
from tests.unit.worker.fake_hub import FakeHub
from tests.unit.worker.world import (
    NAMESPACE,
    ClusterKube,
    SilentObserver,
    SteppedClock,
    idle,
)

DAY = 86400.0
HUB_SOURCE = {"huggingFace": {"repository": "org/model", "revision": "main"}}
PRIVATE = {"huggingFace": HUB_SOURCE["huggingFace"] | {"secretRef": {"name": "hf"}}}
DENIED = HubFault(Verdict.ACCESS_DENIED, "the hub answers HTTP 403")


class Run:
    """One worker's artifacts on one cluster with one hub."""

    def __init__(self, kube: ClusterKube, hub: FakeHub, clock: SteppedClock) -> None:
        self.kube, self.hub, self.clock = kube, hub, clock
        self._copies = Copies(kube, clock)
        events = Events(kube, clock)
        self._settings = Settings(kube, clock, NAMESPACE, {}, events)
        hubs = Hubs(kube, NAMESPACE, self._settings.values, hub.open)
        errands = Errands(kube, self._copies, hubs, events, Patience(clock))
        self._artifacts = Artifacts(
            kube, clock, SilentObserver(), self._copies, errands, self._settings
        )

    def start(self) -> None:
        """Begin to work."""
        self._settings.start()
        self._copies.start()
        assert self._settings.wait_synced(20)
        assert self._copies.wait_synced(20)
        self._artifacts.start()
        self.rest()

    def stop(self) -> None:
        """End it."""
        self._settings.stop()
        self._copies.stop()
        self._artifacts.stop()

    def rest(self) -> None:
        """Wait until everything rests."""
        idle(self.kube, self.clock, threads=4)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything come to rest."""
        self.clock.advance(seconds)
        self.rest()

    def create(self, source: Json = HUB_SOURCE, **spec: Any) -> None:
        """Create the artifact and let it settle."""
        metadata = {"name": "model", "namespace": "team"}
        self.kube.put(MODEL_ARTIFACTS, {"metadata": metadata, "spec": {"source": source, **spec}})
        self.rest()

    def put_secret(self, token: str | None, name: str = "hf") -> None:
        """Create or replace the artifact's Secret."""
        data = {} if token is None else {"token": base64.b64encode(token.encode()).decode()}
        self.kube.put(SECRETS, {"metadata": {"name": name, "namespace": "team"}, "data": data})
        self.rest()

    @property
    def body(self) -> Json:
        """The artifact as stored."""
        body = self.kube.find(MODEL_ARTIFACTS, "model", "team")
        assert body is not None
        return body

    @property
    def resolved(self) -> Json:
        """What it resolved to, empty for nothing."""
        resolved: Json = self.body.get("status", {}).get("resolved", {})
        return resolved

    @property
    def said(self) -> str:
        """Both conditions in short."""
        conditions = self.body.get("status", {}).get("conditions", [])
        return " ".join(f"{item['status']}/{item['reason']}" for item in conditions)

    def statuses(self) -> list[str]:
        """Every status that was written, as the Resolved condition's reason."""
        return [write["status"]["conditions"][0]["reason"] for write in self.kube.writes]


HEALTHY = "True/Resolved False/Healthy"


@contextmanager
def started(kube: ClusterKube | None = None, hub: FakeHub | None = None) -> Iterator[Run]:
    """Run the controller."""
    running = Run(kube or ClusterKube(), hub or FakeHub(), SteppedClock())
    running.start()
    try:
        yield running
    finally:
        running.stop()
