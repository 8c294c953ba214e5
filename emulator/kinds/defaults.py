"""Defaults of built-in kinds, by the class that holds the field.

A class is defaulted wherever it occurs: a Container gets the same in a Pod and in a DaemonSet's
template. Constants stand in one table; what depends on other fields stands in a function beside
it. What only a Pod itself gets, not a template, is in `pods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from emulator.contracts import Json, copied
from emulator.kinds import typed

_MODE = {"defaultMode": 420}

CONSTANTS: Mapping[str, Mapping[str, Any]] = {
    "V1PodSpec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
    "V1Container": {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    "V1ContainerPort": {"protocol": "TCP"},
    "V1Probe": {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
    "V1HTTPGetAction": {"scheme": "HTTP", "path": "/"},
    "V1GRPCAction": {"service": ""},
    "V1SecretVolumeSource": _MODE,
    "V1ConfigMapVolumeSource": _MODE,
    "V1DownwardAPIVolumeSource": _MODE,
    "V1ProjectedVolumeSource": _MODE,
    "V1HostPathVolumeSource": {"type": ""},
    "V1ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "V1ObjectFieldSelector": {"apiVersion": "v1"},
    "V1DaemonSetSpec": {"revisionHistoryLimit": 10, "updateStrategy": {}},
    "V1DaemonSetUpdateStrategy": {"type": "RollingUpdate"},
    "V1DeploymentSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {},
    },
    "V1DeploymentStrategy": {"type": "RollingUpdate"},
    "V1ReplicaSetSpec": {"replicas": 1},
    "V1StatefulSetSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "V1JobSpec": {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
    "V1CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "V1ServiceSpec": {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    },
    "V1ServicePort": {"protocol": "TCP"},
    "V1CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
    "V1StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "V1PersistentVolumeSpec": {
        "volumeMode": "Filesystem",
        "persistentVolumeReclaimPolicy": "Retain",
    },
    "V1PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "V1ValidatingWebhook": {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    },
    "V1MutatingWebhook": {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    },
    "V1RuleWithOperations": {"scope": "*"},
    "AdmissionregistrationV1ServiceReference": {"port": 443},
    "ApiregistrationV1ServiceReference": {"port": 443},
    "V1ValidatingAdmissionPolicySpec": {"failurePolicy": "Fail", "matchConstraints": {}},
    "V1MatchResources": {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
    },
    "V1NamedRuleWithOperations": {"scope": "*"},
    "V1RoleRef": {"apiGroup": "rbac.authorization.k8s.io"},
    "V1PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "V1CustomResourceDefinitionSpec": {"conversion": {"strategy": "None"}},
    "V1Secret": {"type": "Opaque"},
    "DiscoveryV1EndpointPort": {"name": "", "protocol": "TCP"},
}


def _container(container: Json) -> None:
    image = str(container.get("image", ""))
    digest = "@" in image
    tag = image.rpartition("/")[2].partition(":")[2]
    always = not digest and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if always else "IfNotPresent")


def _pod_spec(spec: Json) -> None:
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if spec.get("hostNetwork"):
        for container in spec.get("containers", []):
            for port in container.get("ports", []):
                port.setdefault("hostPort", port.get("containerPort"))


def _volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}


def _rolling_daemons(strategy: Json) -> None:
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


def _rolling_deployment(strategy: Json) -> None:
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _job(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)


def _service(spec: Json) -> None:
    if spec["type"] == "ExternalName":
        spec.pop("internalTrafficPolicy", None)


def _service_port(port: Json) -> None:
    port.setdefault("targetPort", port.get("port"))


def _subject(subject: Json) -> None:
    if subject.get("kind") in ("User", "Group"):
        subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


COMPUTED: Mapping[str, Callable[[Json], None]] = {
    "V1Container": _container,
    "V1PodSpec": _pod_spec,
    "V1Volume": _volume,
    "V1DaemonSetUpdateStrategy": _rolling_daemons,
    "V1DeploymentStrategy": _rolling_deployment,
    "V1JobSpec": _job,
    "V1ServiceSpec": _service,
    "V1ServicePort": _service_port,
    "RbacV1Subject": _subject,
}


def apply(class_name: str, value: Json) -> None:
    """Fill in the defaults of a class and of everything in it, in place."""
    for field, default in CONSTANTS.get(class_name, {}).items():
        if field not in value:
            value[field] = copied(default)
    for field, element in _relevant(class_name):
        held = value.get(field)
        for one in held if isinstance(held, list) else (held,):
            if isinstance(one, dict):
                apply(element, one)
    computed = COMPUTED.get(class_name)
    if computed:
        computed(value)


@cache
def _relevant(class_name: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of a class under which some default can apply."""
    found = []
    for field, type_ in typed.fields(class_name).items():
        element = type_.removeprefix("list:")
        if element[0].isupper() and _defaulted(element):
            found.append((field, element))
    return tuple(found)


@cache
def _defaulted(class_name: str) -> bool:
    seen, waiting = set(), [class_name]
    while waiting:
        name = waiting.pop()
        if name in CONSTANTS or name in COMPUTED:
            return True
        seen.add(name)
        elements = (type_.rpartition(":")[2] for type_ in typed.fields(name).values())
        waiting.extend(one for one in elements if one[0].isupper() and one not in seen)
    return False
