"""Kinds of the core group that have rules of their own, Pods and Events apart."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterator

from emulator.contracts import Json, copied
from emulator.errors import Cause, forbidden, invalid_value, not_supported, required
from emulator.kinds.builtin import Builtin, immutable_data
from emulator.kinds.kind import Admitting

_NODE_STATUS: Json = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": dict.fromkeys(
        (
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ),
        "",
    ),
}
_IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
_SERVICE_NETWORK = ipaddress.ip_network("10.96.0.0/12")


class Namespaces(Builtin):
    """Namespaces, held by the finalizer that their controller takes away."""

    marks_grace = False

    def begin(self, object_: Json) -> None:
        """Mark the namespace as its controller's, and name it by label."""
        super().begin(object_)
        object_["spec"] = {"finalizers": ["kubernetes"]}
        object_["status"] = {"phase": "Active"}

    def fill(self, object_: Json) -> None:
        """Set the label that selectors know a namespace by; spec and status are always there."""
        super().fill(object_)
        name = object_["metadata"].get("name")
        if name:
            object_["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
        object_.setdefault("spec", {})
        object_.setdefault("status", {})

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Let only /finalize write the finalizers in spec."""
        if subresource == "finalize":
            object_["status"] = old.get("status", {})
            return
        super().carry(object_, old, subresource)
        object_["spec"] = old["spec"]

    def die(self, object_: Json, now: str) -> bool:
        """Terminate: the namespace stays until its controller has emptied it. Raises ApiError."""
        name = object_["metadata"]["name"]
        if name in _IMMORTAL:
            raise forbidden(self.resource, name, "this namespace may not be deleted")
        object_["status"] = {**object_.get("status", {}), "phase": "Terminating"}
        return bool(object_["spec"].get("finalizers"))

    def released(self, object_: Json) -> bool:
        """Say whether neither kind of finalizer is left."""
        return super().released(object_) and not object_["spec"].get("finalizers")


class Nodes(Builtin):
    """Nodes: status may come with the create, as kubelet does it."""

    def begin(self, object_: Json) -> None:
        """Leave the status as given."""

    def fill(self, object_: Json) -> None:
        """Fill in the parts of status that are always there."""
        super().fill(object_)
        object_.setdefault("spec", {})
        status = object_.setdefault("status", {})
        for part, empty in _NODE_STATUS.items():
            status[part] = {**copied(empty), **status.get(part, {})}
        for condition in status.get("conditions", []):
            for moment in ("lastHeartbeatTime", "lastTransitionTime"):
                condition.setdefault(moment, None)

    def admit(self, object_: Json, given: Admitting) -> None:
        """Keep Pods off a new node until somebody reports it ready."""
        taints = object_["spec"].setdefault("taints", [])
        key = "node.kubernetes.io/not-ready"
        if not any(taint.get("key") == key for taint in taints):
            taints.append({"key": key, "effect": "NoSchedule"})

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield taints with an effect that does not exist."""
        for index, taint in enumerate(object_["spec"].get("taints", [])):
            if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                allowed = ("NoSchedule", "NoExecute", "PreferNoSchedule")
                yield not_supported(
                    f"spec.taints[{index}].effect", taint.get("effect", ""), allowed
                )


class ConfigMaps(Builtin):
    """ConfigMaps."""

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield what is wrong with the data."""
        return immutable_data(object_, old)


class Secrets(Builtin):
    """Secrets: stringData is a way to write data, and never read."""

    def fill(self, object_: Json) -> None:
        """Fold stringData into data."""
        super().fill(object_)
        for key, value in object_.pop("stringData", {}).items():
            object_.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield what is wrong with the data, and a changed type."""
        yield from immutable_data(object_, old)
        if old is not None and old.get("type") != object_.get("type"):
            yield invalid_value("type", object_.get("type", ""), "field is immutable")
        wanted = {
            "kubernetes.io/tls": ("tls.crt", "tls.key"),
            "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
        }
        for key in wanted.get(object_.get("type", ""), ()):
            if key not in object_.get("data", {}):
                yield required(f"data[{key}]")


class Services(Builtin):
    """Services: each gets a cluster address that follows from its name."""

    def begin(self, object_: Json) -> None:
        """Give the service its address and families."""
        super().begin(object_)
        spec = object_.setdefault("spec", {})
        if spec.get("type") == "ExternalName":
            return
        if not spec.get("clusterIP"):
            metadata = object_["metadata"]
            seed = f"{metadata.get('namespace')}/{metadata.get('name')}".encode()
            offset = int.from_bytes(hashlib.sha256(seed).digest()[:4]) % (
                _SERVICE_NETWORK.num_addresses - 512
            )
            spec["clusterIP"] = str(_SERVICE_NETWORK[256 + offset])
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Keep the address when the update does not name one."""
        super().carry(object_, old, subresource)
        for part in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if part in old["spec"]:
                object_["spec"].setdefault(part, old["spec"][part])

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield a service without ports, and a changed address."""
        spec = object_.get("spec", {})
        if (
            not spec.get("ports")
            and spec.get("type") != "ExternalName"
            and spec.get("clusterIP") != "None"
        ):
            yield required("spec.ports")
        before = old["spec"].get("clusterIP") if old is not None else None
        if before and spec.get("clusterIP") != before and spec.get("type") != "ExternalName":
            yield invalid_value(
                "spec.clusterIPs[0]", [spec.get("clusterIP")], "may not change once set"
            )
