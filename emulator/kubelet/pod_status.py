"""What a Pod's status says at each stage of its life, as kubelet writes it.

Pure: the Pod, what its containers are doing, and the time go in; a status comes out. A condition
keeps the time of its last change. What newer Kubernetes versions add is left out for older ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.contracts import Json
from emulator.timestamps import time


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a Pod's containers: when they started, when and how they ended."""

    started: float | None = None
    finished: float | None = None
    exit_code: int = 0

    @property
    def running(self) -> bool:
        """Say whether the containers run now."""
        return self.started is not None and self.finished is None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a status depends on besides the Pod and its containers."""

    address: str  # of the node
    pod_address: str
    minor: int  # of the Kubernetes version
    volumes_ready: bool = False


def status(pod: Json, ran: Ran, around: Circumstances, now: float) -> Json:
    """Return the status of a Pod that its node has taken in."""
    before = pod.get("status", {})
    phase = _phase(ran)
    observed = _observed(pod, around)
    address = around.address if pod["spec"].get("hostNetwork") else around.pod_address
    result: Json = {
        **observed,
        "phase": phase,
        "conditions": _conditions(pod, ran, around, now),
        "hostIP": around.address,
        "hostIPs": [{"ip": around.address}],
        "startTime": before.get("startTime") or time(now),
        "containerStatuses": [_container(pod, c, ran, around) for c in pod["spec"]["containers"]],
        "qosClass": before.get("qosClass", "BestEffort"),
    }
    if pod["spec"].get("initContainers"):
        result["initContainerStatuses"] = [
            _init_container(c, ran) for c in pod["spec"]["initContainers"]
        ]
    if ran.started is not None or pod["spec"].get("hostNetwork"):
        result |= {"podIP": address, "podIPs": [{"ip": address}]}
    return result


def rejected(pod: Json, reason: str, message: str, now: float) -> Json:
    """Return the status of a Pod that kubelet does not take in."""
    before = pod.get("status", {})
    return {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": before.get("startTime") or time(now),
        "qosClass": before.get("qosClass", "BestEffort"),
    }


def _phase(ran: Ran) -> str:
    if ran.finished is not None:
        return "Failed" if ran.exit_code else "Succeeded"
    return "Pending" if ran.started is None else "Running"


def _observed(pod: Json, around: Circumstances) -> Json:
    """Return the generation that a status is about, from Kubernetes 1.34 on."""
    generation = pod["metadata"].get("generation")
    return {"observedGeneration": generation} if around.minor >= 34 and generation else {}


def _conditions(pod: Json, ran: Ran, around: Circumstances, now: float) -> list[Json]:
    ended = ran.finished is not None
    sandbox = not ended and (ran.running or around.volumes_ready)
    ready: Json = {"status": "True" if ran.running else "False"}
    if ended:
        ready["reason"] = "PodCompleted" if not ran.exit_code else "PodFailed"
    elif not ran.running:
        names = " ".join(container["name"] for container in pod["spec"]["containers"])
        ready["reason"] = "ContainersNotReady"
        ready["message"] = f"containers with unready status: [{names}]"
    initialized: Json = {"status": "True"}
    if ended and not ran.exit_code:
        initialized["reason"] = "PodCompleted"
    wanted = {
        "PodReadyToStartContainers": {"status": "True" if sandbox else "False"},
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": {"status": "True"},
    }
    kept = [c for c in pod.get("status", {}).get("conditions") or () if c["type"] not in wanted]
    return [_condition(pod, kind, content, around, now) for kind, content in wanted.items()] + kept


def _condition(pod: Json, kind: str, content: Json, around: Circumstances, now: float) -> Json:
    before: Sequence[Json] = pod.get("status", {}).get("conditions") or ()
    same = next((c for c in before if c["type"] == kind and c["status"] == content["status"]), None)
    since = same["lastTransitionTime"] if same and same.get("lastTransitionTime") else time(now)
    return {
        "type": kind,
        **_observed(pod, around),
        "lastProbeTime": None,
        "lastTransitionTime": since,
        **content,
    }


def _container(pod: Json, container: Json, ran: Ran, around: Circumstances) -> Json:
    result: Json = {
        "name": container["name"],
        "state": _state(pod, container, ran),
        "lastState": {},
        "ready": ran.running,
        "restartCount": 0,
        "image": container["image"],
        "imageID": "",
        "started": ran.running,
    }
    if ran.started is not None:
        result["imageID"] = "sha256:" + hashlib.sha256(container["image"].encode()).hexdigest()
        result["containerID"] = _container_id(pod, container)
    if around.minor >= 31 and container.get("volumeMounts"):
        result["volumeMounts"] = [_mounted(mount) for mount in container["volumeMounts"]]
    return result


def _state(pod: Json, container: Json, ran: Ran) -> Json:
    if ran.started is None:
        waiting = "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
        return {"waiting": {"reason": waiting}}
    if ran.finished is None:
        return {"running": {"startedAt": time(ran.started)}}
    return {
        "terminated": {
            "exitCode": ran.exit_code,
            "reason": "Error" if ran.exit_code else "Completed",
            "startedAt": time(ran.started),
            "finishedAt": time(ran.finished),
            "containerID": _container_id(pod, container),
        }
    }


def _init_container(container: Json, ran: Ran) -> Json:
    """Return the status of an init container: waiting like the others, or done before them."""
    done = ran.started is not None
    at = time(ran.started or 0)
    completed = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    return {
        "name": container["name"],
        "state": {"terminated": completed} if done else {"waiting": {"reason": "PodInitializing"}},
        "lastState": {},
        "ready": done,
        "restartCount": 0,
        "image": container["image"],
        "imageID": "",
        "started": False,
    }


def _container_id(pod: Json, container: Json) -> str:
    seed = f"{pod['metadata']['uid']}/{container['name']}".encode()
    return "containerd://" + hashlib.sha256(seed).hexdigest()


def _mounted(mount: Json) -> Json:
    parts = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        parts |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return parts
