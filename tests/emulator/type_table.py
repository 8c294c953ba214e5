"""How `emulator/kinds/types.json` is made: the field names and types of the built-in kinds, from
the official client.

`python -m tests.emulator.type_table` writes the table again; `test_types_table.py` holds the
copy against its source.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kubernetes.client import models

TABLE = Path(__file__).parents[2] / "emulator" / "kinds" / "types.json"

# What is served, by apiVersion; the client's class names carry the version in CamelCase.
ROOTS = {
    "v1": (
        "Binding ConfigMap Endpoints Event=CoreV1Event Namespace Node PersistentVolume "
        "PersistentVolumeClaim Pod"
        " Secret Service ServiceAccount"
    ),
    "apps/v1": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "batch/v1": "CronJob Job",
    "autoscaling/v1": "Scale",
    "storage.k8s.io/v1": "CSIDriver CSINode StorageClass VolumeAttachment",
    "coordination.k8s.io/v1": "Lease",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
    "admissionregistration.k8s.io/v1": (
        "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"
        " ValidatingWebhookConfiguration"
    ),
    "scheduling.k8s.io/v1": "PriorityClass",
    "discovery.k8s.io/v1": "EndpointSlice",
    "policy/v1": "PodDisruptionBudget",
    "networking.k8s.io/v1": "NetworkPolicy",
    "node.k8s.io/v1": "RuntimeClass",
    "events.k8s.io/v1": "Event=EventsV1Event",
    "authentication.k8s.io/v1": "SelfSubjectReview TokenRequest=AuthenticationV1TokenRequest "
    "TokenReview",
    "authorization.k8s.io/v1": (
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview "
        "SubjectAccessReview"
    ),
}

# What the client's models say less precisely than the server: (class, field) to type.
PRECISE = {
    ("V1CustomResourceValidation", "openAPIV3Schema"): "any",
    ("V1LeaseSpec", "acquireTime"): "micro",
    ("V1LeaseSpec", "renewTime"): "micro",
    ("CoreV1Event", "eventTime"): "micro",
    ("EventsV1Event", "eventTime"): "micro",
    ("CoreV1EventSeries", "lastObservedTime"): "micro",
    ("EventsV1EventSeries", "lastObservedTime"): "micro",
    **dict.fromkeys(
        (
            ("V1ResourceRequirements", "limits"),
            ("V1ResourceRequirements", "requests"),
            ("V1VolumeResourceRequirements", "limits"),
            ("V1VolumeResourceRequirements", "requests"),
            ("V1NodeStatus", "capacity"),
            ("V1NodeStatus", "allocatable"),
            ("V1PodSpec", "overhead"),
            ("V1Overhead", "podFixed"),
            ("V1PersistentVolumeSpec", "capacity"),
            ("V1ContainerStatus", "allocatedResources"),
        ),
        "map:quantity",
    ),
    ("V1EmptyDirVolumeSource", "sizeLimit"): "quantity",
    ("V1ResourceFieldSelector", "divisor"): "quantity",
}

SIMPLE = {
    "str": "str",
    "int": "int",
    "bool": "bool",
    "float": "float",
    "datetime": "time",
    "object": "any",
}


def type_name(text: str) -> str:
    """Return a table type: a simple one, `list:T`, `map:T`, or a class name."""
    if text in ("bytes", "bytearray"):
        return "bytes"
    if found := re.fullmatch(r"(?:list\[|List\[)(.*)\]", text):
        return "list:" + type_name(found[1])
    if found := re.fullmatch(r"(?:dict\(|Dict\[)str, (.*?)[\)\]]", text):
        return "map:" + type_name(found[1])
    return SIMPLE.get(text, text)


def build() -> dict[str, dict[str, object]]:
    """Return the table; a type that ends in "!" is required."""
    kinds: dict[str, object] = {}
    for api_version, names in ROOTS.items():
        for entry in names.split():
            kind, _, class_ = entry.partition("=")
            kinds[f"{api_version}/{kind}"] = class_ or f"V1{kind}"
    types: dict[str, object] = {}
    waiting = [str(name) for name in kinds.values()]
    while waiting:
        name = waiting.pop()
        if name in types:
            continue
        model = getattr(models, name)
        fields = {}
        for attribute, text in model.openapi_types.items():
            field = model.attribute_map[attribute]
            type_ = PRECISE.get((name, field)) or type_name(text)
            declared = model.model_fields.get(attribute)
            fields[field] = type_ + ("!" if declared is not None and declared.is_required() else "")
            element = type_.rpartition(":")[2]
            if element[0].isupper():
                waiting.append(element)
        types[name] = dict(sorted(fields.items()))
    return {"kinds": kinds, "types": dict(sorted(types.items()))}


def rendered() -> str:
    """Return the table as it stands in the file: one line a class."""
    table = build()
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in table["types"].items()]
    kinds = json.dumps(table["kinds"])
    return '{\n"kinds": ' + kinds + ',\n"types": {\n' + ",\n".join(lines) + "\n}\n}\n"


if __name__ == "__main__":
    TABLE.write_text(rendered(), encoding="utf-8")
