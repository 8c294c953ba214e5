"""What becomes of nodes that fall silent, and of the Pods on them.

A ready node loses the taint it began with. A node whose Lease has not been renewed for forty
seconds becomes Unknown, gets the unreachable taints, and its Pods stop being ready; NoExecute
taints evict Pods when their toleration runs out, by marking them for deletion. When no node is
left that is ready, nobody is evicted. Pods of a node that does not exist are deleted for good after
forty seconds. When kubelet is back, the taints go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from emulator import predicates
from emulator.client import Client
from emulator.contracts import Clock, DeleteOptions, Json
from emulator.errors import ApiError
from emulator.events import Recorder
from emulator.follow import Follower
from emulator.timestamps import seconds_of, time

GRACE_SECONDS = 40.0
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_OURS = {_NOT_READY, _UNREACHABLE}


class NodeLifecycle:
    """The controller, on one thread of its own."""

    def __init__(self, client: Client, clock: Clock) -> None:
        """Prepare; `start` begins."""
        self._client = client
        self._clock = clock
        self._node_events = Recorder(client, clock, "node-controller")
        self._taint_events = Recorder(client, clock, "taint-eviction-controller")
        self._condition = threading.Condition()
        self._stopped = False
        self._dirty = False
        self._nodes: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        self._heard: dict[str, float] = {}  # when each node's Lease was last seen to change
        self._leased: set[str] = set()  # the Lease is the last thing that a new kubelet makes
        self._evicted: set[str] = set()  # uids of Pods that were told to go, and are still there
        self._missing: dict[str, float] = {}  # since when a Pod's node has not existed
        self._followers = (
            Follower(client, ("v1", "Node"), self._node_seen, name="lifecycle:nodes"),
            Follower(client, ("v1", "Pod"), self._pod_seen, name="lifecycle:pods"),
            Follower(
                client,
                ("coordination.k8s.io/v1", "Lease"),
                self._lease_seen,
                name="lifecycle:leases",
                namespace="kube-node-lease",
            ),
        )
        self._thread = threading.Thread(target=self._run, name="node-lifecycle", daemon=True)

    def start(self) -> None:
        """Begin to look after nodes."""
        for follower in self._followers:
            follower.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop looking after nodes."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        for follower in self._followers:
            follower.stop()
        self._thread.join()

    def _node_seen(self, kind: str, node: Json) -> None:
        name = node["metadata"]["name"]
        with self._condition:
            if kind == "DELETED":
                self._nodes.pop(name, None)
                self._heard.pop(name, None)
                self._leased.discard(name)
            else:
                # A report of the node's status shows that it lives, as a renewed Lease does.
                if name not in self._nodes or _reported(node) != _reported(self._nodes[name]):
                    self._heard[name] = self._clock.monotonic()
                self._nodes[name] = node
            self._wake()

    def _lease_seen(self, kind: str, lease: Json) -> None:
        if kind == "DELETED":
            return
        with self._condition:
            name = lease["metadata"]["name"]
            news = name not in self._leased or self._silent(name)
            self._leased.add(name)
            self._heard[name] = self._clock.monotonic()
            if news:  # a heartbeat in time changes nothing that anybody waits for
                self._wake()

    def _pod_seen(self, kind: str, pod: Json) -> None:
        with self._condition:
            if kind == "DELETED":
                self._pods.pop(pod["metadata"]["uid"], None)
                self._evicted.discard(pod["metadata"]["uid"])
            else:
                self._pods[pod["metadata"]["uid"]] = pod
            self._wake()

    def _wake(self) -> None:
        self._dirty = True
        self._condition.notify_all()

    def _silent(self, name: str) -> bool:
        heard = self._heard.get(name)
        return heard is not None and self._clock.monotonic() - heard >= GRACE_SECONDS

    def _run(self) -> None:
        due: float | None = None
        while True:
            with self._condition:
                while not self._stopped and not self._dirty:
                    left = None if due is None else due - self._clock.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._clock.wait(self._condition, left)
                if self._stopped:
                    return
                self._dirty = False
                nodes, pods = dict(self._nodes), list(self._pods.values())
            times = [self._look_after(node, pods, nodes) for node in nodes.values()]
            times += [self._collect(pod, nodes) for pod in pods]
            due = min((t for t in times if t is not None), default=None)

    def _look_after(self, node: Json, pods: list[Json], nodes: dict[str, Json]) -> float | None:
        """Bring a node's taints, and its Pods, up to its state; return when to look again."""
        name = node["metadata"]["name"]
        there = [
            p for p in pods if p["spec"].get("nodeName") == name and not predicates.finished(p)
        ]
        with self._condition:
            silent, registered = self._silent(name), name in self._leased
            again = self._heard.get(name, 0.0) + GRACE_SECONDS
        if silent and _ready(node) != "Unknown":
            self._lose(node, there)
            return None  # the write comes back by the watch
        if not registered and not silent:
            return again
        wanted = _taints(node, evicting=any(_ready(other) == "True" for other in nodes.values()))
        self._taint(node, wanted)
        evictions = [self._evict(pod, node) for pod in there]
        times = [t for t in evictions if t is not None] + ([] if silent else [again])
        return min(times, default=None)

    def _lose(self, node: Json, pods: list[Json]) -> None:
        """Write down that nothing is known of a node any more."""
        now = time(self._clock.now())

        def unknown(current: Json) -> None:
            for condition in current["status"].get("conditions") or ():
                condition |= {
                    "status": "Unknown",
                    "lastTransitionTime": now,
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                }

        self._edit(node, unknown, status=True)
        self._node_events.normal(
            node, "NodeNotReady", f"Node {node['metadata']['name']} status is now: NodeNotReady"
        )
        for pod in pods:

            def not_ready(current: Json) -> None:
                for condition in current["status"].get("conditions") or ():
                    if condition["type"] == "Ready" and condition["status"] == "True":
                        condition |= {"status": "False", "lastTransitionTime": now}

            self._edit(pod, not_ready, status=True)
            self._node_events.warning(pod, "NodeNotReady", "Node is not ready")

    def _taint(self, node: Json, wanted: list[tuple[str, str]]) -> None:
        """Let a node have exactly these of our taints, and all of other people's."""
        taints = node["spec"].get("taints") or []
        kept = [t for t in taints if t["key"] not in _OURS or (t["key"], t["effect"]) in wanted]
        have = {(t["key"], t["effect"]) for t in kept}
        now = time(self._clock.now())
        added = [
            {"key": key, "effect": effect, "timeAdded": now}
            for key, effect in wanted
            if (key, effect) not in have
        ]
        if added or len(kept) != len(taints):

            def set_taints(current: Json) -> None:
                current["spec"]["taints"] = kept + added

            self._edit(node, set_taints, status=False)

    def _evict(self, pod: Json, node: Json) -> float | None:
        """Mark a Pod for deletion when a NoExecute taint demands it; return when that will be."""
        taints = [t for t in node["spec"].get("taints") or () if t["effect"] == "NoExecute"]
        if not taints or "deletionTimestamp" in pod["metadata"]:
            return None
        moments = []
        for taint in taints:
            toleration = predicates.toleration(pod, taint)
            seconds = 0.0 if toleration is None else toleration.get("tolerationSeconds")
            if seconds is not None:
                moments.append(
                    seconds_of(taint.get("timeAdded") or time(self._clock.now())) + seconds
                )
        if not moments:
            return None
        left = min(moments) - self._clock.now()
        if left > 0:
            return self._clock.monotonic() + left
        metadata = pod["metadata"]
        with self._condition:
            if metadata["uid"] in self._evicted:
                return None  # what was written has not come back by the watch yet
            self._evicted.add(metadata["uid"])
        text = f"Marking for deletion Pod {metadata['namespace']}/{metadata['name']}"
        self._taint_events.normal(pod, "TaintManagerEviction", text)
        reason = "Taint manager: deleting due to NoExecute taint"
        self._disrupt(pod, "DeletionByTaintManager", reason)
        self._delete(pod, None)
        return None

    def _collect(self, pod: Json, nodes: dict[str, Json]) -> float | None:
        """Delete a Pod for good whose node is gone for a while; return when that will be."""
        uid, name = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if not name or name in nodes:
            self._missing.pop(uid, None)
            return None
        since = self._missing.setdefault(uid, self._clock.monotonic())
        if self._clock.monotonic() < since + GRACE_SECONDS:
            return since + GRACE_SECONDS
        del self._missing[uid]
        self._disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists")
        self._delete(pod, 0)
        return None

    def _disrupt(self, pod: Json, reason: str, message: str) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": time(self._clock.now()),
            "reason": reason,
            "message": message,
        }

        def add(current: Json) -> None:
            conditions = current["status"].get("conditions") or []
            others = [c for c in conditions if c["type"] != "DisruptionTarget"]
            current["status"]["conditions"] = [*others, condition]

        self._edit(pod, add, status=True)

    def _delete(self, pod: Json, grace_seconds: int | None) -> None:
        metadata = pod["metadata"]
        try:
            self._client.delete(
                "v1",
                "Pod",
                metadata["name"],
                namespace=metadata["namespace"],
                options=DeleteOptions(uid=metadata["uid"], grace_period_seconds=grace_seconds),
            )
        except ApiError as error:
            if error.code not in {404, 409}:
                raise

    def _edit(self, obj: Json, change: Callable[[Json], None], *, status: bool) -> None:
        """Read, edit and write an object until nobody else wrote in between, or it is gone.

        What was written is known at once, so that nothing is done twice before the watch tells.
        """
        metadata = obj["metadata"]
        write = self._client.update_status if status else self._client.update
        while True:
            try:
                current = self._client.get(
                    "v1", obj["kind"], metadata["name"], namespace=metadata.get("namespace", "")
                )
                change(current)
                self._remember(write(current))
            except ApiError as error:
                if error.reason == "Conflict":
                    continue
                if error.code != 404:
                    raise
            return

    def _remember(self, obj: Json) -> None:
        with self._condition:
            if obj["kind"] == "Node":
                self._nodes[obj["metadata"]["name"]] = obj
            else:
                self._pods[obj["metadata"]["uid"]] = obj


def _reported(node: Json) -> str:
    """Return when kubelet last reported the node's status."""
    for condition in node.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready":
            return str(condition.get("lastHeartbeatTime", ""))
    return ""


def _ready(node: Json) -> str:
    conditions = node["status"].get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "False")


def _taints(node: Json, *, evicting: bool) -> list[tuple[str, str]]:
    """Return which of our taints a node should have."""
    key = {"True": "", "False": _NOT_READY}.get(_ready(node), _UNREACHABLE)
    if not key:
        return []
    return [(key, "NoSchedule"), *([(key, "NoExecute")] if evicting else [])]
