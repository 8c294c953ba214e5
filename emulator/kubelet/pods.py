"""One Pod on one node, from the moment kubelet sees it until nothing of it is left.

The life of a Pod reads top to bottom in `PodWorker._live`: judged, its volumes published, its
containers run, stopped, its volumes taken down, its object deleted. There are no images: containers
whose Pod restarts them run until it is deleted, the others end by themselves as soon as they run.
Two annotations say otherwise: `emulator/run-seconds` and `emulator/exit-code`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from emulator import predicates
from emulator.client import Client
from emulator.contracts import Clock, DeleteOptions, Json
from emulator.errors import ApiError
from emulator.events import Recorder
from emulator.kubelet import pod_status
from emulator.kubelet.pod_status import Circumstances, Ran
from emulator.kubelet.pod_volumes import PodVolumes

_log = logging.getLogger(__name__)

RUN_SECONDS = "emulator/run-seconds"
EXIT_CODE = "emulator/exit-code"
_RETRY_SECONDS = 1.0


class _Stopped(Exception):
    """kubelet ends; the Pod stays as it is."""


@dataclass(slots=True)
class Runtime:
    """What a container runtime knows of a node's Pods, by uid. It outlives a kubelet."""

    ran: dict[str, Ran] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every Pod of a node is dealt with by."""

    client: Client
    clock: Clock
    recorder: Recorder
    runtime: Runtime
    node: Callable[[], Json]
    pods_there: Callable[[], list[Json]]
    address: str
    minor: int


class PodWorker:
    """A Pod and its thread. `ended` gets the uid when nothing of the Pod is left on the node."""

    def __init__(
        self, around: Surroundings, pod: Json, volumes: PodVolumes, ended: Callable[[str], None]
    ) -> None:
        """Take charge of a Pod; `start` begins."""
        self.uid = str(pod["metadata"]["uid"])
        self._around = around
        self._clock = around.clock
        self._first = pod  # what events refer to
        self._pod = pod
        self._volumes = volumes
        self._ended = ended
        self._condition = threading.Condition()
        self._gone = False
        self._done = False
        self._stopped = False
        name = f"pod:{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        volumes.changed = self._wake

    @property
    def over(self) -> bool:
        """Say whether the object is gone and nothing of the Pod is left here."""
        with self._condition:
            return self._gone and self._done

    def start(self) -> None:
        """Begin the Pod's life here."""
        self._thread.start()

    def seen(self, pod: Json) -> None:
        """Take note of a newer state of the object."""
        with self._condition:
            self._pod = pod
            self._condition.notify_all()

    def deleted(self) -> None:
        """Take note that the object is gone from the API, whoever deleted it."""
        with self._condition:
            self._gone = True
            self._condition.notify_all()

    def stop(self) -> None:
        """End the thread where it stands, as with a kubelet that ends."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._thread.join()
        self._volumes.stop()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _run(self) -> None:
        try:
            while not self._lived():
                self._until(lambda: False, _RETRY_SECONDS)
        except _Stopped:
            return
        with self._condition:
            self._done = True
        self._ended(self.uid)

    def _lived(self) -> bool:
        """Go through the Pod's life from where it stands; False when the API did not let us."""
        try:
            self._live()
        except ApiError as error:
            _log.warning("pod held up uid=%s error=%s", self.uid, error)
            return False
        return True

    def _live(self) -> None:
        if predicates.finished(self._first):
            pass  # it ended under an earlier kubelet
        elif not self._ran.started and (fault := self._judge()):
            self._write(lambda pod: pod_status.rejected(pod, *fault, self._clock.now()))
        elif self._ran.finished is None:
            self._volumes.publish(self._first, self._report_failed_mount)
            self._write_status()
            if not self._ran.started:
                self._until(lambda: self._leaving or self._volumes.published)
            if not self._leaving:
                self._run_containers()
            self._stop_containers()
        self._volumes.release()
        self._until(lambda: self._volumes.absent)
        self._until(lambda: self._leaving)
        self._volumes.remove_folder()
        self._delete_object()
        self._around.runtime.ran.pop(self.uid, None)

    @property
    def _ran(self) -> Ran:
        return self._around.runtime.ran.get(self.uid, Ran())

    @property
    def _leaving(self) -> bool:
        return self._gone or "deletionTimestamp" in self._pod["metadata"]

    def _until(self, predicate: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until something holds or time is over. Raises _Stopped when kubelet ends."""
        deadline = None if seconds is None else self._clock.monotonic() + seconds
        with self._condition:
            while not self._stopped and not predicate():
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return
                self._clock.wait(self._condition, left)
            if self._stopped:
                raise _Stopped

    def _judge(self) -> tuple[str, str] | None:
        """Return reason and message when this node cannot take the Pod in."""
        node = self._around.node()
        if not predicates.selected(self._pod, node):
            return "NodeAffinity", "Predicate NodeAffinity failed"
        others = [p for p in self._around.pods_there() if p["metadata"]["uid"] != self.uid]
        for reason in predicates.why_not({**self._pod, **_tolerating_all(self._pod)}, node, others):
            resource = reason.removeprefix("Insufficient ")
            return f"OutOf{resource}", f"Node didn't have enough resource: {resource}"
        return None

    def _run_containers(self) -> None:
        """Start the containers and wait until they end or the Pod is to go."""
        if not self._ran.started:
            self._write_status()  # the sandbox is ready
            for container in self._pod["spec"]["containers"]:
                self._tell_start(container)
            self._around.runtime.ran[self.uid] = Ran(started=self._clock.now())
            self._write_status()
        if self._pod["spec"].get("restartPolicy", "Always") == "Always":
            self._until(lambda: self._leaving)
            return
        annotations = self._pod["metadata"].get("annotations") or {}
        self._until(lambda: self._leaving, float(annotations.get(RUN_SECONDS, 0)))
        if not self._leaving:
            self._finish(int(annotations.get(EXIT_CODE, 0)))

    def _stop_containers(self) -> None:
        """Stop what still runs, because the Pod is to go."""
        if self._ran.running:
            self._write_status()  # the deletion has been seen
            for container in self._pod["spec"]["containers"]:
                text = f"Stopping container {container['name']}"
                self._around.recorder.normal(self._first, "Killing", text, _path(container))
            self._finish(0)

    def _finish(self, exit_code: int) -> None:
        now = self._clock.now()
        self._around.runtime.ran[self.uid] = replace(self._ran, finished=now, exit_code=exit_code)
        self._write_status()

    def _tell_start(self, container: Json) -> None:
        """Record the three events of a container that starts, in the words of the version."""
        new_words = self._around.minor >= 35
        image, name = container["image"], container["name"]
        pulled = f'Container image "{image}" already present on machine'
        told = {
            "Pulled": pulled + (" and can be accessed by the pod" if new_words else ""),
            "Created": "Container created" if new_words else f"Created container {name}",
            "Started": "Container started" if new_words else f"Started container {name}",
        }
        for reason, message in told.items():
            self._around.recorder.normal(self._first, reason, message, _path(container))

    def _report_failed_mount(self, volume: str, message: str) -> None:
        text = f'MountVolume.SetUp failed for volume "{volume}" : {message}'
        self._around.recorder.warning(self._first, "FailedMount", text)

    def _write_status(self) -> None:
        address = self._around.runtime.addresses.get(self.uid, self._around.address)
        around = Circumstances(
            self._around.address, address, self._around.minor, self._volumes.published
        )
        self._write(lambda pod: pod_status.status(pod, self._ran, around, self._clock.now()))

    def _write(self, make: Callable[[Json], Json]) -> None:
        """Write a status over the newest state of the object; nothing when it is gone."""
        metadata = self._first["metadata"]
        while not self._gone:
            try:
                pod = self._around.client.get(
                    "v1", "Pod", metadata["name"], namespace=metadata["namespace"]
                )
                if pod["metadata"]["uid"] != self.uid:
                    return
                pod["status"] = make(pod)
                self._around.client.update_status(pod)
            except ApiError as error:
                if error.reason == "Conflict":
                    continue
                if error.code not in {403, 404}:  # a node may not read what does not exist
                    raise
            return

    def _delete_object(self) -> None:
        """Delete the object for good, now that nothing of the Pod is left."""
        metadata = self._first["metadata"]
        if self._gone:
            return
        try:
            self._around.client.delete(
                "v1",
                "Pod",
                metadata["name"],
                namespace=metadata["namespace"],
                options=DeleteOptions(uid=self.uid, grace_period_seconds=0),
            )
        except ApiError as error:
            if error.code not in {403, 404, 409}:
                raise


def _tolerating_all(pod: Json) -> Json:
    """Return what makes a Pod pass every taint: kubelet judges resources, not taints."""
    return {"spec": {**pod["spec"], "tolerations": [{"operator": "Exists"}]}}


def _path(container: Json) -> str:
    return f"spec.containers{{{container['name']}}}"
