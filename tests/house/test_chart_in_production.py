"""What a real cluster asks of the chart and an emulated one does not, such as admission."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from emulator.chart import ChartError
from tests.clients import helm
from tests.house.charts import CHART, HELMS, NAMESPACE, RELEASE, VALUES, helms, ours

# Odd to YAML, and all of them names that Kubernetes takes.
ODD_NAMES: Final = ("true", "null", "on", "e1")
ENGINES: Final = (
    ours,
    *(
        pytest.param(partial(helms, major), marks=pytest.mark.needs(f"helm-{major}"))
        for major in ("3", "4")
    ),
)


def pod(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the Pod that the chart's DaemonSet or Deployment makes."""
    (found,) = [item for item in ours(values).values() if item["kind"] == kind]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def container(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a Pod's container."""
    (found,) = [one for one in spec["containers"] if one["name"] == name]
    return dict(found)


def said(major: str, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """Return what a Helm says, good or bad."""
    done = subprocess.run(  # noqa: S603 - helm and our own chart
        [helm(major), *arguments, "-f", "-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("major", HELMS)
def test_helm_finds_nothing_to_mend(major: str) -> None:
    """`helm lint --strict` has no word above a recommendation, with everything set."""
    values = VALUES["everything set"]
    found = said(major, "lint", str(CHART), "--strict", "--kube-version=1.29.0", values=values)
    assert found.startswith("exit 0\n"), found
    assert "[WARNING]" not in found
    assert "[ERROR]" not in found


@pytest.mark.needs("helm-4")
@pytest.mark.parametrize("name", ["as it comes", "the worker alone"])
def test_notes_are_for_what_was_installed(name: str, tmp_path: Path) -> None:
    """Whoever installs is told what admission asks of the namespace, and how to look."""
    dry = ("install", RELEASE, str(CHART), "-n", "else-where", "--dry-run=client")
    nowhere = ("--kubeconfig", str(tmp_path / "none"))
    _, notes = said("4", *dry, *nowhere, values=VALUES[name]).split("\nNOTES:\n")
    assert ("pod-security.kubernetes.io/enforce=privileged" in notes) == (name == "as it comes")
    assert "else-where" in notes
    assert NAMESPACE not in notes


@pytest.mark.parametrize("release", ODD_NAMES)
@pytest.mark.parametrize("engine", ENGINES)
def test_names_are_texts(engine: Any, release: str) -> None:
    """A release or a namespace whose name YAML would read as something else stays a text."""
    values = {"volumeWebhook": {"enabled": True}, "worker": {"certificateSecret": "on"}}
    for item in engine(values, release=release, namespace="1234").values():
        labels = item["metadata"].get("labels", {})
        assert labels.get("app.kubernetes.io/instance", release) == release
        texts = json.dumps(item)
        for wrong in ('"namespace": 1234', '": true.', "kube-system, 1234", ": null"):
            assert wrong not in texts, item["kind"]
        if "namespace" in item["metadata"]:
            assert item["metadata"]["namespace"] in {"1234", "kube-system"}


@pytest.mark.parametrize(
    ("release", "values", "word"),
    [
        ("a.b", {}, "the release's name"),
        ("1a", {}, "the release's name"),
        ("a" * 53, {}, "the release's name"),
        (RELEASE, {"worker": {"webhookPort": 9444}}, "worker.webhookPort and publicApi.port"),
        (RELEASE, {"modelManager": {"port": 32444}}, "modelManager.securePort and"),
    ],
)
def test_what_could_not_run_is_not_installed(
    release: str, values: Mapping[str, Any], word: str
) -> None:
    """A name that no Service can have and a port used twice are refused in a sentence."""
    with pytest.raises(ChartError, match=word):
        ours(values, release=release)


@pytest.mark.parametrize("major", HELMS)
def test_helm_says_the_same_sentence(major: str) -> None:
    """Helm refuses a release's name with our words, and takes the longest."""
    assert "the release's name" in said(major, "template", "a.b", str(CHART))
    assert said(major, "template", "a" * 52, str(CHART)).startswith("exit 0\n")


def test_longest_names_fit() -> None:
    """The longest release's name that is let through makes Services of 63 letters at most."""
    for item in ours({}, release="a" * 52).values():
        assert item["kind"] != "Service" or len(item["metadata"]["name"]) <= 63


def test_worker_is_admitted_to_a_restricted_namespace() -> None:
    """Its Pod keeps what the Pod Security standard `restricted` asks for."""
    spec = pod({}, "Deployment")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"}.intersection(spec)
    for volume in spec["volumes"]:
        assert not volume.keys() - {"name", "emptyDir", "secret", "projected"}
    for one in spec["containers"]:
        context = one["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not any("hostPort" in port for port in one["ports"])


def test_worker_may_live_beside_the_control_plane() -> None:
    """With hostNetwork an API server outside the Pods' network reaches it, and names resolve."""
    spec = pod({"worker": {"hostNetwork": True}}, "Deployment")
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


@pytest.mark.parametrize(
    ("kind", "owner"), [("DaemonSet", "modelManager"), ("Deployment", "worker")]
)
def test_an_administrator_says_where_pods_run(kind: str, owner: str) -> None:
    """What the scheduler is told stands in the Pod as the values have it."""
    told = {
        "nodeSelector": {"kubernetes.io/os": "linux", "gpu": "true"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "mine",
    }
    spec = pod({owner: told}, kind)
    assert {name: spec[name] for name in told} == told


def test_only_who_mounts_is_privileged() -> None:
    """Mounts that propagate need a privileged container; the registrar beside it does without."""
    spec = pod({}, "DaemonSet")
    main, registrar = container(spec, "main"), container(spec, "registrar")
    assert main["securityContext"]["privileged"] is True
    assert [
        mount["mountPath"] for mount in main["volumeMounts"] if mount.get("mountPropagation")
    ] == ["/var/lib/kubelet"]
    assert "privileged" not in registrar["securityContext"]
    # The socket is the privileged container's, which SELinux keeps from an ordinary one.
    assert registrar["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    for one in (main, registrar):
        assert one["securityContext"]["runAsUser"] == 0, "an image's own user must not count"


def test_registrar_is_told_what_kubelet_calls() -> None:
    """It asks the socket as it sees it and announces the one that kubelet sees."""
    spec = pod({"modelManager": {"kubeletDir": "/data/kubelet"}}, "DaemonSet")
    assert container(spec, "registrar")["args"] == [
        "--csi-address=/csi/csi.sock",
        "--kubelet-registration-path=/data/kubelet/plugins/model.csi.gpustack.ai/csi.sock",
    ]
    paths = {volume["name"]: volume.get("hostPath") for volume in spec["volumes"]}
    mounts = {
        mount["mountPath"]: paths[mount["name"]]["path"]
        for mount in container(spec, "registrar")["volumeMounts"]
    }
    assert mounts == {
        "/csi": "/data/kubelet/plugins/model.csi.gpustack.ai",
        "/registration": "/data/kubelet/plugins_registry",
    }


def test_driver_is_what_kubelet_must_know_it_as() -> None:
    """Inline volumes only, told of their Pod, never chowned, usable in restricted namespaces."""
    driver = ours({})["CSIDriver model.csi.gpustack.ai"]
    assert driver["spec"] == {
        "attachRequired": False,
        "podInfoOnMount": True,
        "volumeLifecycleModes": ["Ephemeral"],
        "fsGroupPolicy": "None",
    }
    profile = "security.openshift.io/csi-ephemeral-volume-profile"
    assert driver["metadata"]["labels"][profile] == "restricted"


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment"])
def test_probes_are_patient(kind: str) -> None:
    """A busy node may answer late, and a large cache or a slow API server start a process late."""
    main = container(pod({}, kind), "main")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert main[probe]["timeoutSeconds"] >= 5, probe
    startup = main["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300


def test_a_worker_leaves_when_nobody_calls_it_any_more() -> None:
    """It serves on for the seconds in which API servers still send reviews to it."""
    main = container(pod({}, "Deployment"), "main")
    assert main["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "5"]}}}


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_drain_takes_one_worker_at_a_time(replicas: int) -> None:
    """Replicas stand on different nodes where they can, and only one goes at once."""
    values = {"worker": {"replicas": replicas}}
    (spread,) = pod(values, "Deployment")["topologySpreadConstraints"]
    deployment = ours(values)[f"Deployment {RELEASE}-worker"]
    assert spread["labelSelector"] == deployment["spec"]["selector"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    budgets = [item for item in ours(values).values() if item["kind"] == "PodDisruptionBudget"]
    assert [budget["spec"] for budget in budgets] == [
        {"maxUnavailable": 1, "selector": deployment["spec"]["selector"]}
    ] * (replicas - 1)


def test_what_never_changes_holds_no_version() -> None:
    """A selector is immutable, so nothing that an upgrade changes may stand in it."""
    for item in ours({}).values():
        if item["kind"] in {"DaemonSet", "Deployment"}:
            selector = item["spec"]["selector"]["matchLabels"]
            assert set(selector) == {
                "app.kubernetes.io/name",
                "app.kubernetes.io/instance",
                "app.kubernetes.io/component",
            }
            assert selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("consumers", [True, False])
def test_namespaces_users_get_what_is_theirs(*, consumers: bool) -> None:
    """`view`, `edit` and `admin` cover the tenants' kinds; grants and statuses stay as they are."""
    roles = {
        item["metadata"]["name"]: item
        for item in ours({"consumers": {"enabled": consumers}}).values()
        if item["kind"] == "ClusterRole" and "aggregat" in json.dumps(item["metadata"])
    }
    assert set(roles) == {f"{RELEASE}-view", f"{RELEASE}-edit"}
    theirs = {"modelartifacts", "modelprefetches"}
    theirs |= {"modeldeployments", "instances"} if consumers else set()

    def granted(name: str) -> set[tuple[str, str]]:
        rules = roles[f"{RELEASE}-{name}"]["rules"]
        assert all(rule["apiGroups"] == ["worker.gpustack.ai"] for rule in rules)
        return {
            (what, verb) for rule in rules for what in rule["resources"] for verb in rule["verbs"]
        }

    looks = {(what, verb) for what in theirs for verb in ("get", "list", "watch")}
    looks |= {("modelstorebindings", verb) for verb in ("get", "list", "watch")}
    assert granted("view") == looks | {("modelartifacts/progress", "get")}
    writes = ("create", "update", "patch", "delete", "deletecollection")
    assert granted("edit") == {(what, verb) for what in theirs for verb in writes}
    key = "rbac.authorization.k8s.io/aggregate-to-{}"
    assert {k for k in roles[f"{RELEASE}-view"]["metadata"]["labels"] if "aggregate" in k} == {
        key.format(role) for role in ("view", "edit", "admin")
    }
    assert {k for k in roles[f"{RELEASE}-edit"]["metadata"]["labels"] if "aggregate" in k} == {
        key.format(role) for role in ("edit", "admin")
    }


def test_webhooks_keep_out_of_the_control_planes_way() -> None:
    """Only our own kinds are guarded, and Pods of neither kube-system nor our own namespace."""
    objects = ours({"volumeWebhook": {"enabled": True}})
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in objects[f"{kind} {RELEASE}"]["webhooks"]:
            assert webhook["timeoutSeconds"] <= 10
            # With either a dry run is judged, and leaves nothing behind.
            assert webhook["sideEffects"] in {"None", "NoneOnDryRun"}
            groups = {group for rule in webhook["rules"] for group in rule["apiGroups"]}
            if groups == {"worker.gpustack.ai"}:
                continue
            (names,) = webhook["namespaceSelector"]["matchExpressions"]
            assert names["operator"] == "NotIn"
            assert set(names["values"]) == {"kube-system", NAMESPACE}
            assert webhook["matchConditions"]
