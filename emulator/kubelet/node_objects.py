"""What kubelet writes about its node: Node, CSINode and Lease.

The Node is made at the first start and made again when somebody deleted it; drivers that register
appear in CSINode.spec.drivers, in the Node's annotation and, for their topology, in its labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.client import Client
from emulator.contracts import Clock, Json
from emulator.errors import ApiError
from emulator.timestamps import micro_time, time

LEASE_SECONDS = 40
_NODE_IDS = "csi.volume.kubernetes.io/nodeid"
_MIGRATED = ",".join(
    f"kubernetes.io/{plugin}"
    for plugin in (
        "aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume",
        "vsphere-volume",
    )
)  # fmt: skip
_HEALTHY = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node tells of itself."""

    name: str
    address: str
    version: str  # such as v1.30.0
    allocatable: Mapping[str, str]
    kubelet_port: int = 10250


class NodeObjects:
    """The API objects of one node, written as its kubelet."""

    def __init__(self, client: Client, facts: NodeFacts, clock: Clock) -> None:
        """Write nothing yet."""
        self._client = client
        self._facts = facts
        self._clock = clock

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self._facts.name

    def register(self) -> str:
        """Make the Node and CSINode if they are not there, report ready; return the Node's uid."""
        try:
            node = self._client.create(self._new_node())
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            node = self.heartbeat()
        try:
            self._client.create(self._new_csinode(node))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        self.renew_lease()
        return str(node["metadata"]["uid"])

    def heartbeat(self) -> Json:
        """Report the node's conditions, as kubelet does at its start and every few minutes."""

        def beat(node: Json) -> None:
            node["status"] = self._status(node["status"].get("conditions") or ())

        return self._change("v1", "Node", beat, subresource="status")

    def renew_lease(self) -> None:
        """Say that kubelet lives; make the Lease if it is not there."""
        now = micro_time(self._clock.now())

        def renew(lease: Json) -> None:
            lease["spec"]["renewTime"] = now

        try:
            self._change("coordination.k8s.io/v1", "Lease", renew, namespace="kube-node-lease")
        except ApiError as error:
            if error.code != 404:
                raise
            node = self._client.get("v1", "Node", self.name)
            self._client.create(
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {
                        "name": self.name,
                        "namespace": "kube-node-lease",
                        "ownerReferences": [_owned_by(node)],
                    },
                    "spec": {
                        "holderIdentity": self.name,
                        "leaseDurationSeconds": LEASE_SECONDS,
                        "renewTime": now,
                    },
                }
            )

    def add_driver(
        self, driver: str, node_id: str, segments: Mapping[str, str], limit: int
    ) -> None:
        """Enter a registered driver on the Node, with its topology, and in the CSINode."""
        entry: Json = {"name": driver, "nodeID": node_id, "topologyKeys": sorted(segments) or None}
        if limit > 0:
            entry["allocatable"] = {"count": limit}

        def annotate(node: Json) -> None:
            metadata = node["metadata"]
            _set_node_id(metadata, driver, node_id)
            if segments:
                metadata["labels"] = {**(metadata.get("labels") or {}), **segments}

        def enter(csinode: Json) -> None:
            drivers = [d for d in csinode["spec"].get("drivers") or () if d["name"] != driver]
            csinode["spec"]["drivers"] = [*drivers, entry]

        self._change("v1", "Node", annotate)
        self._change("storage.k8s.io/v1", "CSINode", enter)

    def remove_driver(self, driver: str) -> None:
        """Take a driver off the CSINode and the Node's annotation; its labels stay."""

        def leave(csinode: Json) -> None:
            drivers = [d for d in csinode["spec"].get("drivers") or () if d["name"] != driver]
            csinode["spec"]["drivers"] = drivers or None

        def forget(node: Json) -> None:
            _set_node_id(node["metadata"], driver, "")

        self._change("storage.k8s.io/v1", "CSINode", leave)
        self._change("v1", "Node", forget)

    def _change(
        self,
        api_version: str,
        kind: str,
        edit: Callable[[Json], None],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Json:
        """Read, edit and write one of the node's objects until nobody else wrote in between."""
        while True:
            obj = self._client.get(api_version, kind, self.name, namespace=namespace)
            edit(obj)
            try:
                if subresource:
                    return self._client.update_status(obj)
                return self._client.update(obj)
            except ApiError as error:
                if error.reason != "Conflict":
                    raise

    def _new_node(self) -> Json:
        name = self.name
        arch_and_os = {"arch": "amd64", "os": "linux"}
        well_known = {
            f"{prefix}kubernetes.io/{key}": value
            for prefix in ("", "beta.")
            for key, value in arch_and_os.items()
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {**well_known, "kubernetes.io/hostname": name},
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {},
            "status": self._status(()),
        }

    def _new_csinode(self, node: Json) -> Json:
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {
                "name": self.name,
                "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": _MIGRATED},
                "ownerReferences": [_owned_by(node)],
            },
            "spec": {"drivers": None},
        }

    def _status(self, before: Any) -> Json:
        """Return the node's status; a condition keeps the time of its last change."""
        now = time(self._clock.now())
        since = {
            c["type"]: c["lastTransitionTime"]
            for c in before
            if (c["type"], c["status"]) in _STATES
        }
        resources = dict(self._facts.allocatable)
        return {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": since.get(kind, now),
                    "reason": reason,
                    "message": message,
                }
                for kind, status, reason, message in _HEALTHY
            ],
            "addresses": [
                {"type": "InternalIP", "address": self._facts.address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._facts.kubelet_port}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
                "osImage": "gpustack-delivery emulator", "containerRuntimeVersion": "emulated://1.0.0",
                "kubeletVersion": self._facts.version,
            },
        }  # fmt: skip


_STATES = {(kind, status) for kind, status, _, _ in _HEALTHY}


def _owned_by(node: Json) -> Json:
    metadata = node["metadata"]
    return {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}


def _set_node_id(metadata: Json, driver: str, node_id: str) -> None:
    """Write a driver's entry of the annotation that maps drivers to node ids, or take it out."""
    annotations = dict(metadata.get("annotations") or {})
    ids = json.loads(annotations.pop(_NODE_IDS, "{}"))
    ids.pop(driver, None)
    if node_id:
        ids[driver] = node_id
    if ids:
        annotations[_NODE_IDS] = json.dumps(ids, separators=(",", ":"), sort_keys=True)
    metadata["annotations"] = annotations
