"""Pods: what the server makes of one before a scheduler or a kubelet sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emulator.contracts import Json, Resource, copied
from emulator.errors import (
    Cause,
    duplicate,
    failure,
    forbidden,
    invalid_value,
    not_supported,
    refused_field,
    required,
)
from emulator.kinds.builtin import Builtin
from emulator.kinds.kind import Admitting

_ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOLERATION_SECONDS = 300
_IMMUTABLE = (
    "pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class Pods(Builtin):
    """Pods."""

    def fill(self, object_: Json) -> None:
        """Apply the defaults that a Pod has and a template has not."""
        super().fill(object_)
        spec = object_.setdefault("spec", {})
        spec.setdefault("enableServiceLinks", True)
        for condition in object_.get("status", {}).get("conditions", []):
            for moment in ("lastProbeTime", "lastTransitionTime"):
                condition.setdefault(moment, None)
        for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
            resources = container.get("resources", {})
            for name, amount in resources.get("limits", {}).items():
                resources.setdefault("requests", {}).setdefault(name, amount)

    def admit(self, object_: Json, given: Admitting) -> None:
        """Give the Pod account, token, priority and tolerations. Raises ApiError 403."""
        spec = object_["spec"]
        _account(self.resource, object_, given)
        _tolerate(spec)
        priority = 0
        name = spec.get("priorityClassName")
        if name:
            found = given.lookup(("scheduling.k8s.io", "priorityclasses"), "", name)
            if found is None:
                text = f"no PriorityClass with name {name} was found"
                raise forbidden(self.resource, object_["metadata"].get("name", ""), text)
            priority = found["value"]
        spec["priority"] = priority
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def begin(self, object_: Json) -> None:
        """Start Pending."""
        super().begin(object_)
        object_["status"] = {"phase": "Pending", "qosClass": _quality(object_["spec"])}

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Let a binding write node and condition; keep the node in every other update."""
        if subresource != "binding":
            super().carry(object_, old, subresource)

    def bumps_generation(self, object_: Json, old: Json) -> bool:
        """Count changes of the spec; being bound to a node is none."""
        return {**object_["spec"], "nodeName": ""} != {**old["spec"], "nodeName": ""}

    def carry_to_status(self, object_: Json, old: Json) -> None:
        """Keep the spec, and the quality class that the server computed."""
        super().carry_to_status(object_, old)
        quality = old.get("status", {}).get("qosClass")
        if quality:
            object_.setdefault("status", {}).setdefault("qosClass", quality)

    def grace_seconds(self, object_: Json, asked: int | None) -> int:
        """Return the grace period, none for a Pod that does not run on a node."""
        phase = object_.get("status", {}).get("phase")
        if not object_["spec"].get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        own = int(object_["spec"].get("terminationGracePeriodSeconds", 30))
        return own if asked is None else max(asked, 0)

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield what is wrong with the spec, and changes of what is for life."""
        spec = object_["spec"]
        if old is None:
            yield from spec_faults(spec, "spec")
        elif not subresource and _sealed(spec) != _sealed(old["spec"]):
            yield refused_field("spec", _IMMUTABLE)
        elif not subresource and not _only_added(
            old["spec"].get("tolerations", []), spec.get("tolerations", [])
        ):
            yield refused_field(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )


def _account(resource: Resource, object_: Json, given: Admitting) -> None:
    spec, metadata = object_["spec"], object_["metadata"]
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    namespace = metadata.get("namespace", "")
    account = given.lookup(("", "serviceaccounts"), namespace, name)
    if account is None:
        text = (
            f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not '
            f"found"
        )
        raise forbidden(resource, metadata.get("name", ""), text)
    if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = copied(account["imagePullSecrets"])
    wanted = spec.get(
        "automountServiceAccountToken", account.get("automountServiceAccountToken", True)
    )
    if wanted:
        _mount_token(spec, f"kube-api-access-{given.suffix()}")


def _mount_token(spec: Json, volume: str) -> None:
    mounted = False
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount.get("mountPath") == _ACCOUNT_MOUNT for mount in mounts):
            mounts.append({"name": volume, "readOnly": True, "mountPath": _ACCOUNT_MOUNT})
            mounted = True
    if not mounted:
        return
    namespace_field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace_field}]}},
    ]
    token: Json = {"name": volume, "projected": {"sources": sources, "defaultMode": 420}}
    spec.setdefault("volumes", []).append(token)


def _tolerate(spec: Json) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        covered = any(
            one.get("key") in (key, None) and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        )
        if not covered:
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                }
            )


def _quality(spec: Json) -> str:
    """Return the quality of service class: Guaranteed, Burstable or BestEffort."""
    amounts = [
        (
            container.get("resources", {}).get("requests", {}),
            container.get("resources", {}).get("limits", {}),
        )
        for container in [*spec.get("containers", []), *spec.get("initContainers", [])]
    ]
    if not any(requests or limits for requests, limits in amounts):
        return "BestEffort"
    full = all(
        {"cpu", "memory"} <= limits.keys() and requests == limits for requests, limits in amounts
    )
    return "Guaranteed" if full else "Burstable"


def _sealed(spec: Json) -> Json:
    """Return what no update may change."""
    free = {
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "containers",
        "initContainers",
    }
    sealed: Json = {name: part for name, part in spec.items() if name not in free}
    for part in ("containers", "initContainers"):
        sealed[part] = [
            {name: value for name, value in one.items() if name != "image"}
            for one in spec.get(part, [])
        ]
    if spec.get("schedulingGates"):
        for part in ("schedulingGates", "nodeSelector", "affinity"):
            sealed.pop(part, None)
    return sealed


def _only_added(before: list[Json], after: list[Json]) -> bool:
    def bare(tolerations: list[Json]) -> list[Json]:
        return [
            {key: value for key, value in one.items() if key != "tolerationSeconds"}
            for one in tolerations
        ]

    now = bare(after)
    return all(one in now for one in bare(before))


def spec_faults(spec: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with the spec of a Pod or of a template."""
    names: set[str] = set()
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes", [])):
        where = f"{field}.volumes[{index}]"
        if volume.get("name") in volumes:
            yield duplicate(f"{where}.name", volume["name"])
        volumes.add(volume.get("name", ""))
        yield from _volume_faults(volume, where)
    if not spec.get("containers"):
        yield required(f"{field}.containers")
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part, [])):
            where = f"{field}.{part}[{index}]"
            name = container.get("name", "")
            if not name:
                yield required(f"{where}.name")
            elif name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
            if not container.get("image"):
                yield required(f"{where}.image")
            yield from _mount_faults(container, where, volumes)
    policies = ("Always", "OnFailure", "Never")
    if spec.get("restartPolicy") not in policies:
        yield not_supported(f"{field}.restartPolicy", spec.get("restartPolicy"), policies)


def _mount_faults(container: Json, where: str, volumes: set[str]) -> Iterator[Cause]:
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", [])):
        name, path = mount.get("name", ""), mount.get("mountPath", "")
        if name not in volumes:
            yield Cause(
                f"{where}.volumeMounts[{index}].name", "FieldValueNotFound", f'Not found: "{name}"'
            )
        if not path:
            yield required(f"{where}.volumeMounts[{index}].mountPath")
        if path in paths:
            yield invalid_value(f"{where}.volumeMounts[{index}].mountPath", path, "must be unique")
        paths.add(path)


def _volume_faults(volume: Json, where: str) -> Iterator[Cause]:
    csi: Any = volume.get("csi")
    sources = [name for name in volume if name != "name"]
    if len(sources) > 1:
        yield refused_field(f"{where}.{sources[1]}", "may not specify more than 1 volume type")
    if csi is not None and not csi.get("driver"):
        yield required(f"{where}.csi.driver")
    if (
        csi is not None
        and "nodePublishSecretRef" in csi
        and not csi["nodePublishSecretRef"].get("name")
    ):
        yield required(f"{where}.csi.nodePublishSecretRef.name")


def bound(pod: Json, node: str, annotations: Json, now: str) -> Json:
    """Return a Pod as it is once it is bound to a node. Raises ApiError 409 when it already is."""
    name, taken = pod["metadata"]["name"], pod["spec"].get("nodeName")
    if taken or pod["metadata"].get("deletionTimestamp"):
        text = (
            f'pod {name} is already assigned to node "{taken}"'
            if taken
            else f"pod {name} is being deleted, cannot be assigned to a host"
        )
        message = f'Operation cannot be fulfilled on pods/binding "{name}": {text}'
        raise failure(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
    pod = copied(pod)
    pod["spec"]["nodeName"] = node
    pod["metadata"].setdefault("annotations", {}).update(annotations)
    if not pod["metadata"]["annotations"]:
        del pod["metadata"]["annotations"]
    conditions = pod["status"].setdefault("conditions", [])
    conditions[:] = [one for one in conditions if one["type"] != "PodScheduled"]
    conditions.append(
        {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    )
    return pod
