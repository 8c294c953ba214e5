"""Binds Pods to nodes.

Every Pod without a node is weighed against every node by `predicates`; of those that fit, the one
with the fewest Pods takes it, the first by name among equals. A Pod that fits nowhere gets the
condition and the event of the real scheduler, and is weighed again whenever a node, or a Pod that
takes up room, changes.
"""

from __future__ import annotations

import threading

from emulator import predicates
from emulator.client import Client
from emulator.contracts import Clock, Json
from emulator.errors import ApiError
from emulator.events import Recorder
from emulator.follow import Follower
from emulator.timestamps import time

_NAME = "default-scheduler"


class Scheduler:
    """The cluster's scheduler, on one thread of its own."""

    def __init__(self, client: Client, clock: Clock) -> None:
        """Prepare; `start` begins."""
        self._client = client
        self._clock = clock
        self._recorder = Recorder(client, clock, _NAME)
        self._condition = threading.Condition()
        self._stopped = False
        self._dirty = False
        self._pods: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._followers = (
            Follower(client, ("v1", "Node"), self._node_seen, name="scheduler:nodes"),
            Follower(client, ("v1", "Pod"), self._pod_seen, name="scheduler:pods"),
        )
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin to bind."""
        for follower in self._followers:
            follower.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop binding."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        for follower in self._followers:
            follower.stop()
        self._thread.join()

    def _node_seen(self, kind: str, node: Json) -> None:
        self._note(self._nodes, kind, node)

    def _pod_seen(self, kind: str, pod: Json) -> None:
        self._note(self._pods, kind, pod)

    def _note(self, known: dict[str, Json], kind: str, obj: Json) -> None:
        with self._condition:
            uid = obj["metadata"]["uid"]
            if kind == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = obj
            self._dirty = True
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._stopped and not self._dirty:
                    self._clock.wait(self._condition, None)
                if self._stopped:
                    return
                self._dirty = False
                pods, nodes = list(self._pods.values()), list(self._nodes.values())
            for pod in sorted(pods, key=_waiting_since):
                if _waits(pod):
                    self._place(pod, nodes, pods)

    def _place(self, pod: Json, nodes: list[Json], pods: list[Json]) -> None:
        """Bind a Pod, or say why it cannot be bound."""
        there = {
            node["metadata"]["name"]: [
                p for p in pods if p["spec"].get("nodeName") == node["metadata"]["name"]
            ]
            for node in nodes
        }
        demand = predicates.unsupported(pod)
        if demand:
            text = f"the emulator's scheduler does not judge {demand}"
            self._refuse(pod, f"{text}: take it out, or set spec.nodeName")
            return
        reasons = {
            node["metadata"]["name"]: predicates.why_not(pod, node, there[node["metadata"]["name"]])
            for node in nodes
        }
        fit = [name for name, why in reasons.items() if not why]
        if fit:
            self._bind(pod, min(fit, key=lambda name: (len(there[name]), name)))
        else:
            self._refuse(pod, predicates.unavailable(reasons))

    def _bind(self, pod: Json, node: str) -> None:
        metadata = pod["metadata"]
        try:
            self._client.bind(metadata["namespace"], metadata["name"], node)
        except ApiError:
            return  # it went, or somebody else was faster; what is true now comes by the watch
        # The watch will tell the same; until then nobody else may be given this room.
        pod["spec"]["nodeName"] = node
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._recorder.normal(pod, "Scheduled", text)

    def _refuse(self, pod: Json, message: str) -> None:
        """Write the condition and the event of a Pod that fits nowhere, unless said already."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": time(self._clock.now()),
            "reason": "Unschedulable",
            "message": message,
        }
        conditions: list[Json] = pod["status"].get("conditions") or []
        said: Json = next((c for c in conditions if c["type"] == "PodScheduled"), {})
        if said.get("message") == message:
            return
        pod["status"]["conditions"] = [c for c in conditions if c is not said] + [condition]
        try:
            self._client.update_status(pod)
        except ApiError:
            return  # it changed: it is weighed again when the watch says how
        self._recorder.warning(pod, "FailedScheduling", message)


def _waits(pod: Json) -> bool:
    """Say whether a Pod is ours to place, and not placed yet."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", _NAME) == _NAME
        and "deletionTimestamp" not in pod["metadata"]
        and not predicates.finished(pod)
    )


def _waiting_since(pod: Json) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return metadata["creationTimestamp"], metadata["namespace"], metadata["name"]
