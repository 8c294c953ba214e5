"""Every built-in kind that is served, and where its rules are.

A row is one resource; `R` is only a shorter way to write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.contracts import Resource
from emulator.kinds import api_services, columns, metadata
from emulator.kinds.api_services import ApiServices
from emulator.kinds.builtin import (
    Builtin,
    DaemonSets,
    Profile,
    RoleBindings,
    WebhookConfigurations,
    Workload,
)
from emulator.kinds.core import ConfigMaps, Namespaces, Nodes, Secrets, Services
from emulator.kinds.definitions import Definitions
from emulator.kinds.events import CoreEvents, Events
from emulator.kinds.kind import Column, Kind
from emulator.kinds.pods import Pods
from emulator.kinds.storage import CsiDrivers, CsiNodes, Leases

_PLAIN = Profile()
_POD_FIELDS = {
    "spec.nodeName": "spec.nodeName",
    "spec.restartPolicy": "spec.restartPolicy",
    "spec.schedulerName": "spec.schedulerName",
    "spec.serviceAccountName": "spec.serviceAccountName",
    "spec.hostNetwork": "spec.hostNetwork?",
    "status.phase": "status.phase",
    "status.podIP": "status.podIP",
    "status.nominatedNodeName": "status.nominatedNodeName",
}
_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = {
    **{f"involvedObject.{part}": f"involvedObject.{part}" for part in _ABOUT},
    "reason": "reason",
    "type": "type",
    "source": "source.component",
    "reportingComponent": "reportingComponent",
}
_NEW_EVENT_FIELDS = {
    **{f"regarding.{part}": f"regarding.{part}" for part in _ABOUT},
    "reason": "reason",
    "type": "type",
    "reportingController": "reportingController",
}


_USUAL = "create delete deletecollection get list patch update watch"


@dataclass(frozen=True, slots=True)
class R:
    """One resource: plural and kind, then what is not usual about it."""

    plural: str
    kind: str
    short: str = ""
    namespaced: bool = True
    subresources: str = ""
    verbs: str = _USUAL
    categories: str = ""
    columns: Sequence[Column] = columns.PLAIN
    profile: Profile = _PLAIN
    rules: type[Builtin] = Builtin


_SPEC = Profile(generation=True)
_STRICT = Profile(unconditional_update=False)
_RBAC = Profile(namer=metadata.path_segment_faults)
_RETURNS = Profile(returns_deleted=True)


def _workload(status: dict[str, int] | None = None) -> Profile:
    return Profile(generation=True, status=status or {})


_DAEMONS = dict.fromkeys(
    ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
)

GROUPS: dict[str, tuple[R, ...]] = {
    "v1": (
        R("configmaps", "ConfigMap", "cm", columns=columns.CONFIG_MAPS, rules=ConfigMaps),
        R("endpoints", "Endpoints", "ep"),
        R("events", "Event", "ev", columns=columns.EVENTS, rules=CoreEvents,
          profile=Profile(fields=_EVENT_FIELDS)),
        R("namespaces", "Namespace", "ns", namespaced=False, subresources="status finalize",
          verbs=_USUAL.replace("deletecollection ", ""),
          columns=columns.NAMESPACES, rules=Namespaces,
          profile=Profile(returns_deleted=True, namer=metadata.label_faults,
                          fields={"status.phase": "status.phase"})),
        R("nodes", "Node", "no", namespaced=False, subresources="status", columns=columns.NODES,
          rules=Nodes, profile=Profile(fields={"spec.unschedulable": "spec.unschedulable?"})),
        R("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subresources="status",
          profile=Profile(returns_deleted=True, status={"phase": "Pending"})),
        R("persistentvolumes", "PersistentVolume", "pv", namespaced=False, subresources="status",
          profile=Profile(returns_deleted=True, status={"phase": "Pending"})),
        R("pods", "Pod", "po", subresources="status", categories="all", columns=columns.PODS,
          rules=Pods, profile=Profile(generation=True, returns_deleted=True, fields=_POD_FIELDS)),
        R("secrets", "Secret", columns=columns.SECRETS, rules=Secrets,
          profile=Profile(fields={"type": "type"})),
        R("serviceaccounts", "ServiceAccount", "sa", columns=columns.ACCOUNTS, profile=_RETURNS),
        R("services", "Service", "svc", subresources="status", categories="all", rules=Services,
          columns=columns.SERVICES,
          profile=Profile(returns_deleted=True, namer=metadata.dns1035_faults,
                          status={"loadBalancer": {}},
                          fields={"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"})),
    ),
    "apps/v1": (
        R("controllerrevisions", "ControllerRevision"),
        R("daemonsets", "DaemonSet", "ds", subresources="status", categories="all",
          columns=columns.DAEMON_SETS, profile=_workload(_DAEMONS), rules=DaemonSets),
        R("deployments", "Deployment", "deploy", subresources="scale status", categories="all",
          columns=columns.DEPLOYMENTS, profile=_workload(), rules=Workload),
        R("replicasets", "ReplicaSet", "rs", subresources="scale status", categories="all",
          profile=_workload({"replicas": 0}), rules=Workload),
        R("statefulsets", "StatefulSet", "sts", subresources="scale status", categories="all",
          profile=_workload({"replicas": 0, "availableReplicas": 0}), rules=Workload),
    ),
    "batch/v1": (
        R("cronjobs", "CronJob", "cj", subresources="status", categories="all",
          profile=_workload()),
        R("jobs", "Job", subresources="status", categories="all", profile=_workload()),
    ),
    "storage.k8s.io/v1": (
        R("csidrivers", "CSIDriver", namespaced=False, columns=columns.CSI_DRIVERS,
          profile=_RETURNS, rules=CsiDrivers),
        R("csinodes", "CSINode", namespaced=False, columns=columns.CSI_NODES, profile=_RETURNS,
          rules=CsiNodes),
        R("storageclasses", "StorageClass", "sc", namespaced=False, profile=_RETURNS),
        R("volumeattachments", "VolumeAttachment", namespaced=False, subresources="status",
          profile=Profile(returns_deleted=True, status={"attached": False})),
    ),
    "coordination.k8s.io/v1": (
        R("leases", "Lease", columns=columns.LEASES, profile=_STRICT, rules=Leases),
    ),
    "rbac.authorization.k8s.io/v1": (
        R("clusterrolebindings", "ClusterRoleBinding", namespaced=False, profile=_RBAC,
          columns=columns.BINDINGS, rules=RoleBindings),
        R("clusterroles", "ClusterRole", namespaced=False, profile=_RBAC, columns=columns.ROLES),
        R("rolebindings", "RoleBinding", profile=_RBAC, columns=columns.BINDINGS,
          rules=RoleBindings),
        R("roles", "Role", profile=_RBAC, columns=columns.ROLES),
    ),
    "apiextensions.k8s.io/v1": (
        R("customresourcedefinitions", "CustomResourceDefinition", "crd crds", namespaced=False,
          subresources="status", categories="api-extensions", rules=Definitions,
          profile=Profile(generation=True, unconditional_update=False)),
    ),
    "apiregistration.k8s.io/v1": (
        R("apiservices", "APIService", namespaced=False, subresources="status",
          categories="api-extensions", columns=api_services.COLUMNS, rules=ApiServices,
          profile=Profile(unconditional_update=False, status={},
                          namer=metadata.path_segment_faults)),
    ),
    "admissionregistration.k8s.io/v1": (
        R("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False,
          categories="api-extensions", columns=columns.WEBHOOKS,
          profile=Profile(generation=True, unconditional_update=False),
          rules=WebhookConfigurations),
        R("validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False,
          subresources="status", categories="api-extensions",
          profile=Profile(generation=True, status={})),
        R("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False,
          categories="api-extensions", profile=_SPEC),
        R("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False,
          categories="api-extensions", columns=columns.WEBHOOKS,
          profile=Profile(generation=True, unconditional_update=False),
          rules=WebhookConfigurations),
    ),
    "scheduling.k8s.io/v1": (R("priorityclasses", "PriorityClass", "pc", namespaced=False),),
    "discovery.k8s.io/v1": (R("endpointslices", "EndpointSlice"),),
    "policy/v1": (
        R("poddisruptionbudgets", "PodDisruptionBudget", "pdb", subresources="status",
          profile=_workload()),
    ),
    "networking.k8s.io/v1": (R("networkpolicies", "NetworkPolicy", "netpol", profile=_SPEC),),
    "node.k8s.io/v1": (R("runtimeclasses", "RuntimeClass", namespaced=False),),
    "authentication.k8s.io/v1": (
        R("selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs="create"),
        R("tokenreviews", "TokenReview", namespaced=False, verbs="create"),
    ),
    "authorization.k8s.io/v1": (
        R("localsubjectaccessreviews", "LocalSubjectAccessReview", verbs="create"),
        R("selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False, verbs="create"),
        R("selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False, verbs="create"),
        R("subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs="create"),
    ),
    "events.k8s.io/v1": (
        R("events", "Event", "ev", columns=columns.EVENTS, rules=Events,
          profile=Profile(fields=_NEW_EVENT_FIELDS)),
    ),
}  # fmt: skip

SHARED = {("events.k8s.io", "events"): ("", "events")}
"""Collections that two groups serve from one store: where the second finds its objects."""


def builtin_kinds() -> list[Kind]:
    """Return the rules of every built-in resource, in the order that discovery lists them."""
    return [
        row.rules(_resource(api_version, row), row.columns, row.profile)
        for api_version, rows in GROUPS.items()
        for row in rows
    ]


def _resource(api_version: str, row: R) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(
        group=group,
        version=version,
        plural=row.plural,
        kind=row.kind,
        namespaced=row.namespaced,
        singular=row.kind.lower(),
        list_kind=f"{row.kind}List",
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        subresources=frozenset(row.subresources.split()),
        verbs=tuple(row.verbs.split()),
    )
