"""What built-in kinds say about merging: which lists have keys, which values are one leaf.

The real server reads this from the kinds' Go sources. Field names mean the same thing in almost
every kind, so names suffice here, but for `ports` and `addresses`, whose keys depend on where they
stand. `EMPTY` holds what a kind's empty object looks like on the wire: a member that is there even
when nobody wrote it is never owned as a whole, which decides whether "." stands in managedFields.
"""

from __future__ import annotations

from emulator.contracts import Json

LIST_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "drivers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "matchConditions": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "variables": ("name",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
_PORT_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("containerPort", "protocol"),
    "ephemeralContainers": ("containerPort", "protocol"),
    "initContainers": ("containerPort", "protocol"),
    "spec": ("port", "protocol"),  # of a Service
}
KEY_DEFAULTS: dict[str, str] = {"protocol": "TCP"}
SET_LISTS = frozenset({"finalizers", "podCIDRs", "validationActions", "volumeLifecycleModes"})
LEAVES = frozenset(
    {
        "configMapKeyRef",
        "fieldRef",
        "imagePullSecrets",
        "involvedObject",
        "matchConstraints",
        "matchLabels",
        "matchResources",
        "namespaceSelector",
        "nodePublishSecretRef",
        "nodeSelector",
        "nodeStageSecretRef",
        "objectSelector",
        "ownerReferences",
        "podSelector",
        "regarding",
        "related",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "resourceFieldRef",
        "roleRef",
        "secretKeyRef",
        "secretRef",
        "secrets",
        "selector",
        "target",
        "targetRef",
        "variables",
    }
)
"""Maps that merge as one value, alone or as items: references, selectors, keys of others."""

STRATEGIC_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that a strategic merge patch adds to instead of replacing."""

_TEMPLATE: Json = {"metadata": {}, "spec": {"containers": None}}
EMPTY: dict[str, Json] = {
    "APIService": {"spec": {"groupPriorityMinimum": 0, "versionPriority": 0}, "status": {}},
    "CSIDriver": {"spec": {}},
    "CSINode": {"spec": {"drivers": None}},
    "ClusterRole": {"rules": None},
    "ClusterRoleBinding": {"roleRef": {"apiGroup": "", "kind": "", "name": ""}},
    "CustomResourceDefinition": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": None,
        },
    },
    "DaemonSet": {
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        },
    },
    "Deployment": {"spec": {"selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}},
    "Event": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "Job": {"spec": {"template": _TEMPLATE}, "status": {}},
    "Lease": {"spec": {}},
    "Namespace": {"spec": {}, "status": {}},
    "Node": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "",
                "containerRuntimeVersion": "",
                "kubeletVersion": "",
                "kubeProxyVersion": "",
                "operatingSystem": "",
                "architecture": "",
            },
        },
    },
    "PersistentVolume": {"spec": {}, "status": {}},
    "PersistentVolumeClaim": {"spec": {"resources": {}}, "status": {}},
    "Pod": {"spec": {"containers": None}, "status": {}},
    "PodDisruptionBudget": {
        "spec": {},
        "status": {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        },
    },
    "PriorityClass": {"value": 0},
    "ReplicaSet": {"spec": {"selector": None}, "status": {"replicas": 0}},
    "Role": {"rules": None},
    "RoleBinding": {"roleRef": {"apiGroup": "", "kind": "", "name": ""}},
    "Service": {"spec": {}, "status": {"loadBalancer": {}}},
    "StatefulSet": {
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {"replicas": 0},
    },
    "StorageClass": {"provisioner": ""},
    "TokenRequest": {
        "spec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None},
        "status": {"token": "", "expirationTimestamp": None},
    },
    "TokenReview": {"spec": {}, "status": {"user": {}}},
    "SubjectAccessReview": {"spec": {}, "status": {"allowed": False}},
    "SelfSubjectAccessReview": {"spec": {}, "status": {"allowed": False}},
    "LocalSubjectAccessReview": {"spec": {}, "status": {"allowed": False}},
    "ValidatingAdmissionPolicy": {"spec": {}, "status": {}},
    "ValidatingAdmissionPolicyBinding": {"spec": {}},
}


def list_keys(name: str, parent: str) -> tuple[str, ...]:
    """Return the keys of the list `name` inside a value whose own name is `parent`; () for a list
    without keys.
    """
    if name == "ports":
        return _PORT_KEYS.get(parent, ())
    if name == "addresses" and parent != "status":
        return ()  # those of a Node have types, those of Endpoints are one value
    return LIST_KEYS.get(name, ())
