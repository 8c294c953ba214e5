"""Kinds beyond the recordings: defaults, what is for life, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emulator.api import Api, Steps
from emulator.client import Client
from emulator.errors import ApiError
from emulator.patches import FieldPatcher
from tests.emulator.replay import SteppingClock
from tests.emulator.rig import definition

Json = dict[str, Any]
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Give an admin's client of one server for the module; tests use names of their own."""
    api = Api(SteppingClock(), Steps(patcher=FieldPatcher()))
    yield Client(api)
    api.close()


def pod(name: str, **spec: Any) -> Json:
    """Return a Pod of one container."""
    spec.setdefault("containers", [{"name": "c", "image": "i:1"}])
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def refusal(client: Client, body: Json) -> ApiError:
    """Create something that is refused; return the refusal."""
    with pytest.raises(ApiError) as refused:
        client.create(body)
    return refused.value


def faults(error: ApiError) -> dict[str, str]:
    """Return what a 422 says of each field."""
    assert error.code == 422, error.status
    return {one["field"]: one["message"] for one in error.status["details"]["causes"]}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1.2", "IfNotPresent"),
        ("nginx@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(client: Client, image: str, policy: str) -> None:
    """Only an image without a tag, or with latest, is pulled each time."""
    body = pod("", containers=[{"name": "c", "image": image}])
    body["metadata"] = {"generateName": "pull-", "namespace": "default"}
    assert client.create(body)["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_pod_takes_from_its_account(client: Client) -> None:
    """Pull secrets come from the ServiceAccount; a token it does not want mounted is not."""
    account = {
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "quiet", "namespace": "default"},
        "imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": False,
    }  # fmt: skip
    client.create(account)
    spec = client.create(pod("quiet", serviceAccountName="quiet"))["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert "volumes" not in spec
    loud = client.create(pod("loud", serviceAccountName="quiet", automountServiceAccountToken=True))
    mounts = loud["spec"]["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts] == [TOKEN_MOUNT]


def test_a_token_mount_of_ones_own_is_left_alone(client: Client) -> None:
    """A container that mounts something at the token's place gets no token."""
    containers = [
        {"name": "c", "image": "i:1", "volumeMounts": [{"name": "v", "mountPath": TOKEN_MOUNT}]}
    ]
    spec = client.create(pod("own", containers=containers, volumes=[{"name": "v"}]))["spec"]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_quality_follows_resources(client: Client, resources: Json, quality: str) -> None:
    """Limits stand for requests that are not given, and both decide the quality class."""
    body = pod("", containers=[{"name": "c", "image": "i:1", "resources": resources}])
    body["metadata"] = {"generateName": "quality-", "namespace": "default"}
    assert client.create(body)["status"]["qosClass"] == quality


def test_priority_comes_from_its_class(client: Client) -> None:
    """A Pod gets its class's number; a class that is not there refuses it."""
    made = client.create(pod("critical", priorityClassName="system-node-critical"))
    assert made["spec"]["priority"] == 2_000_001_000
    error = refusal(client, pod("unknown", priorityClassName="none"))
    assert error.code == 403
    assert error.message == 'pods "unknown" is forbidden: no PriorityClass with name none was found'


def test_a_wrong_pod_hears_everything_at_once(client: Client) -> None:
    """Every fault of a Pod is named with its field."""
    containers = [
        {"name": "c", "volumeMounts": [{"name": "none", "mountPath": "/m"}]},
        {"name": "c", "image": "i:1"},
    ]
    volumes = [{"name": "v", "csi": {"driver": ""}}, {"name": "v", "emptyDir": {}}]
    wrong = faults(refusal(client, pod("wrong", containers=containers, volumes=volumes)))
    assert wrong == {
        "spec.volumes[0].csi.driver": "Required value",
        "spec.volumes[1].name": 'Duplicate value: "v"',
        "spec.containers[0].image": "Required value",
        "spec.containers[0].volumeMounts[0].name": 'Not found: "none"',
        "spec.containers[1].name": 'Duplicate value: "c"',
    }


def test_what_of_a_pod_may_change(client: Client) -> None:
    """A running Pod's image and tolerations may change, the rest of its spec may not."""
    made = client.create(pod("changing"))
    made["spec"]["containers"][0]["image"] = "i:2"
    made["spec"]["tolerations"].append({"key": "k", "operator": "Exists"})
    made = client.update(made)
    assert made["metadata"]["generation"] == 2
    made["spec"]["tolerations"] = []
    with pytest.raises(ApiError, match="existing toleration can not be modified"):
        client.update(made)


def test_numbers_become_quantities(client: Client) -> None:
    """A number where a quantity is wanted becomes one; what is none is refused."""
    containers = [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": 2}}}]
    made = client.create(pod("numbers", containers=containers))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}
    containers[0]["resources"] = {"limits": {"cpu": "much"}}
    error = refusal(client, pod("much", containers=containers))
    assert error.code == 400
    assert "quantities must match the regular expression" in error.message


def test_a_workload_selects_its_own(client: Client) -> None:
    """A selector that does not select the template is refused, and it is for life."""
    body: Json = {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "c"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    }  # fmt: skip
    wrong = faults(refusal(client, body))
    assert list(wrong) == ["spec.template.metadata.labels"]
    body["spec"]["template"]["metadata"]["labels"] = {"a": "b"}
    client.create(body)
    scale = client.get("apps/v1", "Deployment", "d", namespace="default", subresource="scale")
    assert scale["spec"] == {"replicas": 1}
    change = {"spec": {"replicas": 3}}
    client.patch("apps/v1", "Deployment", "d", change, namespace="default", subresource="scale")
    made = client.get("apps/v1", "Deployment", "d", namespace="default")
    assert (made["spec"]["replicas"], made["metadata"]["generation"]) == (3, 2)
    labels = {"metadata": {"labels": {"a": "z"}}}
    moved = {"spec": {"selector": {"matchLabels": {"a": "z"}}, "template": labels}}
    with pytest.raises(ApiError, match="field is immutable"):
        client.patch("apps/v1", "Deployment", "d", moved, namespace="default")


def test_a_service_keeps_its_address(client: Client) -> None:
    """A Service has one address for life, and a headless one has none."""
    body: Json = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    }  # fmt: skip
    address = client.create(body)["spec"]["clusterIP"]
    assert client.update(body)["spec"]["clusterIP"] == address
    with pytest.raises(ApiError, match="may not change once set"):
        client.update({**body, "spec": {**body["spec"], "clusterIP": "10.96.0.9"}})
    headless = {**body, "metadata": {"name": "h", "namespace": "default"}}
    headless["spec"] = {"clusterIP": "None", "ports": [{"port": 80}]}
    assert client.create(headless)["spec"]["clusterIPs"] == ["None"]


def test_a_role_binding_keeps_its_role(client: Client) -> None:
    """The role of a binding is for life; its subjects get their group."""
    body: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:odd/name".replace("/", "-")},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "Group", "name": "g"}],
    }  # fmt: skip
    made = client.create(body)
    assert made["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    made["roleRef"]["name"] = "admin"
    with pytest.raises(ApiError, match="cannot change roleRef"):
        client.update(made)


def broken_crd(**schema: Any) -> Json:
    """Return a CRD whose spec has an odd schema."""
    body = definition("odds", "Odd")
    version = body["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] = {"type": "object", **schema}
    return body


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"type": "string", "format": "mac"}}}, "this format is not emulated"),
        (
            {"properties": {"a": {"type": "string", "pattern": "("}}},
            "must be a valid regular expression",
        ),
        ({"x-kubernetes-validations": [{"rule": "duration('1s') > self"}]}, "not emulated"),
        (
            {"properties": {"a": {"type": "array", "items": {}}}},
            "must not be empty for specified array items",
        ),
    ],
)
def test_what_a_crd_may_not_ask_for(client: Client, schema: Json, said: str) -> None:
    """A CRD that needs what is not there, here or in any server, is refused by name."""
    assert said in refusal(client, broken_crd(**schema)).message


def test_a_crd_with_an_unknown_path_or_conversion_is_refused(client: Client) -> None:
    """Columns outside the emulated JSONPath, and conversion, are refused by name."""
    body = broken_crd()
    column = {"name": "X", "type": "string", "jsonPath": ".spec.a[?(@.x>1)]"}
    body["spec"]["versions"][0]["additionalPrinterColumns"] = [column]
    body["spec"]["conversion"] = {"strategy": "Webhook"}
    wrong = faults(refusal(client, body))
    assert wrong["spec.conversion.strategy"].endswith("conversion is not emulated")
    assert "is not emulated from position" in wrong["spec.versions[0].additionalPrinterColumns"]


def test_versions_of_a_crd_are_views_of_one_object(client: Client) -> None:
    """An object written in one version reads in the other, under the other's apiVersion."""
    body = definition("twins", "Twin")
    old = body["spec"]["versions"][0]
    body["spec"]["versions"] = [{**old, "name": "v1beta1", "storage": False}, old]
    client.create(body)
    twin = {"kind": "Twin", "metadata": {"name": "t", "namespace": "default"}, "spec": {"a": 1}}
    client.create({"apiVersion": "rig.example.io/v1beta1", **twin})
    read = client.get("rig.example.io/v1", "Twin", "t", namespace="default")
    assert (read["apiVersion"], read["spec"]) == ("rig.example.io/v1", {"a": 1})
    assert (
        client.list("rig.example.io/v1beta1", "Twin")[0]["apiVersion"] == "rig.example.io/v1beta1"
    )
    with client.watch("rig.example.io/v1beta1", "Twin") as watch:
        watch.close()
        assert [object_["apiVersion"] for _, object_ in watch] == ["rig.example.io/v1beta1"]


def test_a_changed_crd_is_served_at_once(client: Client) -> None:
    """A new schema counts from the answer to its update on, for what is stored, too."""
    body = definition("growths", "Growth")
    version = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    version["properties"]["spec"] = {"type": "object", "properties": {"a": {"type": "string"}}}
    client.create(body)
    growth: Json = {
        "apiVersion": "rig.example.io/v1", "kind": "Growth",
        "metadata": {"name": "g", "namespace": "default"}, "spec": {"a": "1", "b": "2"},
    }  # fmt: skip
    made = client.create(growth)
    assert made["spec"] == {"a": "1"}
    stored = client.get(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "growths.rig.example.io"
    )
    schema = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["b"] = {"type": "string", "default": "new"}
    client.update(stored)
    held = client.get("rig.example.io/v1", "Growth", "g", namespace="default")
    assert held["spec"] == {"a": "1", "b": "new"}
    assert held["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_events_of_both_groups_are_one_collection(client: Client) -> None:
    """An event written to one group is listed, and watched, in the other's shape."""
    event: Json = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"}, "type": "Normal", "reason": "R",
        "action": "A", "note": "n", "reportingController": "x.io/c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Node", "name": "n"},
    }  # fmt: skip
    client.create(event)
    core = client.list("v1", "Event", namespace="default", fields="involvedObject.kind=Node")
    assert [one["message"] for one in core] == ["n"]
    newer = client.list(
        "events.k8s.io/v1", "Event", namespace="default", fields="regarding.kind=Node"
    )
    assert [one["note"] for one in newer] == ["n"]
