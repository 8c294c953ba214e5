"""The real kubectl against a live emulator: it does its work, and never complains of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from emulator import Cluster
from tests.emulator.kubectl_runner import PATIENCE_SECONDS, Kubectl, client_version, covered, plain
from tests.emulator.replay import FOLDER

pytestmark = pytest.mark.needs("kubectl")

WIDGET = """
apiVersion: rig.example.io/v1
kind: Widget
metadata: {name: k1, namespace: t1, labels: {app: x}}
spec: {size: 2, items: [{key: a, value: b}]}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d1, namespace: t1}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - {name: first, image: one, ports: [{containerPort: 80}]}
      - {name: second, image: one}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of kubectl's own version, with the recordings' CRD and a namespace."""
    with Cluster(kubernetes=client_version()) as made:
        widgets = json.loads((FOLDER / "golden" / "widgets.json").read_text("utf-8"))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t1"}}
        made.apply([widgets, namespace])
        yield made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all runs, so that kubectl's discovery cache is used as it is in life."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(cluster: Cluster, home: Path) -> Iterator[Kubectl]:
    """Kubectl as the administrator; what a test makes in the namespace is gone after it."""
    made = Kubectl(cluster.kubeconfig("admin"), home)
    yield made
    made.run("delete widgets,deployments --all -n t1")


def test_versions_agree(kubectl: Kubectl) -> None:
    """The server's version is one that kubectl does not warn of."""
    assert f"Server Version: v{client_version()}" in kubectl.run("version")


def test_everything_served_is_listed(kubectl: Kubectl) -> None:
    """Discovery lists built-in and custom resources with short names and categories."""
    listed = kubectl.run("api-resources")
    rows = [line.split() for line in listed.splitlines()]
    assert ["widgets", "wg", "rig.example.io/v1", "true", "Widget"] in rows
    assert ["leases", "coordination.k8s.io/v1", "true", "Lease"] in rows
    assert kubectl.run("api-versions").count("rig.example.io/v1") == 1
    assert kubectl.run("get all -n t1 -o name") == ""


def test_apply_get_and_delete(kubectl: Kubectl) -> None:
    """Client-side apply creates, notices no change, changes; get shows columns; delete ends."""
    assert kubectl.run("apply -f -", sent=WIDGET) == "widget.rig.example.io/k1 created\n"
    assert kubectl.run("apply -f -", sent=WIDGET) == "widget.rig.example.io/k1 unchanged\n"
    changed = WIDGET.replace("size: 2", "size: 3")
    assert kubectl.run("apply -f -", sent=changed) == "widget.rig.example.io/k1 configured\n"
    heading, row = kubectl.run("get wg -n t1").splitlines()
    assert heading.split() == ["NAME", "SIZE", "MODE", "PHASE", "READY", "AGE"]
    assert row.split()[:3] == ["k1", "3", "Shared"]
    assert yaml.safe_load(kubectl.run("get wg k1 -n t1 -o yaml"))["spec"]["size"] == 3
    assert kubectl.run("delete wg k1 -n t1").startswith('widget.rig.example.io "k1" deleted')
    assert '"k1" not found' in kubectl.refused("get wg k1 -n t1")


def test_apply_merges_keyed_lists_of_built_in_kinds(kubectl: Kubectl) -> None:
    """Taking one container out of a manifest takes it out of the object, and leaves the other."""
    kubectl.run("apply -f -", sent=DEPLOYMENT)
    shorter = DEPLOYMENT.replace("      - {name: second, image: one}\n", "")
    kubectl.run("apply -f -", sent=shorter)
    containers = kubectl.object("get deploy d1 -n t1")["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["first"]


def test_unknown_fields_are_refused(kubectl: Kubectl) -> None:
    """kubectl leaves validation to the server, which names the field."""
    wrong = WIDGET.replace("size: 2", "size: 2, bogus: 1")
    assert 'unknown field "spec.bogus"' in kubectl.refused("apply -f -", sent=wrong)


def test_server_side_apply(kubectl: Kubectl) -> None:
    """Server-side apply owns its fields, conflicts with others, and takes them by force."""
    applied = "widget.rig.example.io/k1 serverside-applied\n"
    assert kubectl.run("apply --server-side -f -", sent=WIDGET) == applied
    other = "apply --server-side --field-manager=other -f -"
    changed = WIDGET.replace("size: 2", "size: 9")
    assert 'conflict with "kubectl": .spec.size' in kubectl.refused(other, sent=changed)
    assert kubectl.run(f"{other} --force-conflicts", sent=changed) == applied
    entries = kubectl.object("get wg k1 -n t1 --show-managed-fields")["metadata"]["managedFields"]
    owners = {entry["manager"]: set(entry["fieldsV1"]["f:spec"]) for entry in entries}
    assert owners == {"kubectl": {"f:items"}, "other": {"f:items", "f:size"}}


def test_going_over_to_server_side_apply(kubectl: Kubectl) -> None:
    """An object of client-side apply changes hands without a conflict."""
    kubectl.run("apply -f -", sent=WIDGET)
    kubectl.run("apply --server-side -f -", sent=WIDGET.replace("size: 2", "size: 5"))
    entries = kubectl.object("get wg k1 -n t1 --show-managed-fields")["metadata"]["managedFields"]
    managers = {entry["manager"] for entry in entries}
    assert "kubectl" in managers
    assert "kubectl-client-side-apply" not in managers


def test_patches(kubectl: Kubectl) -> None:
    """Merge, JSON and strategic merge patches change what they say."""
    kubectl.run("apply -f -", sent=WIDGET)
    kubectl.run('patch wg k1 -n t1 --type merge -p {"spec":{"size":4}}')
    assert kubectl.object("get wg k1 -n t1")["spec"]["size"] == 4
    kubectl.run('patch wg k1 -n t1 --type json -p [{"op":"remove","path":"/spec/items"}]')
    assert "items" not in kubectl.object("get wg k1 -n t1")["spec"]
    kubectl.run("apply -f -", sent=DEPLOYMENT)
    patch = {"containers": [{"name": "second", "image": "two"}]}
    strategic = json.dumps({"spec": {"template": {"spec": patch}}}, separators=(",", ":"))
    kubectl.run(f"patch deploy d1 -n t1 -p {strategic}")
    containers = kubectl.object("get deploy d1 -n t1")["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in containers} == {"first": "one", "second": "two"}


def test_watch(kubectl: Kubectl) -> None:
    """A watch shows what is there, then every change as it happens."""
    kubectl.run("apply -f -", sent=WIDGET)
    watch = kubectl.begin("get wg -n t1 -w --no-headers --request-timeout=30s")
    assert watch.stdout is not None
    with watch:
        assert watch.stdout.readline().split()[:2] == ["k1", "2"]
        kubectl.run('patch wg k1 -n t1 --type merge -p {"spec":{"size":7}}')
        assert watch.stdout.readline().split()[:2] == ["k1", "7"]
        watch.terminate()


def test_wait(kubectl: Kubectl) -> None:
    """`wait` ends when the condition comes."""
    kubectl.run("apply -f -", sent=WIDGET)
    waiting = kubectl.begin("wait wg/k1 -n t1 --for=condition=Ready --timeout=30s")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Ok",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = json.dumps({"status": {"conditions": [condition]}}, separators=(",", ":"))
    kubectl.run(f"patch wg k1 -n t1 --subresource=status --type merge -p {patch}")
    out, error = waiting.communicate(timeout=PATIENCE_SECONDS)
    assert (out, error) == ("widget.rig.example.io/k1 condition met\n", "")


def test_labels_annotations_and_scale(kubectl: Kubectl) -> None:
    """Small writes: label, annotate, scale, replace."""
    kubectl.run("apply -f -", sent=WIDGET)
    kubectl.run("label wg k1 -n t1 a=b")
    kubectl.run("annotate wg k1 -n t1 c=d")
    kubectl.run("scale wg k1 -n t1 --replicas=3")
    found = kubectl.object("get wg -n t1 -l a=b")["items"][0]
    assert found["metadata"]["annotations"]["c"] == "d"
    assert found["spec"]["replicas"] == 3
    replaced = kubectl.run("replace -f -", sent=WIDGET)
    assert replaced == "widget.rig.example.io/k1 replaced\n"


def test_diff(kubectl: Kubectl) -> None:
    """`diff` shows the change and leaves it undone."""
    kubectl.run("apply -f -", sent=WIDGET)
    shown = kubectl.run("diff -f -", sent=WIDGET.replace("size: 2", "size: 3"), code=1)
    assert "\n-  size: 2\n+  size: 3\n" in shown
    assert kubectl.run("diff -f -", sent=WIDGET) == ""


def test_describe_and_events(kubectl: Kubectl, cluster: Cluster) -> None:
    """`describe` shows an object with its events, `events` and `get events` list them."""
    kubectl.run("apply -f -", sent=WIDGET)
    widget = kubectl.object("get wg k1 -n t1")
    reference = {
        "apiVersion": "rig.example.io/v1",
        "kind": "Widget",
        "name": "k1",
        "namespace": "t1",
        "uid": widget["metadata"]["uid"],
    }
    moment = widget["metadata"]["creationTimestamp"]
    cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "k1.1", "namespace": "t1"},
            "involvedObject": reference,
            "reason": "Grown",
            "message": "it grew",
            "type": "Normal",
            "source": {"component": "test"},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
    )
    shown = kubectl.run("describe wg k1 -n t1")
    assert "Size:      2" in shown
    assert "Grown" in shown.partition("Events:")[2]
    assert "it grew" in kubectl.run("events -n t1")
    assert "it grew" in kubectl.run("get events -n t1")
    kubectl.run("run p --image=i -n t1")
    assert "Image:        i" in kubectl.run("describe pod p -n t1")


def test_explain(kubectl: Kubectl) -> None:
    """`explain` shows a CRD's fields with their descriptions, and those of built-in kinds."""
    size = kubectl.run("explain widgets.spec.size")
    assert "FIELD: size <integer>" in size
    assert "Size of the widget." in size
    assert "items\t<[]Object>" in kubectl.run("explain widgets.spec")
    assert "containerPort\t<integer> -required-" in kubectl.run(
        "explain pods.spec.containers.ports"
    )
    assert "key\t<string>" in kubectl.run("explain widgets --recursive")


def test_access(kubectl: Kubectl, cluster: Cluster, home: Path) -> None:
    """`auth` and `create token` work, and a token's bearer may do what its role says."""
    assert kubectl.run("auth can-i delete pods") == "yes\n"
    assert "kubernetes-admin" in kubectl.run("auth whoami")
    kubectl.run("create serviceaccount agent -n t1")
    kubectl.run("create role reader -n t1 --verb=get,list --resource=widgets.rig.example.io")
    kubectl.run("create rolebinding reader -n t1 --role=reader --serviceaccount=t1:agent")
    agent = "system:serviceaccount:t1:agent"
    assert kubectl.run(f"auth can-i list widgets -n t1 --as {agent}") == "yes\n"
    assert kubectl.run(f"auth can-i delete widgets -n t1 --as {agent}", code=1) == "no\n"
    assert "widgets.rig.example.io" in kubectl.run(f"auth can-i --list -n t1 --as {agent}")
    token = kubectl.run("create token agent -n t1 --duration=10m").strip()
    assert kubectl.run(f"auth can-i list widgets -n t1 --token {token}") == "yes\n"
    bearer = Kubectl(cluster.kubeconfig(agent), home)
    assert bearer.run("get wg -n t1 -o name") == ""
    assert f'User "{agent}" cannot list resource "secrets"' in bearer.refused("get secrets -n t1")


def test_what_kubectl_creates_as_protobuf(kubectl: Kubectl) -> None:
    """`create` sends built-in kinds as protobuf; the server reads them."""
    for what in (
        "namespace t9",
        "configmap c -n t1 --from-literal=a=b",
        "secret generic s -n t1 --from-literal=a=b",
        "clusterrole reads --verb=get --resource=pods",
        "clusterrolebinding reads --clusterrole=reads --user=bob",
    ):
        assert kubectl.run(f"create {what}").endswith(" created\n")
    assert kubectl.object("get configmap c -n t1")["data"] == {"a": "b"}
    assert kubectl.object("get secret s -n t1")["data"] == {"a": "Yg=="}
    assert kubectl.object("get clusterrole reads")["rules"][0]["verbs"] == ["get"]
    kubectl.run("delete namespace t9")


@pytest.mark.parametrize(
    "what",
    [
        "deployment web --image=i --port=80 --replicas=2 -- /bin/sh -c true",
        "job once --image=i -- true",
        "cronjob often --image=i --schedule=*/5",
        "service clusterip web --tcp=80:8080",
        "service nodeport web --tcp=80 --node-port=30080",
        "service externalname web --external-name=example.com",
        "poddisruptionbudget web --selector=app=web --min-available=50%",
        "priorityclass high --value=1000",
    ],
)
def test_what_is_created_is_what_was_meant(kubectl: Kubectl, what: str) -> None:
    """What the server reads from protobuf is what kubectl prints of its own object."""
    kind = what.partition(" ")[0]
    place = "" if kind == "priorityclass" else " -n t1"
    create, dashes, command = what.partition(" --")
    create = f"create {create}{place}"
    rest = f"{dashes}{command}"
    meant = json.loads(kubectl.run(f"{create} --dry-run=client -o json{rest}"))
    read = json.loads(kubectl.run(f"{create} --dry-run=server -o json{rest}"))
    assert covered(plain(meant), read)


def test_health(kubectl: Kubectl) -> None:
    """The health endpoints answer raw requests."""
    assert kubectl.run("get --raw /readyz") == "ok"
    assert "readyz check passed" in kubectl.run("get --raw /readyz?verbose")
