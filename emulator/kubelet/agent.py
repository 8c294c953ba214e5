"""The kubelet of one node: what starts with it, and what stays when it ends.

It keeps the Node, its Lease and its CSINode, watches the Pods bound to the node, and gives each a
worker. Ending it is sudden, as a crash: calls under way are cut, Pods and mounts stay as they are,
and the next one finds them again, on disk and in the runtime.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator import predicates
from emulator.client import Client
from emulator.contracts import Clock, Json
from emulator.errors import ApiError
from emulator.events import Recorder
from emulator.follow import Follower
from emulator.kubelet.calls import Deadlines, Line
from emulator.kubelet.configz import configuration
from emulator.kubelet.node_objects import NodeFacts, NodeObjects
from emulator.kubelet.pod_volumes import Objects, PodVolumes
from emulator.kubelet.pods import PodWorker, Runtime, Surroundings
from emulator.kubelet.publishing import MountedAt, Publisher, volumes_on_disk
from emulator.kubelet.registration import Plugins

_log = logging.getLogger(__name__)
_LEASE_PERIOD_SECONDS = 10.0
_REPORT_EVERY = 30
"""Lease renewals between two reports of the node's status."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What outlives a kubelet: the node's folder, mounts, containers, and how kubelet is set up."""

    kubelet_dir: Path
    mounts: MountedAt
    runtime: Runtime
    pod_network: str  # the first three numbers of its Pods' addresses
    minor: int
    configuration: dict[str, Any] = field(default_factory=dict)
    deadlines: Deadlines = field(default_factory=Deadlines)


class Kubelet:
    """One life of one node's kubelet."""

    def __init__(self, client: Client, clock: Clock, facts: NodeFacts, machine: Machine) -> None:
        """Prepare; `start` begins."""
        self._client = client
        self._clock = clock
        self._facts = facts
        self._machine = machine
        self._line = Line(clock, machine.deadlines)
        self._objects = NodeObjects(client, facts, clock)
        registry = machine.kubelet_dir / "plugins_registry"
        registry.mkdir(parents=True, exist_ok=True)
        (machine.kubelet_dir / "plugins").mkdir(exist_ok=True)
        (machine.kubelet_dir / "pods").mkdir(exist_ok=True)
        self._plugins = Plugins(registry, self._line, self._objects, clock)
        self._publisher = Publisher(
            client, lambda: self._plugins.drivers, machine.mounts, facts.name
        )
        self._condition = threading.Condition()
        self._stopped = False
        self._workers: dict[str, PodWorker] = {}
        self._orphans: dict[str, PodVolumes] = {}
        self._around = Surroundings(
            client=client,
            clock=clock,
            recorder=Recorder(client, clock, "kubelet", facts.name),
            runtime=machine.runtime,
            node=lambda: client.get("v1", "Node", facts.name),
            pods_there=self._pods_there,
            address=facts.address,
            minor=machine.minor,
        )
        self._follower = Follower(
            client,
            ("v1", "Pod"),
            self._seen,
            fields=f"spec.nodeName={facts.name}",
            name=f"pods:{facts.name}",
        )
        self._heart = threading.Thread(target=self._beat, name=f"lease:{facts.name}", daemon=True)

    def start(self) -> None:
        """Register the node and its plugins, take over what is there, and begin to watch."""
        self._objects.register()
        self._plugins.start()
        self._heart.start()
        self._follower.start(self._take_over)

    def stop(self) -> None:
        """End at once; what runs and what is mounted stays."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._line.close()
        self._plugins.stop()
        self._follower.stop()
        for worker in list(self._workers.values()):
            worker.stop()
        for volumes in self._orphans.values():
            volumes.stop()
        self._heart.join()

    @property
    def drivers(self) -> frozenset[str]:
        """Return the names of the CSI drivers that are registered now."""
        return frozenset(self._plugins.drivers)

    def flicker(self) -> None:
        """Take every driver out of CSINode and register each again at once."""
        self._plugins.flicker()

    def configz(self) -> dict[str, Any]:
        """Return the configuration as the configz endpoint shows it."""
        return configuration(self._machine.configuration)

    def _take_over(self, pods: Mapping[str, Json]) -> None:
        """Before the first Pod is looked at: wait for the plugins, take down what nobody owns."""
        self._plugins.wait_for_first_look()
        for place in volumes_on_disk(self._machine.kubelet_dir):
            uid = place.pod_uid
            if uid not in pods and uid not in self._orphans:
                self._orphans[uid] = self._pod_volumes(uid)
                self._orphans[uid].clear_away()

    def _seen(self, kind: str, pod: Json) -> None:
        """Tell a Pod's worker what happened to it; give a new Pod a worker."""
        uid = pod["metadata"]["uid"]
        with self._condition:
            worker = self._workers.get(uid)
            if self._stopped or (worker is None and kind == "DELETED"):
                return
            if worker is None:
                self._give_address(uid)
                worker = PodWorker(self._around, pod, self._pod_volumes(uid), self._forget)
                self._workers[uid] = worker
                worker.start()
        if kind == "DELETED":
            worker.deleted()
            self._forget(uid)
        else:
            worker.seen(pod)

    def _forget(self, uid: str) -> None:
        """Let go of a Pod whose object is gone and of which nothing is left on the node.

        Not before both: its last states may still come by the watch when its work is done.
        """
        with self._condition:
            worker = self._workers.get(uid)
            if worker is not None and worker.over:
                del self._workers[uid]
                self._machine.runtime.addresses.pop(uid, None)

    def _pod_volumes(self, uid: str) -> PodVolumes:
        objects = Objects(self._client)
        return PodVolumes(self._publisher, objects, self._clock, self._machine.kubelet_dir, uid)

    def _pods_there(self) -> list[Json]:
        pods = self._client.list("v1", "Pod", fields=f"spec.nodeName={self._facts.name}")
        return [pod for pod in pods if not predicates.finished(pod)]

    def _give_address(self, uid: str) -> None:
        """Give a Pod the lowest address that none of the node's others has."""
        taken = set(self._machine.runtime.addresses.values())
        network = self._machine.pod_network
        free = (f"{network}.{number}" for number in range(2, 255))
        address = next((a for a in free if a not in taken), self._facts.address)
        self._machine.runtime.addresses.setdefault(uid, address)

    def _beat(self) -> None:
        """Renew the Lease, and report the node's status once in a while."""
        beats = 0
        due = self._clock.monotonic() + _LEASE_PERIOD_SECONDS
        while True:
            with self._condition:
                while not self._stopped and (left := due - self._clock.monotonic()) > 0:
                    self._clock.wait(self._condition, left)
                if self._stopped:
                    return
            due += _LEASE_PERIOD_SECONDS
            beats += 1
            try:
                self._objects.renew_lease()
                if beats % _REPORT_EVERY == 0:
                    self._objects.heartbeat()
            except ApiError as error:
                # A deleted node stays deleted until kubelet starts again, as in a real cluster.
                _log.info("node not reported node=%s error=%s", self._facts.name, error)
